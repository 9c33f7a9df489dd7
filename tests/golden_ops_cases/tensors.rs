//! Between plain tensors and what blocks of the operators read and write.

use lockstep::ops::{Isa, Layout, Maps, TensorLayout, Tiles, block_samples, unblock_samples};

use super::case::Tensor;

fn layout(maps: Maps, isa: Isa) -> TensorLayout {
    TensorLayout { maps, layout: Layout::Blocked(isa.lanes()) }
}

/// An activation as the operators of this instruction set expect it.
pub(super) fn blocked(tensor: &Tensor, isa: Isa) -> Vec<f32> {
    let layout = layout(tensor.maps(), isa);
    let mut blocked = vec![f32::NAN; layout.len(tensor.mb())];
    block_samples(layout, &tensor.values, &mut blocked);
    blocked
}

/// An activation in plain layout; its padded lanes must be zero.
#[track_caller]
pub(super) fn plain(blocked: &[f32], maps: Maps, isa: Isa) -> Vec<f32> {
    let layout = layout(maps, isa);
    let mb = blocked.len() / layout.sample_len();
    let mut plain = vec![f32::NAN; mb * maps.len()];
    unblock_samples(layout, blocked, &mut plain);
    let mut again = vec![f32::NAN; blocked.len()];
    block_samples(layout, &plain, &mut again);
    assert!(again == blocked, "padding is not zero, or a result is NaN");
    plain
}

/// Elements of an activation with padding.
pub(super) fn blocked_len(tensor: &Tensor, isa: Isa) -> usize {
    layout(tensor.maps(), isa).len(tensor.mb())
}

/// Runs all blocks of a pass with one output, which starts as NaN.
pub(super) fn run(blocks: usize, len: usize, mut pass: impl FnMut(usize, Tiles<'_>)) -> Vec<f32> {
    let mut output = vec![f32::NAN; len];
    for block in 0..blocks {
        pass(block, Tiles::from(&mut output[..]));
    }
    output
}

/// Values per channel, filled up with zeros to whole vectors.
pub(super) fn padded(values: &[f32], isa: Isa) -> Vec<f32> {
    let mut padded = values.to_vec();
    padded.resize(values.len().next_multiple_of(isa.lanes()), 0.0);
    padded
}
