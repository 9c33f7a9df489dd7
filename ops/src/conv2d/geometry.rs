//! The sizes of a convolution as the blocked kernels see it.

use super::desc::Conv2dDesc;
use super::register_tile::NV;
use super::staging::Staging;
use super::strips::{Strip, strips};
use super::taps::Taps;
use crate::Layout;

/// Pixels that a line of a 1x1 convolution should have: three of the widest register tiles.
const LINE: usize = 42;

/// A convolution whose groups consist of whole channel blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    pub(super) lanes: usize,
    /// Whether the source is plain.
    pub(super) plain: bool,
    pub(super) groups: usize,
    pub(super) group_ic: usize,
    pub(super) group_oc: usize,
    pub(super) ih: usize,
    pub(super) iw: usize,
    pub(super) oh: usize,
    pub(super) ow: usize,
    pub(super) kh: usize,
    pub(super) kw: usize,
    pub(super) sh: usize,
    pub(super) sw: usize,
    pub(super) ph: usize,
    pub(super) pw: usize,
    /// Rows of the map that are one row here.
    pub(super) joined: usize,
}

impl Geometry {
    /// The geometry of a valid descriptor, or `None` if a channel block spans several groups.
    pub(super) fn new(desc: &Conv2dDesc, lanes: usize) -> Option<Geometry> {
        let groups = desc.groups;
        let (group_ic, group_oc) = (desc.ic / groups, desc.oc / groups);
        let whole = group_ic.is_multiple_of(lanes) && group_oc.is_multiple_of(lanes);
        if groups > 1 && !whole {
            return None;
        }
        let mut geometry = Geometry {
            lanes,
            plain: desc.src_layout == Layout::Plain,
            groups,
            group_ic,
            group_oc,
            ih: desc.ih,
            iw: desc.iw,
            oh: desc.oh(),
            ow: desc.ow(),
            kh: desc.kh,
            kw: desc.kw,
            sh: desc.sh,
            sw: desc.sw,
            ph: desc.ph,
            pw: desc.pw,
            joined: 1,
        };
        let pointwise =
            [desc.kh, desc.kw, desc.sh, desc.sw] == [1; 4] && [desc.ph, desc.pw] == [0; 2];
        if pointwise {
            // Rows mean nothing to a 1x1 convolution, and long lines are cut into tiles with less waste.
            let joins = |rows: &usize| desc.ih.is_multiple_of(*rows) && rows * desc.iw >= LINE;
            let rows = (1..desc.ih).find(joins).unwrap_or(desc.ih);
            (geometry.ih, geometry.iw) = (desc.ih / rows, desc.iw * rows);
            (geometry.oh, geometry.ow) = (geometry.ih, geometry.iw);
            geometry.joined = rows;
        }
        Some(geometry)
    }

    /// Channels innermost in the source.
    pub(super) fn src_lanes(&self) -> usize {
        if self.plain { 1 } else { self.lanes }
    }

    /// Output blocks of a group.
    pub(super) fn out_blocks(&self) -> usize {
        self.group_oc.div_ceil(self.lanes)
    }

    /// The source's lines.
    pub(super) fn padded_src(&self) -> Staging {
        let lanes = self.src_lanes();
        Staging {
            lanes,
            blocks: self.groups * self.group_ic.div_ceil(lanes),
            height: self.ih,
            width: self.iw,
            top: self.ph,
            left: self.pw,
            columns: (self.ow - 1) * self.sw + self.kw,
            direct: self.ph == 0 && self.pw == 0,
        }
    }

    /// The order of the packed weights.
    pub(super) fn taps(&self) -> Taps {
        let (channels, lanes) = (self.group_ic, self.src_lanes());
        Taps { channels, lanes, rows: self.kh, columns: self.kw, together: 1 }
    }

    /// The strips of the output channels of a group in the order of the packed weights. One that a pass may take as
    /// [narrow](Geometry::narrow_strip) is by itself, in the order of any other.
    pub(super) fn strips(&self) -> Vec<Strip> {
        let mut all = self.swept_strips();
        let mut start = 0;
        for strip in &mut all {
            (strip.taps, strip.start) = (self.taps(), start);
            start += strip.len(self.lanes);
        }
        all
    }

    /// The last of the strips as a narrow one, with weights that begin at 0, if it is one.
    pub(super) fn narrow_strip(&self) -> Option<Strip> {
        let last = self.swept_strips().pop().filter(|strip| strip.taps.together > 1);
        last.map(|strip| Strip { start: 0, ..strip })
    }

    /// The strips as the forward pass sweeps them.
    pub(super) fn swept_strips(&self) -> Vec<Strip> {
        // The channels of a plain source are no neighbors.
        let may_narrow = !self.plain && self.sw == 1;
        strips(self.group_oc, self.lanes, self.taps(), NV, may_narrow, 0)
    }
}
