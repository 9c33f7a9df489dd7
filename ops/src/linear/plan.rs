//! A fully connected layer bound to an ISA.

use super::LinearDesc;
use super::packing::{Groups, for_each_weight};
use crate::{Isa, ShapeError};

/// A fully connected layer: forward and both backward passes.
///
/// ```text
/// dst[n,oc]      = bia[oc] + sum over ic of src[n,ic] * wei[oc,ic]
/// diff_src[n,ic] = sum over oc of diff_dst[n,oc] * wei[oc,ic]
/// diff_wei[oc,ic] = sum over n of diff_dst[n,oc] * src[n,ic]
/// diff_bia[oc]   = sum over n of diff_dst[n,oc]
/// ```
///
/// Weights are packed once and stay so: all passes read or write the same layout. Sums add their terms in an order that
/// follows from the layer alone (in turn, and of many features panel by panel), so they do not depend on how samples and
/// features are cut into blocks.
///
/// # Shapes
///
/// `src`, `diff_src`: (mb, ic), `dst`, `diff_dst`: (mb, oc), blocked, that is filled up to whole vectors; `wei`,
/// `diff_wei`: [`Self::wei_len`] elements, packed; `bia`, `diff_bia`: [`Self::bia_len`] elements, packed.
///
/// # Cost
///
/// 2·mb·ic·oc flop a pass. Scratch: half a MiB to 1 MiB a worker and pass; with what a block reads it stays in the
/// second-level cache.
///
/// # Source
///
/// PyTorch's `linear`. The blocking is that of Goto and van de Geijn 2008, "Anatomy of High-Performance Matrix
/// Multiplication", with packed weights in place of a packed copy.
#[derive(Debug, Clone)]
pub struct Linear {
    pub(super) desc: LinearDesc,
    pub(super) isa: Isa,
    pub(super) ic: Groups,
    pub(super) oc: Groups,
    pub(super) workers: usize,
}

/// For how many workers blocks are cut if nothing else is said.
const COMMON_WORKERS: usize = 4;

impl Linear {
    /// Plans the layer.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if a number of features is zero.
    pub fn new(desc: LinearDesc, isa: Isa) -> Result<Linear, ShapeError> {
        desc.validate()?;
        let lanes = isa.lanes();
        Ok(Linear {
            desc,
            isa,
            ic: Groups::new(desc.in_features, lanes),
            oc: Groups::new(desc.out_features, lanes),
            workers: COMMON_WORKERS,
        })
    }

    /// Cuts the passes into blocks that so many workers share, 4 if this is not called: large ones for few workers. No
    /// result depends on it.
    #[must_use]
    pub fn for_workers(self, workers: usize) -> Linear {
        Linear { workers: workers.max(1), ..self }
    }

    /// What the layer was planned for.
    pub fn desc(&self) -> &LinearDesc {
        &self.desc
    }

    /// Elements of the packed weights.
    pub fn wei_len(&self) -> usize {
        self.oc.padded() * self.desc.in_features
    }

    /// Elements of the packed bias; zero if there is none.
    pub fn bia_len(&self) -> usize {
        if self.desc.bias { self.oc.padded() } else { 0 }
    }

    /// Packs plain weights (oc, ic), and zeroes the padding.
    ///
    /// # Panics
    ///
    /// If a slice is shorter than oc·ic or [`Self::wei_len`].
    pub fn pack_weights(&self, plain: &[f32], packed: &mut [f32]) {
        packed[..self.wei_len()].fill(0.0);
        for_each_weight(self.oc, self.desc.in_features, |from, to| packed[to] = plain[from]);
    }

    /// The inverse of [`Self::pack_weights`].
    ///
    /// # Panics
    ///
    /// As [`Self::pack_weights`].
    pub fn unpack_weights(&self, packed: &[f32], plain: &mut [f32]) {
        for_each_weight(self.oc, self.desc.in_features, |to, from| plain[to] = packed[from]);
    }

    /// Packs a plain bias (oc), and zeroes the padding. Without bias there is nothing to do.
    ///
    /// # Panics
    ///
    /// If a slice is shorter than oc or [`Self::bia_len`].
    pub fn pack_bias(&self, plain: &[f32], packed: &mut [f32]) {
        if self.desc.bias {
            let oc = self.desc.out_features;
            packed[..oc].copy_from_slice(&plain[..oc]);
            packed[oc..self.bia_len()].fill(0.0);
        }
    }

    /// The inverse of [`Self::pack_bias`].
    ///
    /// # Panics
    ///
    /// As [`Self::pack_bias`].
    pub fn unpack_bias(&self, packed: &[f32], plain: &mut [f32]) {
        if self.desc.bias {
            let oc = self.desc.out_features;
            plain[..oc].copy_from_slice(&packed[..oc]);
        }
    }
}
