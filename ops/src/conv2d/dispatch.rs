//! The kernel that runs a sweep: by its register tile, its source, and the loop that suits its taps.

use super::register_tile::{RegisterTile, column_step, with_tile};
use super::sweep::{Sweep, TiledSweep};
use crate::Isa;

/// Which loop adds the taps of a tile: one for any taps, one that leaves out [columns of padding](super::edges), or one for
/// [a single tap](super::pointwise).
pub(super) const ANY_TAPS: u8 = 0;
pub(super) const EDGES: u8 = 1;
pub(super) const POINTWISE: u8 = 2;

impl Sweep<'_> {
    /// Runs the sweep with a register tile, over a plain or a blocked source.
    pub(super) fn run(self, isa: Isa, tile: RegisterTile, plain: bool) {
        let step = column_step(plain, self.column_step, isa.registers());
        let has_own_loops = !plain && isa.registers() >= 32;
        if has_own_loops && step > 0 && self.is_pointwise(tile) {
            return match (step, tile.cols) {
                (1, 8) => isa.dispatch(TiledSweep::<1, 8, 1, false, 1, POINTWISE>(self)),
                (1, 10) => isa.dispatch(TiledSweep::<1, 10, 1, false, 1, POINTWISE>(self)),
                (1, 11) => isa.dispatch(TiledSweep::<1, 11, 1, false, 1, POINTWISE>(self)),
                (1, 12) => isa.dispatch(TiledSweep::<1, 12, 1, false, 1, POINTWISE>(self)),
                (1, 13) => isa.dispatch(TiledSweep::<1, 13, 1, false, 1, POINTWISE>(self)),
                (1, 14) => isa.dispatch(TiledSweep::<1, 14, 1, false, 1, POINTWISE>(self)),
                (2, 12) => isa.dispatch(TiledSweep::<1, 12, 2, false, 1, POINTWISE>(self)),
                (2, 14) => isa.dispatch(TiledSweep::<1, 14, 2, false, 1, POINTWISE>(self)),
                _ => unreachable!("the tiles of one line are those above"),
            };
        }
        if has_own_loops && step == 1 && self.has_edges(tile) {
            return match (tile.rows, tile.cols) {
                (2, 7) => isa.dispatch(TiledSweep::<2, 7, 1, false, 1, EDGES>(self)),
                (1, 12) => isa.dispatch(TiledSweep::<1, 12, 1, false, 1, EDGES>(self)),
                (1, 13) => isa.dispatch(TiledSweep::<1, 13, 1, false, 1, EDGES>(self)),
                (1, 14) => isa.dispatch(TiledSweep::<1, 14, 1, false, 1, EDGES>(self)),
                _ => unreachable!("the tiles that leave out columns are those above"),
            };
        }
        with_tile!(tile, |R, C| match (plain, step, self.strip.taps.together) {
            (false, 1, 1) => isa.dispatch(TiledSweep::<R, C, 1, false, 1, ANY_TAPS>(self)),
            (false, 1, 2) => isa.dispatch(TiledSweep::<R, C, 1, false, 2, ANY_TAPS>(self)),
            (false, 1, _) => isa.dispatch(TiledSweep::<R, C, 1, false, 4, ANY_TAPS>(self)),
            (false, 2, _) => isa.dispatch(TiledSweep::<R, C, 2, false, 1, ANY_TAPS>(self)),
            (false, _, 1) => isa.dispatch(TiledSweep::<R, C, 0, false, 1, ANY_TAPS>(self)),
            (false, _, 2) => isa.dispatch(TiledSweep::<R, C, 0, false, 2, ANY_TAPS>(self)),
            (false, _, _) => isa.dispatch(TiledSweep::<R, C, 0, false, 4, ANY_TAPS>(self)),
            (true, 1, _) => isa.dispatch(TiledSweep::<R, C, 1, true, 1, ANY_TAPS>(self)),
            (true, 2, _) => isa.dispatch(TiledSweep::<R, C, 2, true, 1, ANY_TAPS>(self)),
            (true, 4, _) => isa.dispatch(TiledSweep::<R, C, 4, true, 1, ANY_TAPS>(self)),
            (true, _, _) => isa.dispatch(TiledSweep::<R, C, 0, true, 1, ANY_TAPS>(self)),
        });
    }
}
