//! One pass of a layer, run round after round by several threads that share its blocks: what a benchmark of it needs.
//!
//! Threads claim blocks with one atomic add. A round begins when the last block of the round before is done, as a task waits for
//! the task before it, so blocks that do not divide evenly among the threads cost what they cost in a network.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{hint, thread};

use crate::sgd::GradientSink;
use crate::{
    Conv2d, Conv2dBackwardData, Conv2dBackwardWeights, Conv2dForward, Linear, LinearBackwardData,
    LinearBackwardWeights, LinearForward,
};

/// A pass with the operands of all its blocks. Their `scratch` stays unused: each thread brings its own.
#[derive(Debug)]
pub enum Pass<'a> {
    /// A convolution's output.
    Conv2dForward(&'a Conv2d, Conv2dForward<'a>),
    /// The gradient of its source.
    Conv2dBackwardData(&'a Conv2d, Conv2dBackwardData<'a>),
    /// The gradient of its weights.
    Conv2dBackwardWeights(&'a Conv2d, Conv2dBackwardWeights<'a>),
    /// A linear layer's output.
    LinearForward(&'a Linear, LinearForward<'a>),
    /// The gradient of its source.
    LinearBackwardData(&'a Linear, LinearBackwardData<'a>),
    /// The gradient of its weights.
    LinearBackwardWeights(&'a Linear, LinearBackwardWeights<'a>),
}

impl Pass<'_> {
    /// Blocks of one round.
    pub fn blocks(&self) -> usize {
        match self {
            Self::Conv2dForward(conv, io) => conv.forward_blocks(io.mb),
            Self::Conv2dBackwardData(conv, io) => conv.backward_data_blocks(io.mb),
            Self::Conv2dBackwardWeights(conv, io) => conv.backward_weights_blocks(io.mb),
            Self::LinearForward(linear, io) => linear.forward_blocks(io.mb),
            Self::LinearBackwardData(linear, io) => linear.backward_data_blocks(io.mb),
            Self::LinearBackwardWeights(linear, io) => linear.backward_weights_blocks(io.mb),
        }
    }

    /// Elements of scratch of one thread.
    pub fn scratch_len(&self) -> usize {
        match self {
            Self::Conv2dForward(conv, _) => conv.forward_scratch_len(),
            Self::Conv2dBackwardData(conv, _) => conv.backward_data_scratch_len(),
            Self::Conv2dBackwardWeights(conv, _) => conv.backward_weights_scratch_len(),
            Self::LinearForward(linear, _) => linear.forward_scratch_len(),
            Self::LinearBackwardData(linear, _) => linear.backward_data_scratch_len(),
            Self::LinearBackwardWeights(linear, _) => linear.backward_weights_scratch_len(),
        }
    }

    /// Runs one block. Private: the caller sees to it that no block runs twice at a time.
    fn run(&self, block: usize, scratch: &mut [f32]) {
        match self {
            Self::Conv2dForward(conv, io) => {
                let &Conv2dForward { mb, src, wei, bia, ref dst, .. } = io;
                let dst = dst.for_another_block();
                conv.forward(block, Conv2dForward { mb, src, wei, bia, dst, scratch });
            }
            Self::Conv2dBackwardData(conv, io) => {
                let &Conv2dBackwardData { mb, diff_dst, wei, src, ref diff_src, .. } = io;
                let diff_src = diff_src.for_another_block();
                let io = Conv2dBackwardData { mb, diff_dst, wei, src, diff_src, scratch };
                conv.backward_data(block, io);
            }
            Self::Conv2dBackwardWeights(conv, io) => {
                let &Conv2dBackwardWeights {
                    mb, src, diff_dst, ref diff_wei, ref diff_bia, ..
                } = io;
                let diff_wei = diff_wei.for_another_block();
                let diff_bia = diff_bia.as_ref().map(GradientSink::for_another_block);
                let io = Conv2dBackwardWeights { mb, src, diff_dst, diff_wei, diff_bia, scratch };
                conv.backward_weights(block, io);
            }
            Self::LinearForward(linear, io) => {
                let &LinearForward { mb, src, wei, bia, ref dst, .. } = io;
                let dst = dst.for_another_block();
                linear.forward(block, LinearForward { mb, src, wei, bia, dst, scratch });
            }
            Self::LinearBackwardData(linear, io) => {
                let &LinearBackwardData { mb, diff_dst, wei, src, ref diff_src, .. } = io;
                let diff_src = diff_src.for_another_block();
                let io = LinearBackwardData { mb, diff_dst, wei, src, diff_src, scratch };
                linear.backward_data(block, io);
            }
            Self::LinearBackwardWeights(linear, io) => {
                let &LinearBackwardWeights {
                    mb, src, diff_dst, ref diff_wei, ref diff_bia, ..
                } = io;
                let diff_wei = diff_wei.for_another_block();
                let diff_bia = diff_bia.as_ref().map(GradientSink::for_another_block);
                let io = LinearBackwardWeights { mb, src, diff_dst, diff_wei, diff_bia, scratch };
                linear.backward_weights(block, io);
            }
        }
    }
}

/// Looks at an unfinished round before a thread gives up its core: some 50 microseconds.
const LOOKS: u32 = 1000;

/// What a thread's turn was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It ran a block.
    Block,
    /// It ran a block, and with it the round was complete.
    EndOfRound,
    /// All rounds have been given out.
    Over,
}

/// A number of rounds of a pass.
#[derive(Debug)]
pub struct Rounds<'a> {
    pass: Pass<'a>,
    blocks: usize,
    /// Blocks of all rounds.
    all: usize,
    claimed: AtomicUsize,
    done: AtomicUsize,
}

impl<'a> Rounds<'a> {
    /// No rounds yet of a pass.
    pub fn new(pass: Pass<'a>) -> Rounds<'a> {
        let (claimed, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Rounds { blocks: pass.blocks(), pass, all: 0, claimed, done }
    }

    /// Gives out `rounds` rounds.
    ///
    /// # Panics
    ///
    /// If the rounds have more blocks than a `usize` can count.
    pub fn begin(&mut self, rounds: usize) {
        self.all = rounds.checked_mul(self.blocks).expect("rounds are few enough to end");
        (*self.claimed.get_mut(), *self.done.get_mut()) = (0, 0);
    }

    /// Elements of scratch of one thread.
    pub fn scratch_len(&self) -> usize {
        self.pass.scratch_len()
    }

    /// Claims a block, waits until its round has begun, and runs it. To be called over and over on each thread.
    ///
    /// # Panics
    ///
    /// If the scratch or an operand is too short.
    pub fn turn(&self, scratch: &mut [f32]) -> Turn {
        // Relaxed: which block it is matters alone; the rounds' order is kept by `done`.
        let claim = self.claimed.fetch_add(1, Ordering::Relaxed);
        if claim >= self.all {
            return Turn::Over;
        }
        let begins_at = claim - claim % self.blocks;
        // Acquire: pairs with the Release below, so that a round finds what the round before left.
        let mut looks = 0;
        while self.done.load(Ordering::Acquire) < begins_at {
            looks += 1;
            // Whoever runs the last block may have lost its core to others, and want this one.
            if looks < LOOKS { hint::spin_loop() } else { thread::yield_now() }
        }
        self.pass.run(claim % self.blocks, scratch);
        let done = self.done.fetch_add(1, Ordering::AcqRel) + 1;
        if done.is_multiple_of(self.blocks) { Turn::EndOfRound } else { Turn::Block }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::Random;
    use crate::{Isa, LinearDesc, Tiles};

    const MB: usize = 5;

    fn linear() -> Linear {
        let desc = LinearDesc {
            in_features: 70,
            out_features: 150,
            bias: true,
            src_activation: None,
            dst_activation: None,
        };
        Linear::new(desc, Isa::detect()).unwrap()
    }

    fn padded(features: usize) -> usize {
        MB * features.next_multiple_of(Isa::detect().lanes())
    }

    /// Weight gradients after some rounds on some threads, and how often a round ended.
    fn gradients(threads: usize, rounds: usize) -> (Vec<f32>, Vec<f32>, usize) {
        let linear = linear();
        let mut random = Random(7);
        let (src, diff_dst) = (random.reals(padded(70)), random.reals(padded(150)));
        let mut diff_wei = vec![0.0; linear.wei_len()];
        let mut diff_bia = vec![0.0; linear.bia_len()];
        let io = LinearBackwardWeights {
            mb: MB,
            src: &src,
            diff_dst: &diff_dst,
            diff_wei: Tiles::from(&mut diff_wei[..]).into(),
            diff_bia: Some(Tiles::from(&mut diff_bia[..]).into()),
            scratch: &mut [],
        };
        let n = rounds;
        let mut rounds = Rounds::new(Pass::LinearBackwardWeights(&linear, io));
        rounds.begin(n);
        let work = || {
            let (mut scratch, mut ends) = (vec![0.0; rounds.scratch_len()], 0);
            loop {
                match rounds.turn(&mut scratch) {
                    Turn::Block => (),
                    Turn::EndOfRound => ends += 1,
                    Turn::Over => return ends,
                }
            }
        };
        let ends = thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        (diff_wei, diff_bia, ends)
    }

    #[test]
    fn threads_that_share_the_blocks_leave_the_same_bits() {
        let alone = gradients(1, 1);
        assert!(alone.0.iter().any(|&value| value != 0.0));
        for threads in [1, 2, 3] {
            let (wei, bia, ends) = gradients(threads, 20);
            assert_eq!((wei, bia), (alone.0.clone(), alone.1.clone()));
            assert_eq!(ends, 20);
        }
    }
}
