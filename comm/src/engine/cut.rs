//! How a stream is cut into messages. Both ends compute the same cut from the stream's length.

use std::ops::Range;

/// Streams up to this long are sent without waiting for the receiver to be ready: they cost no window and little memory where
/// they arrive early. Longer ones wait for credit (see `wire.rs`), which costs a small exchange two more waits for the other rank.
const EAGER_BYTES: usize = 32 << 10;

/// Chunk lengths that a configuration may ask for, in bytes.
const CHUNK_BYTES: Range<usize> = 4..(1 << 30) + 1;

/// The chunks of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// Elements of the stream and of a full chunk.
    len: usize,
    chunk: usize,
}

/// The configured chunk length, moved into the allowed range: whole elements, and counts that fit MPI's `int`.
pub(crate) fn clamp_chunk_bytes(chunk_bytes: usize) -> usize {
    chunk_bytes.clamp(CHUNK_BYTES.start, CHUNK_BYTES.end - 1) / 4 * 4
}

impl Cut {
    pub(super) fn new(len: usize, chunk_bytes: usize) -> Cut {
        Cut { len, chunk: chunk_bytes / size_of::<f32>() }
    }

    /// How many messages.
    pub(super) fn n_chunks(self) -> usize {
        self.len.div_ceil(self.chunk)
    }

    /// Stream positions of a chunk.
    pub(super) fn chunk(self, index: usize) -> Range<usize> {
        let start = index * self.chunk;
        start..self.len.min(start + self.chunk)
    }

    /// Whether the stream is one small message, sent at once.
    pub(super) fn is_eager(self) -> bool {
        self.len <= self.chunk.min(EAGER_BYTES / size_of::<f32>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_tile_the_stream() {
        let cut = Cut::new(10, 16);
        let chunks: Vec<_> = (0..cut.n_chunks()).map(|index| cut.chunk(index)).collect();
        assert_eq!(chunks, [0..4, 4..8, 8..10]);
        assert!(!cut.is_eager());
        assert_eq!(Cut::new(0, 16).n_chunks(), 0);
    }

    #[test]
    fn streams_beyond_two_to_the_31_elements_are_cut_into_chunks_that_mpi_can_count() {
        let len = (3_usize << 31) + 1;
        let cut = Cut::new(len, clamp_chunk_bytes(usize::MAX));
        assert_eq!(cut.n_chunks(), 25);
        assert_eq!(cut.chunk(23), 23 << 28..24 << 28);
        assert_eq!(cut.chunk(24), len - 1..len);
        assert!((0..25).all(|chunk| i32::try_from(cut.chunk(chunk).len() * 4).is_ok()));
        assert_eq!(Cut::new(len, 128 << 10).n_chunks(), 196_609);
    }

    #[test]
    fn small_streams_are_eager() {
        assert!(Cut::new(8192, 1 << 20).is_eager());
        assert!(!Cut::new(8193, 1 << 20).is_eager());
    }

    #[test]
    fn odd_chunk_lengths_are_moved() {
        assert_eq!([0, 5, 8, usize::MAX].map(clamp_chunk_bytes), [4, 4, 8, 1 << 30]);
    }
}
