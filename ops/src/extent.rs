//! Checks that every op makes: of sizes when it is planned, of buffers when a block runs.

use crate::{Maps, ShapeError};

/// Refuses the first field that is zero.
pub(crate) fn expect_positive(
    op: &'static str,
    fields: &[(&'static str, usize)],
) -> Result<(), ShapeError> {
    match fields.iter().find(|(_, size)| *size == 0) {
        Some(&(field, _)) => Err(ShapeError::Zero { op, field }),
        None => Ok(()),
    }
}

/// Refuses maps without elements.
pub(crate) fn expect_maps(op: &'static str, maps: Maps) -> Result<(), ShapeError> {
    expect_positive(op, &[("c", maps.c), ("h", maps.h), ("w", maps.w)])
}

/// Refuses a parameter outside `min..=max`, NaN included.
pub(crate) fn expect_within(
    op: &'static str,
    field: &'static str,
    value: f32,
    [min, max]: [f32; 2],
) -> Result<(), ShapeError> {
    if min <= value && value <= max {
        return Ok(());
    }
    Err(ShapeError::OutOfRange { op, field, value, min, max })
}

/// Panics, naming the operation, the tensor and both lengths, unless `got` elements hold the `needed` ones.
#[inline]
#[track_caller]
pub(crate) fn expect_len(op: &'static str, tensor: &'static str, got: usize, needed: usize) {
    if got < needed {
        too_short(op, tensor, got, needed);
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn too_short(op: &'static str, tensor: &'static str, got: usize, needed: usize) -> ! {
    panic!("{op}: {tensor} holds {got} elements, {needed} are needed");
}
