//! The product of one frequency: `sums[tile][outer] += values[tile][inner] * wei[inner][outer]`.

use crate::linear::tile::{Ahead, Lhs, Rhs, accumulate, load_sums, store_sums};
use crate::simd::{Kernel, Simd};

/// Inner channels of a chunk at most.
pub(super) const MAX_CHUNK: usize = 128;

/// From tile to tile among the values: an odd number of cache lines, so that the rows of a register tile do not compete for
/// the same places of the cache; and a constant, so that the inner loop is short.
pub(super) const ROW: usize = MAX_CHUNK + 16;

/// Tiles that share a register tile, at most.
pub(super) const fn tile_rows(lanes: usize) -> usize {
    if lanes >= 16 { 12 } else { 6 }
}

/// Tiles of the smallest register tile.
pub(super) const STEP: usize = 4;

/// Room that is needed for so many tiles: the last register tile may reach further.
pub(super) const fn room(tiles: usize) -> usize {
    tiles + STEP
}

/// One frequency of a chunk of inner channels and a pair of output vectors.
pub(super) struct Product<'a> {
    /// Rows of [`ROW`] elements.
    pub(super) values: &'a [f32],
    pub(super) wei: &'a [f32],
    /// Inner channels.
    pub(super) depth: usize,
    /// Tiles.
    pub(super) tiles: usize,
    /// Output vectors: one or two.
    pub(super) vectors: usize,
    /// Whether the sums begin here.
    pub(super) is_first: bool,
    /// `[tile][vectors]`, with [`room`].
    pub(super) sums: &'a mut [f32],
    /// The weights that are read next.
    pub(super) next_wei: &'a [f32],
}

impl Kernel for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        if self.vectors == 1 {
            self.multiply::<S, 1>(simd);
        } else {
            self.multiply::<S, 2>(simd);
        }
    }
}

impl Product<'_> {
    #[inline(always)]
    fn multiply<S: Simd, const V: usize>(mut self, simd: S) {
        let register_tiles = self.tiles.div_ceil(tile_rows(S::LANES));
        let lines = (self.next_wei.len() / 16).div_ceil(register_tiles);
        let mut ahead = Ahead { src: self.next_wei, at: 0, stride: 16, lines: 1, line: 0 };
        let mut first = 0;
        while first < self.tiles {
            let left = self.tiles - first;
            // The first comparison is known at compile time, so a tile that does not fit is not even compiled.
            first += if tile_rows(S::LANES) == 12 && left > 8 {
                self.rows::<S, 12, V>(simd, first, &mut ahead, lines)
            } else if tile_rows(S::LANES) == 12 && left > 4 {
                self.rows::<S, 8, V>(simd, first, &mut ahead, lines)
            } else if tile_rows(S::LANES) == 6 && left > 4 {
                self.rows::<S, 6, V>(simd, first, &mut ahead, lines)
            } else {
                self.rows::<S, 4, V>(simd, first, &mut ahead, lines)
            };
        }
    }

    /// Multiplies `R` tiles; returns `R`.
    #[inline(always)]
    fn rows<S: Simd, const R: usize, const V: usize>(
        &mut self,
        simd: S,
        first: usize,
        ahead: &mut Ahead<'_>,
        lines: usize,
    ) -> usize {
        let width = V * S::LANES;
        let sums = &mut self.sums[first * width..][..R * width];
        let start = if self.is_first { 0 } else { R };
        let mut acc = load_sums::<S, R, V>(simd, sums, width, start);
        let mut k = 0;
        // A few lines are asked for at a time: the core can wait for no more.
        let parts = 4;
        let step = self.depth.div_ceil(parts);
        while k < self.depth {
            ahead.fetch(simd, lines.div_ceil(parts));
            let part = step.min(self.depth - k);
            let lhs = Lhs { src: &self.values[first * ROW + k..], row_stride: ROW, k_stride: 1 };
            let rhs = Rhs { src: &self.wei[k * width..], k_stride: width };
            acc = accumulate(simd, acc, lhs, rhs, part);
            k += part;
        }
        store_sums(simd, acc, sums, width, R);
        R
    }
}

/// The channel blocks whose products are summed.
#[derive(Debug, Clone, Copy)]
pub(super) struct SumsPlace {
    pub(super) ins: usize,
    pub(super) outs: usize,
}

/// One frequency of a batch of tiles: `sums[pair][inner] += values[tile][inner] * gradients[tile][pair]`.
pub(super) struct TileProduct<'a> {
    /// Rows of [`ROW`] elements.
    pub(super) values: &'a [f32],
    /// Rows of [`ROW`] elements.
    pub(super) gradients: &'a [f32],
    pub(super) tiles: usize,
    pub(super) place: SumsPlace,
    /// Whether the sums begin here.
    pub(super) is_first: bool,
    pub(super) sums: &'a mut [f32],
}

impl Kernel for TileProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let mut out = 0;
        while out < self.place.outs {
            if out + 2 <= self.place.outs {
                self.multiply::<S, 2>(simd, out);
                out += 2;
            } else {
                self.multiply::<S, 1>(simd, out);
                out += 1;
            }
        }
    }
}

impl TileProduct<'_> {
    /// The products of `V` output vectors.
    #[inline(always)]
    fn multiply<S: Simd, const V: usize>(&mut self, simd: S, out: usize) {
        let channels = self.place.ins * S::LANES;
        let mut first = 0;
        while first < channels {
            let left = channels - first;
            first += if tile_rows(S::LANES) == 12 && left > 8 && left != 16 {
                self.rows::<S, 12, V>(simd, out, first)
            } else if tile_rows(S::LANES) == 12 && left > 4 {
                self.rows::<S, 8, V>(simd, out, first)
            } else if tile_rows(S::LANES) == 6 && left > 4 && left != 8 {
                self.rows::<S, 6, V>(simd, out, first)
            } else {
                self.rows::<S, 4, V>(simd, out, first)
            };
        }
    }

    /// Multiplies `R` channels; returns `R`.
    #[inline(always)]
    fn rows<S: Simd, const R: usize, const V: usize>(
        &mut self,
        simd: S,
        out: usize,
        first: usize,
    ) -> usize {
        let channels = self.place.ins * S::LANES;
        let width = V * S::LANES;
        let at = out * S::LANES * channels + first * width;
        let rows = R.min(channels - first);
        let sums = &mut self.sums[at..][..rows * width];
        let start = if self.is_first { 0 } else { rows };
        let acc = load_sums::<S, R, V>(simd, sums, width, start);
        let lhs = Lhs { src: &self.values[first..], row_stride: 1, k_stride: ROW };
        let rhs = Rhs { src: &self.gradients[out * S::LANES..], k_stride: ROW };
        let acc = accumulate(simd, acc, lhs, rhs, self.tiles);
        store_sums(simd, acc, sums, width, rows);
        R
    }
}
