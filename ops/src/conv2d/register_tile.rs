//! The register tile: how many accumulators a kernel holds, by instruction set.
//!
//! A tile is `ROWS` lines of `COLS` scalars, each scalar multiplied with [`NV`] vectors: `ROWS * COLS * NV` accumulators,
//! `NV` vectors and one broadcast must fit the registers. Two vectors a scalar keep the loads (`ROWS * COLS + NV` a step)
//! well below the multiplications (`ROWS * COLS * NV`); a 1-D tile, one vector a scalar, would need a load a
//! multiplication and stop at the load ports. At least 8 accumulators are needed to hide a latency of 4 cycles on two ports.
//! Rows fill the registers where a line is short.

/// Vectors that are multiplied with each scalar.
pub(super) const NV: usize = 2;

/// Lines and scalars a line of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RegisterTile {
    pub(super) rows: usize,
    pub(super) cols: usize,
}

/// Shapes for 32 registers: at most 14 scalars, 14 * 2 + 2 + 1 = 31 registers; one-line shapes for where few lines are left.
const WIDE: &[(usize, usize)] = &[
    (6, 1),
    (6, 2),
    (3, 3),
    (4, 3),
    (3, 4),
    (2, 5),
    (2, 6),
    (2, 7),
    (1, 4),
    (1, 5),
    (1, 6),
    (1, 7),
    (1, 8),
    (1, 9),
    (1, 10),
    (1, 11),
    (1, 12),
    (1, 13),
    (1, 14),
];

/// Shapes for 16 registers: at most 6 scalars, 6 * 2 + 2 + 1 = 15 registers.
const NARROW: &[(usize, usize)] = &[(6, 1), (3, 2), (2, 3), (1, 4), (1, 5), (1, 6)];

/// Shapes for portable code, of which the compiler decides what is in registers: few, to keep the program small.
const PORTABLE: &[(usize, usize)] = &[(2, 1), (1, 2)];

impl RegisterTile {
    /// The tile with which `lines` lines of `len` scalars take the least time. The last tile of a line overlaps its
    /// neighbor, the last lines are computed several times where the rows do not divide them.
    pub(super) fn choose(len: usize, lines: usize, registers: usize) -> RegisterTile {
        let shapes = match registers {
            32.. => WIDE,
            16.. => NARROW,
            _ => PORTABLE,
        };
        let fitting = shapes.iter().filter(|(_, cols)| *cols <= len.max(1));
        // A step of a tile takes a cycle for each scalar, but at least the 4 that hide the latency, and about one more for
        // the vectors; a line half a cycle, spread over its steps, to begin and end. In half cycles; of equals the widest.
        let cost = |(rows, cols): (usize, usize)| {
            len.div_ceil(cols) * lines.div_ceil(rows) * (2 * (rows * cols).max(4) + 2 + rows)
        };
        let best = fitting.copied().rev().min_by_key(|shape| cost(*shape));
        let (rows, cols) = best.expect("a tile of one column always fits");
        RegisterTile { rows, cols }
    }

    /// Whether a kernel of `rows` lines and `cols` scalars is one of those for so many registers.
    pub(super) const fn fits(rows: usize, cols: usize, registers: usize) -> bool {
        rows * cols * NV + NV < registers
    }
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
            (3, 3) => shape!(3, 3),
            (4, 3) => shape!(4, 3),
            (2, 3) => shape!(2, 3),
            (3, 4) => shape!(3, 4),
            (1, 4) => shape!(1, 4),
            (2, 5) => shape!(2, 5),
            (1, 5) => shape!(1, 5),
            (2, 6) => shape!(2, 6),
            (1, 6) => shape!(1, 6),
            (1, 7) => shape!(1, 7),
            (2, 7) => shape!(2, 7),
            (1, 8) => shape!(1, 8),
            (1, 9) => shape!(1, 9),
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
        for (registers, shapes) in [(32, WIDE), (16, NARROW), (8, PORTABLE)] {
            for &(rows, cols) in shapes {
                assert!(RegisterTile::fits(rows, cols, registers), "{rows} x {cols}");
                let tile = RegisterTile { rows, cols };
                assert_eq!(with_tile!(tile, |R, C| (R, C)), (rows, cols));
            }
        }
    }

    #[test]
    fn tiles_divide_common_widths() {
        for (len, cols) in [(28, 14), (24, 12), (80, 10), (48, 12), (13, 13), (7, 7)] {
            assert_eq!(RegisterTile::choose(len, 60, 32).cols, cols, "{len} scalars");
        }
        assert_eq!(RegisterTile::choose(16, 1, 32), RegisterTile { rows: 1, cols: 8 });
        for (len, cols) in [(28, 6), (24, 6), (16, 4), (48, 6), (1, 1)] {
            assert_eq!(RegisterTile::choose(len, 60, 16).cols, cols, "{len} scalars");
        }
    }
}
