//! The search without any shortcut: every size of every loop, bytes summed block by block.

use super::{Block, CacheBudget, ConvShape};

/// The fewest bytes per operation of isolated blocks of any size that fit the budget; infinite where none does.
///
/// Source: Das et al. 2016, section 2.1: BS / CPB, summed over all blocks of the layer.
#[must_use]
pub fn isolated_bytes_per_flop(shape: &ConvShape, budget: CacheBudget) -> f64 {
    let mut best = f64::INFINITY;
    for oc in 1..=shape.oc {
        for ic in 1..=shape.ic {
            for mb in 1..=shape.mb {
                for oh in 1..=shape.oh {
                    for ow in 1..=shape.ow {
                        let block = Block { mb, ic, oc, oh, ow };
                        if block.bytes(shape) <= budget.live_bytes as f64 {
                            best = best.min(layer_bytes(shape, block) / shape.flops());
                        }
                    }
                }
            }
        }
    }
    best
}

/// Bytes of all blocks, those at the ends smaller.
fn layer_bytes(shape: &ConvShape, block: Block) -> f64 {
    let mut bytes = 0.0;
    for mb in parts(shape.mb, block.mb) {
        for ic in parts(shape.ic, block.ic) {
            for oc in parts(shape.oc, block.oc) {
                for oh in parts(shape.oh, block.oh) {
                    for ow in parts(shape.ow, block.ow) {
                        bytes += Block { mb, ic, oc, oh, ow }.bytes(shape);
                    }
                }
            }
        }
    }
    bytes
}

/// The sizes of the parts of `len` cut every `size`.
fn parts(len: usize, size: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by(size).map(move |first| size.min(len - first))
}
