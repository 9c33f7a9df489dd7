//! The elements that travel between two ranks in one exchange: ranges laid end to end, then cut into chunks.

use std::ops::Range;

/// Ranges of a region, in the order in which they travel. Both ends lay out the same number of elements in the same
/// order, so a chunk is a range of *stream positions* and needs no header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stream {
    /// Non-empty ranges; neighbors are merged.
    ranges: Vec<Range<usize>>,
    /// Stream position at which each range ends.
    ends: Vec<usize>,
}

impl Stream {
    /// Appends a range; an empty one changes nothing.
    pub(crate) fn push(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let end = self.len() + range.len();
        match (self.ranges.last_mut(), self.ends.last_mut()) {
            (Some(last), Some(last_end)) if last.end == range.start => {
                last.end = range.end;
                *last_end = end;
            }
            _ => {
                self.ranges.push(range);
                self.ends.push(end);
            }
        }
    }

    /// Elements.
    pub(crate) fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    pub(crate) fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }

    /// The pieces of the region that stream positions `chunk` cover, each with its first position relative to the chunk.
    pub(crate) fn pieces(
        &self,
        chunk: Range<usize>,
    ) -> impl Iterator<Item = (Range<usize>, usize)> + '_ {
        let first = self.ends.partition_point(|&end| end <= chunk.start);
        let ranges = self.ranges.iter().zip(&self.ends).skip(first);
        let Range { start, end: chunk_end } = chunk;
        ranges.map_while(move |(range, &range_end)| {
            let range_start = range_end - range.len();
            let from = range_start.max(start);
            let to = range_end.min(chunk_end);
            (from < to).then(|| {
                let begin = range.start + (from - range_start);
                (begin..begin + (to - from), from - start)
            })
        })
    }

    /// The chunk as one range of the region, if it is one.
    pub(crate) fn contiguous(&self, chunk: Range<usize>) -> Option<Range<usize>> {
        let len = chunk.len();
        self.pieces(chunk).next().map(|(range, _)| range).filter(|range| range.len() == len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(ranges: &[Range<usize>]) -> Stream {
        let mut stream = Stream::default();
        ranges.iter().for_each(|range| stream.push(range.clone()));
        stream
    }

    #[test]
    fn neighbors_merge_and_empty_ranges_vanish() {
        let stream = stream(&[3..3, 0..2, 2..5, 9..9, 7..8]);
        assert_eq!(stream.ranges(), [0..5, 7..8]);
        assert_eq!(stream.len(), 6);
    }

    #[test]
    fn a_chunk_over_several_ranges_has_a_piece_in_each() {
        let stream = stream(&[10..14, 0..3, 20..22]);
        let pieces: Vec<_> = stream.pieces(2..8).collect();
        assert_eq!(pieces, [(12..14, 0), (0..3, 2), (20..21, 5)]);
        assert_eq!(stream.contiguous(2..8), None);
        assert_eq!(stream.contiguous(4..7), Some(0..3));
        assert_eq!(stream.contiguous(8..9), Some(21..22));
    }
}
