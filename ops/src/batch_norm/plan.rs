//! A batch normalization bound to an ISA, and how its passes are cut into blocks.

use std::ops::Range;

use super::BatchNormDesc;
use super::slicing::Slicing;
use crate::grain::Grain;
use crate::{ActivationKind, Isa, Layout, ShapeError, TensorLayout};

/// Bytes of a channel block's samples that the statistics visit twice before going on to further ones of a slice that
/// another op has cut.
const RESIDENT_BYTES: usize = 128 << 10;

/// Batch normalization with scale and shift, over any number of ranks.
///
/// ```text
/// dst[n,c,y,x] = wei[c] * (src[n,c,y,x] - mean[c]) / sqrt(variance[c] + eps) + bia[c]
/// ```
///
/// with mean and (biased) variance over all samples and pixels of channel c: in training those of the minibatch, on
/// all ranks; in [`eval`](BatchNorm::eval) the running ones.
///
/// # Shapes
///
/// `src`, `dst` and their gradients: (mb, c, h, w), blocked. `wei`, `bia` and every row of statistics:
/// [`channels`](BatchNorm::channels) elements, those past c zero.
///
/// # Cost
///
/// Memory bound. `stats` reads the input once, `forward` reads and writes once, `backward_stats` reads two tensors and
/// `backward` reads two and writes one. No scratch.
///
/// # Source
///
/// Ioffe and Szegedy 2015, algorithm 1, with PyTorch's running statistics; combination of ranks: Chan, Golub and
/// `LeVeque` 1979.
///
/// # Examples
///
/// ```
/// use lockstep_ops::{BatchNorm, BatchNormDesc, BatchNormStats, Isa, Maps};
///
/// let isa = Isa::named("portable")?;
/// let maps = Maps { c: 1, h: 1, w: 1 };
/// let desc = BatchNormDesc {
///     maps, eps: 1e-5, momentum: 0.1, src_activation: None, dst_activation: None,
/// };
/// let norm = BatchNorm::new(desc, isa)?;
/// // Two samples of one channel, on 8 lanes.
/// let mut src = [0.0; 16];
/// (src[0], src[8]) = (1.0, 3.0);
/// let mut stats = vec![0.0; norm.stats_len()];
/// let stats_tiles = stats.as_mut_slice().into();
/// assert_eq!((norm.stats_blocks(2), norm.stats_slices(2)), (1, 1));
/// norm.stats(0, BatchNormStats { mb: 2, src: &src, stats: stats_tiles });
/// // The mean, and the sum of squared deviations from it.
/// assert_eq!((stats[0], stats[norm.channels()]), (2.0, 2.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct BatchNorm {
    pub(super) desc: BatchNormDesc,
    pub(super) isa: Isa,
    lanes: usize,
    pub(super) layout: TensorLayout,
    /// Elements of one sample of one channel block.
    pub(super) plane_len: usize,
    /// Samples that the statistics take at once.
    pub(super) group: usize,
    pub(super) slicing: Slicing,
    grain: Grain,
}

/// What a block works on: a channel block of a few samples.
#[derive(Debug, Clone)]
pub(super) struct Share {
    pub(super) channel_block: usize,
    pub(super) samples: Range<usize>,
    /// Whether this block also writes what there is once a channel block.
    pub(super) is_first: bool,
}

impl BatchNorm {
    /// Plans the layer.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if a size is zero, `eps` is negative or `momentum` is not within 0 and 1.
    pub fn new(desc: BatchNormDesc, isa: Isa) -> Result<BatchNorm, ShapeError> {
        desc.validate()?;
        let lanes = isa.lanes();
        let layout = TensorLayout { maps: desc.maps, layout: Layout::Blocked(lanes) };
        let plane_len = layout.sample_len() / layout.channel_blocks();
        let plane_bytes = size_of::<f32>() * plane_len;
        Ok(BatchNorm {
            desc,
            isa,
            lanes,
            layout,
            plane_len,
            group: (RESIDENT_BYTES / plane_bytes).max(1),
            slicing: Slicing::new(layout.channel_blocks(), desc.maps.h, plane_bytes / desc.maps.h),
            grain: Grain::new(2 * plane_bytes),
        })
    }

    /// What the layer was planned for.
    pub fn desc(&self) -> &BatchNormDesc {
        &self.desc
    }

    /// The length of `wei`, of `bia` and of each row of statistics: c rounded up to whole vectors.
    pub fn channels(&self) -> usize {
        self.layout.channel_blocks() * self.lanes
    }

    /// The length of a rank's statistics or sums, of `saved` and of `running`: two rows of [`channels`](Self::channels).
    pub fn stats_len(&self) -> usize {
        2 * self.channels()
    }

    /// Channel blocks: the blocks of the passes that reduce over samples.
    pub(super) fn channel_blocks(&self) -> usize {
        self.layout.channel_blocks()
    }

    /// Blocks of the passes that write every sample; 0 without samples.
    pub(super) fn sample_blocks(&self, mb: usize) -> usize {
        self.channel_blocks() * self.grain.blocks(mb)
    }

    /// The share of a block of such a pass: channel blocks vary fastest, as in memory.
    pub(super) fn share(&self, block: usize, mb: usize) -> Share {
        let (chunk, channel_block) = (block / self.channel_blocks(), block % self.channel_blocks());
        Share { channel_block, samples: self.grain.pieces(chunk, mb), is_first: chunk == 0 }
    }

    /// The elements of one sample of one channel block.
    #[inline(always)]
    pub(super) fn plane(&self, sample: usize, channel_block: usize) -> Range<usize> {
        let start = (sample * self.layout.channel_blocks() + channel_block) * self.plane_len;
        start..start + self.plane_len
    }

    /// The elements of some rows of one sample of one channel block.
    #[inline(always)]
    pub(super) fn rows(
        &self,
        sample: usize,
        channel_block: usize,
        rows: &Range<usize>,
    ) -> Range<usize> {
        let start = self.plane(sample, channel_block).start;
        let row_len = self.desc.maps.w * self.lanes;
        start + rows.start * row_len..start + rows.end * row_len
    }

    /// A channel block's lanes in row 0 or 1 of a pair of rows.
    pub(super) fn lanes(&self, row: usize, channel_block: usize) -> Range<usize> {
        let start = row * self.channels() + channel_block * self.lanes;
        start..start + self.lanes
    }

    /// What is applied to a channel block's results, and to how many lanes of them.
    pub(super) fn activation(&self, channel_block: usize) -> Option<(ActivationKind, usize)> {
        self.desc.dst_activation.map(|kind| (kind, self.real_lanes(channel_block)))
    }

    /// How many lanes of a channel block are channels; the rest is padding.
    pub(super) fn real_lanes(&self, channel_block: usize) -> usize {
        (self.desc.maps.c - channel_block * self.lanes).min(self.lanes)
    }
}
