//! The optimizer's step on a strip, cut into blocks; on all of a layer's parameters, where their gradient's blocks make it.

use std::ops::Range;

use lockstep_ops::sgd::SgdHyper;

use super::kernel::Parts;

/// Elements of one block: small enough to balance, large enough that its claim costs nothing.
const CHUNK: usize = 16 * 1024;

/// Elements of one block of a sum of squares, which has a result of its own.
pub(super) const SQUARES_CHUNK: usize = 256 * 1024;

/// Which elements of a layer's flat parameters one rank updates, and which of them are decayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Update {
    strip: Range<usize>,
    /// Elements that weight decay pulls at.
    decayed: Range<usize>,
}

/// A run of elements with one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Elements of the flat parameters.
    pub(crate) range: Range<usize>,
    /// True when weight decay pulls at them.
    pub(crate) decays: bool,
}

impl Update {
    pub(crate) fn new(parts: &Parts, strip: Range<usize>, decay_all: bool) -> Self {
        let decayed = match (decay_all, parts.has_weights) {
            (true, _) => 0..usize::MAX,
            (false, true) => parts.wei.clone(),
            (false, false) => 0..0,
        };
        Self { strip, decayed }
    }

    /// The hyperparameters of a part of the parameters that has one rule: weights or biases.
    pub(crate) fn hyper(&self, hyper: SgdHyper, part: &Range<usize>) -> SgdHyper {
        let decays = self.decayed.contains(&part.start);
        SgdHyper { weight_decay: if decays { hyper.weight_decay } else { 0.0 }, ..hyper }
    }

    pub(crate) fn blocks(&self) -> usize {
        self.strip.len().div_ceil(CHUNK)
    }

    /// Blocks of the strip's sum of squares.
    pub(crate) fn squares_blocks(&self) -> usize {
        self.strip.len().div_ceil(SQUARES_CHUNK)
    }

    /// The elements of a block of the strip's sum of squares.
    pub(crate) fn squares_piece(&self, block: usize) -> Range<usize> {
        let start = self.strip.start + block * SQUARES_CHUNK;
        start..(start + SQUARES_CHUNK).min(self.strip.end)
    }

    /// The first element of the strip: its velocity is element 0.
    pub(crate) fn start(&self) -> usize {
        self.strip.start
    }

    /// The pieces of a block, in order: before, inside and after what is decayed; some may be empty.
    pub(crate) fn pieces(&self, block: usize) -> [Piece; 3] {
        let start = self.strip.start + block * CHUNK;
        let end = (start + CHUNK).min(self.strip.end);
        let first = self.decayed.start.clamp(start, end);
        let last = self.decayed.end.clamp(first, end);
        [
            Piece { range: start..first, decays: false },
            Piece { range: first..last, decays: true },
            Piece { range: last..end, decays: false },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(weights: usize, biases: usize) -> Parts {
        Parts { wei: 0..weights, bia: weights..weights + biases, has_weights: true }
    }

    #[test]
    fn pieces_cover_the_strip_and_decay_stops_at_the_bias() {
        let update = Update::new(&parts(40_000, 100), 16_000..40_100, false);
        assert_eq!(update.blocks(), 2);
        let pieces: Vec<_> =
            (0..2).flat_map(|b| update.pieces(b)).filter(|p| !p.range.is_empty()).collect();
        let piece = |range, decays| Piece { range, decays };
        assert_eq!(
            pieces,
            [
                piece(16_000..32_384, true),
                piece(32_384..40_000, true),
                piece(40_000..40_100, false)
            ]
        );
    }

    #[test]
    fn everything_decays_where_nothing_is_excluded() {
        let update = Update::new(&parts(10, 4), 0..14, true);
        assert_eq!(update.pieces(0)[1], Piece { range: 0..14, decays: true });
    }
}
