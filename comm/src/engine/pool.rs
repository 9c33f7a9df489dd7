//! Buffers for what cannot be received or sent in place, kept for reuse.

/// Buffers by size class: class `c` holds buffers of `2^c` elements. At most as many as were ever in use at once.
#[derive(Debug, Default)]
pub(super) struct Pool {
    classes: Vec<Vec<Vec<f32>>>,
}

impl Pool {
    /// A buffer of at least `len` elements, of any content.
    pub(super) fn take(&mut self, len: usize) -> Vec<f32> {
        let class = class_of(len);
        let kept = self.classes.get_mut(class).and_then(Vec::pop);
        kept.unwrap_or_else(|| vec![0.0; 1 << class])
    }

    pub(super) fn give(&mut self, buffer: Vec<f32>) {
        let class = class_of(buffer.len());
        if self.classes.len() <= class {
            self.classes.resize_with(class + 1, Vec::new);
        }
        self.classes[class].push(buffer);
    }
}

fn class_of(len: usize) -> usize {
    len.next_power_of_two().trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back() {
        let mut pool = Pool::default();
        let first = pool.take(5);
        assert_eq!(first.len(), 8);
        let address = first.as_ptr();
        pool.give(first);
        assert_eq!(pool.take(9).len(), 16);
        let again = pool.take(8);
        assert_eq!(again.as_ptr(), address);
    }
}
