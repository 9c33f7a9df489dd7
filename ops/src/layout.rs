//! Where the elements of an activation lie in memory.

/// The shape of one sample: `c` channels of `h` x `w` pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Maps {
    /// Channels.
    pub c: usize,
    /// Height in pixels.
    pub h: usize,
    /// Width in pixels.
    pub w: usize,
}

/// The order of a sample's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// NCHW: channel after channel, without padding. Only a network's input has it.
    Plain,
    /// nChw8c, nChw16c: groups of so many channels innermost, the last group filled with zeros.
    Blocked(usize),
}

/// A shape and the order of its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TensorLayout {
    /// The shape of a sample.
    pub maps: Maps,
    /// The order of its elements.
    pub layout: Layout,
}

impl Maps {
    /// Elements of a sample, without padding.
    pub fn len(&self) -> usize {
        self.c * self.h * self.w
    }

    /// Whether a sample has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl TensorLayout {
    /// Elements that a sample takes, padded lanes included.
    pub fn sample_len(&self) -> usize {
        self.channel_blocks() * self.lanes() * self.maps.h * self.maps.w
    }

    /// Elements that `mb` samples take, padded lanes included.
    pub fn len(&self, mb: usize) -> usize {
        mb * self.sample_len()
    }

    /// The position of an element. Channels up to the padded count are legal.
    pub fn index(&self, n: usize, c: usize, y: usize, x: usize) -> usize {
        let Maps { h, w, .. } = self.maps;
        let lanes = self.lanes();
        let block = n * self.channel_blocks() + c / lanes;
        ((block * h + y) * w + x) * lanes + c % lanes
    }

    /// Groups of channels that lie together: `ceil(c / lanes)`, or `c` in the plain layout.
    pub fn channel_blocks(&self) -> usize {
        self.maps.c.div_ceil(self.lanes())
    }

    /// Channels of a group.
    fn lanes(&self) -> usize {
        match self.layout {
            Layout::Plain => 1,
            Layout::Blocked(lanes) => lanes,
        }
    }
}

/// Copies plain NCHW samples into a layout; padded lanes become zero.
///
/// # Panics
///
/// If `plain` is not a whole number of samples, or `dst` is too short for them.
pub fn block_samples(layout: TensorLayout, plain: &[f32], dst: &mut [f32]) {
    let samples = whole_samples(layout, plain.len());
    assert!(dst.len() >= layout.len(samples), "dst is shorter than {samples} samples");
    dst[..layout.len(samples)].fill(0.0);
    each_element(layout, samples, |plain_at, at| dst[at] = plain[plain_at]);
}

/// Copies samples of a layout into plain NCHW order; the inverse of [`block_samples`].
///
/// # Panics
///
/// If `plain` is not a whole number of samples, or `src` is too short for them.
pub fn unblock_samples(layout: TensorLayout, src: &[f32], plain: &mut [f32]) {
    let samples = whole_samples(layout, plain.len());
    assert!(src.len() >= layout.len(samples), "src is shorter than {samples} samples");
    each_element(layout, samples, |plain_at, at| plain[plain_at] = src[at]);
}

#[track_caller]
fn whole_samples(layout: TensorLayout, plain_len: usize) -> usize {
    let sample = layout.maps.len();
    assert!(
        sample > 0 && plain_len.is_multiple_of(sample),
        "{plain_len} elements are not a whole number of samples of {sample}"
    );
    plain_len / sample
}

fn each_element(layout: TensorLayout, samples: usize, mut visit: impl FnMut(usize, usize)) {
    let Maps { c, h, w } = layout.maps;
    let mut plain_at = 0;
    for n in 0..samples {
        for channel in 0..c {
            for y in 0..h {
                let row = layout.index(n, channel, y, 0);
                let step = layout.lanes();
                for x in 0..w {
                    visit(plain_at + x, row + x * step);
                }
                plain_at += w;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(c: usize, h: usize, w: usize, layout: Layout) -> TensorLayout {
        TensorLayout { maps: Maps { c, h, w }, layout }
    }

    #[test]
    fn channels_of_a_pixel_lie_together() {
        let blocked = layout(3, 1, 2, Layout::Blocked(4));
        let mut dst = [9.0; 8];
        block_samples(blocked, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &mut dst);
        assert_eq!(dst, [1.0, 3.0, 5.0, 0.0, 2.0, 4.0, 6.0, 0.0]);
    }

    #[test]
    fn blocking_and_unblocking_are_inverse() {
        for (c, h, w) in [(1, 1, 1), (3, 2, 5), (8, 3, 1), (17, 4, 4)] {
            for kind in [Layout::Plain, Layout::Blocked(8), Layout::Blocked(16)] {
                let layout = layout(c, h, w, kind);
                let plain: Vec<f32> = (0..3 * c * h * w).map(|i| i as f32).collect();
                let mut blocked = vec![-1.0; layout.len(3)];
                block_samples(layout, &plain, &mut blocked);
                let mut back = vec![0.0; plain.len()];
                unblock_samples(layout, &blocked, &mut back);
                assert_eq!(back, plain);
                let padding = blocked.len() - plain.len();
                assert!(blocked.iter().filter(|x| **x == 0.0).count() > padding);
                assert_eq!(blocked[layout.index(2, c - 1, h - 1, w - 1)], plain[plain.len() - 1]);
            }
        }
    }
}
