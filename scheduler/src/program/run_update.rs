//! Blocks of what happens to a gradient once it is there: sums of terms, the norm of all, the optimizer's step.

use lockstep_ops::gradient::{self, SquareSum};
use lockstep_ops::sgd::{self, SgdHyper};

use super::blocks::SUM_CHUNK;
use super::run::Context;

impl Context<'_> {
    /// Adds one term of a gradient to another.
    pub(super) fn sum_gradients(&self) {
        let term = self.read(0);
        let start = self.block * SUM_CHUNK;
        let range = start..(start + SUM_CHUNK).min(term.len());
        let isa = self.program.kernel(self.task.layer).isa();
        gradient::add(isa, self.write(0).tile(range.clone()), &term[range]);
    }

    pub(super) fn gradient_squares(&self) {
        let update = self.task.update.as_ref().expect("bound with its strip");
        let isa = self.program.kernel(self.task.layer).isa();
        let mut squares = SquareSum::default();
        squares.add(isa, &self.read(0)[update.squares_piece(self.block)]);
        let place = self.block * SquareSum::LEN..(self.block + 1) * SquareSum::LEN;
        squares.write(self.write(0).tile(place));
    }

    /// Exact, so the order of layers, blocks and ranks leaves no trace.
    pub(super) fn merge_squares(&self) {
        let mut sum = SquareSum::default();
        for operand in 0..self.task.reads.len() {
            for block in self.read(operand).chunks_exact(SquareSum::LEN) {
                sum.merge(&SquareSum::read(block));
            }
        }
        sum.write(self.write(0).tile(0..SquareSum::LEN));
    }

    /// What gradients are multiplied by so that their norm is at most the one asked for.
    fn clip(&self) -> f32 {
        let (Some(max_norm), true) = (self.program.clip_norm, self.task.reads.len() > 1) else {
            return 1.0;
        };
        let mut sum = SquareSum::default();
        for rank in self.read(1).chunks_exact(SquareSum::LEN) {
            sum.merge(&SquareSum::read(rank));
        }
        gradient::clip_coefficient(sum.value(), max_norm)
    }

    pub(super) fn update(&self) {
        let update = self.task.update.as_ref().expect("bound with its pieces");
        let isa = self.program.kernel(self.task.layer).isa();
        let (gradient, scale) = (self.read(0), self.clip());
        let mut parameters = self.write(0);
        let mut velocity = (self.task.writes.len() > 1).then(|| self.write(1));
        for piece in update.pieces(self.block) {
            let (range, hyper) = (piece.range, self.iteration.hyper);
            let weight_decay = if piece.decays { hyper.weight_decay } else { 0.0 };
            let hyper = SgdHyper { weight_decay, ..hyper };
            let start = update.start();
            let velocity =
                velocity.as_mut().map(|tiles| tiles.tile(range.start - start..range.end - start));
            let wei = parameters.tile(range.clone());
            sgd::update_scaled(isa, hyper, scale, wei, &gradient[range], velocity);
        }
    }
}
