//! The register tile: how many accumulators a kernel holds, by instruction set.
//!
//! A tile is `ROWS` lines of `COLS` scalars, each scalar multiplied with [`NV`] vectors, or one where a single is left: `ROWS * COLS * NV` accumulators,
//! `NV` vectors and one broadcast must fit the registers. Two vectors a scalar keep the loads (`ROWS * COLS + NV` a step)
//! well below the multiplications (`ROWS * COLS * NV`); a 1-D tile, one vector a scalar, would need a load a
//! multiplication and stop at the load ports. At least 8 accumulators are needed to hide a latency of 4 cycles on two ports.
//! Rows fill the registers where a line is short.
//!
//! Every shape is compiled for every kernel that uses it, so each kernel has a [`TileSet`] of its own, with the shapes that
//! its line lengths call for.

/// Vectors that are multiplied with each scalar.
pub(super) const NV: usize = 2;

/// Lines and scalars a line of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RegisterTile {
    pub(super) rows: usize,
    pub(super) cols: usize,
}

type Shapes = &'static [(usize, usize)];

/// The shapes of a kernel.
#[derive(Debug, Clone, Copy)]
pub(super) struct TileSet {
    /// For 32 registers: at most 14 scalars for two vectors, 14 * 2 + 2 + 1 = 31 registers. Larger tiles are for one.
    wide: Shapes,
    /// For 16 registers: at most 6 scalars, 6 * 2 + 2 + 1 = 15 registers.
    narrow: Shapes,
    /// For portable code, of which the compiler decides what is in registers: few, to keep the program small.
    portable: Shapes,
}

const NARROW: Shapes = &[(6, 1), (3, 2), (2, 3), (1, 4), (1, 5), (1, 6)];

const PORTABLE: Shapes = &[(2, 1), (1, 2)];

/// Columns of the source from pixel to pixel, if there is a kernel for this step, or 0, which stands for any.
pub(super) const fn column_step(plain: bool, step: usize, registers: usize) -> usize {
    match (plain, step) {
        _ if registers < 16 => 0,
        (_, 1 | 2) | (true, 4) => step,
        _ => 0,
    }
}

/// The shapes of the sweep over a plain or blocked source with a step from pixel to pixel, 0 standing for any, and with
/// `together` inner channels at once.
pub(super) const fn pixel_tiles(plain: bool, step: usize, together: usize) -> TileSet {
    match (plain, step) {
        (_, 0) if together > 1 => ANY_NARROW_STRIP,
        _ if together > 1 => NARROW_STRIP,
        (_, 0) => ANY_PIXELS,
        (false, 1) => BLOCKED_PIXELS,
        _ => FEW_PIXELS,
    }
}

/// Pixels of any map.
const BLOCKED_PIXELS: TileSet = TileSet {
    wide: &[
        (6, 1),
        (6, 2),
        (4, 3),
        (3, 4),
        (2, 5),
        (2, 6),
        (2, 7),
        (1, 8),
        (2, 8),
        (1, 10),
        (1, 11),
        (1, 12),
        (1, 13),
        (1, 14),
    ],
    narrow: NARROW,
    portable: &[],
};

/// Pixels of a first layer, whose maps are large, or of a layer with a stride.
const FEW_PIXELS: TileSet = TileSet {
    wide: &[(6, 1), (3, 4), (2, 7), (1, 12), (1, 14)],
    narrow: &[(6, 1), (2, 3), (1, 6)],
    portable: &[],
};

/// Pixels of a layer with a rare stride, and of every layer in portable code.
const ANY_PIXELS: TileSet =
    TileSet { wide: &[(6, 1), (1, 4)], narrow: &[(6, 1), (1, 4)], portable: PORTABLE };

/// Pixels of a narrow strip, which has one vector.
const NARROW_STRIP: TileSet = TileSet {
    wide: &[(6, 1), (6, 2), (3, 4), (2, 7), (1, 8), (2, 8), (1, 12), (1, 14)],
    narrow: &[(6, 1), (6, 2), (3, 4), (1, 12)],
    portable: &[],
};

/// The same in portable code.
const ANY_NARROW_STRIP: TileSet = TileSet { wide: &[], narrow: &[], portable: PORTABLE };

impl TileSet {
    const fn shapes(&self, registers: usize) -> Shapes {
        match registers {
            32.. => self.wide,
            16.. => self.narrow,
            _ => self.portable,
        }
    }

    /// The tile with which `lines` lines of `len` scalars, each multiplied with `vectors`, take the least time. The last tile of a line overlaps its
    /// neighbor, the last lines are computed several times where the rows do not divide them.
    pub(super) fn choose(
        &self,
        len: usize,
        lines: usize,
        vectors: usize,
        registers: usize,
    ) -> RegisterTile {
        let fitting = self
            .shapes(registers)
            .iter()
            .filter(|(rows, cols)| *cols <= len.max(1) && fits(*rows, *cols, vectors, registers));
        // A step of a tile takes a cycle for two multiplications, but at least the 4 that hide the latency, and about one
        // more for the vectors; a line half a cycle, spread over its steps, to begin and end. In half cycles; of equals the widest.
        let cost = |(rows, cols): (usize, usize)| {
            len.div_ceil(cols) * lines.div_ceil(rows) * ((vectors * rows * cols).max(8) + 2 + rows)
        };
        let best = fitting.copied().rev().min_by_key(|shape| cost(*shape));
        let (rows, cols) = best.expect("every set has a tile of one column");
        RegisterTile { rows, cols }
    }

    /// Whether `choose` may return the tile: the others need not be compiled.
    pub(super) const fn has(&self, rows: usize, cols: usize, registers: usize) -> bool {
        let shapes = self.shapes(registers);
        let mut at = 0;
        while at < shapes.len() {
            if shapes[at].0 == rows && shapes[at].1 == cols {
                return true;
            }
            at += 1;
        }
        false
    }
}

/// The lines for which there is a [kernel of whole lines](super::whole_lines). Each takes about 130 multiplications to
/// compile, so there are those that save most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WholeLine {
    /// 12 columns by 5 kernel columns without padding, from 8 pixels: a third of the products of the sweep is padding.
    Of12By5,
}

impl WholeLine {
    /// The kernel for lines of so many columns, if there is one: by lanes alone, not by registers, so that the order of sums
    /// is that of the vector's width.
    pub(super) fn choose(
        lanes: usize,
        columns: usize,
        kernel_columns: usize,
        pad: usize,
    ) -> Option<WholeLine> {
        match (lanes, columns, kernel_columns, pad) {
            (16, 12, 5, 0) => Some(WholeLine::Of12By5),
            _ => None,
        }
    }
}

/// Whether a tile leaves registers for the vectors and a broadcast. Where registers are not known, every tile does.
pub(super) const fn fits(rows: usize, cols: usize, vectors: usize, registers: usize) -> bool {
    registers < 16 || rows * cols * vectors + vectors < registers
}

/// Evaluates an expression with the rows and columns of a [`RegisterTile`] as constants.
macro_rules! with_tile {
    ($tile:expr, |$rows:ident, $cols:ident| $body:expr) => {{
        macro_rules! shape {
            ($r:literal, $c:literal) => {{
                const $rows: usize = $r;
                const $cols: usize = $c;
                $body
            }};
        }
        match ($tile.rows, $tile.cols) {
            (2, 1) => shape!(2, 1),
            (6, 1) => shape!(6, 1),
            (1, 2) => shape!(1, 2),
            (6, 2) => shape!(6, 2),
            (3, 2) => shape!(3, 2),
            (2, 3) => shape!(2, 3),
            (4, 3) => shape!(4, 3),
            (1, 4) => shape!(1, 4),
            (3, 4) => shape!(3, 4),
            (1, 5) => shape!(1, 5),
            (2, 5) => shape!(2, 5),
            (1, 6) => shape!(1, 6),
            (2, 6) => shape!(2, 6),
            (2, 7) => shape!(2, 7),
            (1, 8) => shape!(1, 8),
            (2, 8) => shape!(2, 8),
            (1, 10) => shape!(1, 10),
            (1, 11) => shape!(1, 11),
            (1, 12) => shape!(1, 12),
            (1, 13) => shape!(1, 13),
            (1, 14) => shape!(1, 14),
            (rows, cols) => unreachable!("no register tile of {rows} x {cols}"),
        }
    }};
}
pub(super) use with_tile;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tile_fits_its_registers_and_has_a_kernel() {
        for set in [BLOCKED_PIXELS, FEW_PIXELS, ANY_PIXELS, NARROW_STRIP, ANY_NARROW_STRIP] {
            for registers in [32, 16, 8] {
                for &(rows, cols) in set.shapes(registers) {
                    assert!(fits(rows, cols, 1, registers), "{rows} x {cols}");
                    assert!(set.has(rows, cols, registers) && !set.has(rows, 9, registers));
                    let tile = RegisterTile { rows, cols };
                    assert_eq!(with_tile!(tile, |R, C| (R, C)), (rows, cols));
                }
                if set.shapes(registers).is_empty() {
                    continue;
                }
                // Whatever the line, a tile is found.
                for len in 1..100 {
                    for vectors in 1..=NV {
                        let tile = set.choose(len, 1, vectors, registers);
                        assert!(tile.cols <= len && fits(tile.rows, tile.cols, vectors, registers));
                    }
                }
            }
        }
    }

    #[test]
    fn tiles_divide_common_lengths() {
        let chosen = |set: TileSet, len, lines| {
            let RegisterTile { rows, cols } = set.choose(len, lines, NV, 32);
            (rows, cols)
        };
        for (len, cols) in [(224, 14), (28, 14), (24, 12), (13, 13), (8, 8)] {
            assert_eq!(chosen(BLOCKED_PIXELS, len, 60), (1, cols), "{len} pixels");
        }
        assert_eq!(chosen(BLOCKED_PIXELS, 7, 60), (2, 7));
        let RegisterTile { rows, cols } = BLOCKED_PIXELS.choose(8, 60, 1, 32);
        assert_eq!((rows, cols), (2, 8), "of one vector");
        for (len, cols) in [(28, 6), (24, 6), (16, 4), (48, 6), (1, 1)] {
            assert_eq!(BLOCKED_PIXELS.choose(len, 60, NV, 16).cols, cols, "{len} scalars");
        }
    }
}
