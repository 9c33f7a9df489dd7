//! A convolution bound to an instruction set: what one block of each pass does.

use super::backward_data::{BackwardDataPlan, Conv2dBackwardData};
use super::backward_weights::{BackwardWeightsPlan, Conv2dBackwardWeights};
use super::desc::Conv2dDesc;
use super::forward::{Conv2dForward, ForwardPlan};
use super::geometry::Geometry;
use super::grouped::GroupedPlan;
use super::weights::PackedWeights;
use super::winograd::{Turn, Winograd, WinogradTile};
use crate::blocking::Caches;
use crate::extent::expect_len;
use crate::{Isa, Layout, SampleSlices, ShapeError, TensorLayout, TensorRegion, Tiles};

/// A convolution layer: forward, backward data and backward weights.
///
/// ```text
/// dst[n,oc,oh,ow] = bia[oc] + sum_{ic,kh,kw} src[n,ic,oh*sh+kh-ph,ow*sw+kw-pw] * wei[oc,ic,kh,kw]
/// ```
///
/// # Shapes
///
/// `src` and `diff_src` (mb, ic, ih, iw), `dst` and `diff_dst` (mb, oc, oh, ow), both blocked by [`Isa::lanes`]; a plain
/// `src` where the descriptor says so. Weights and biases are packed by [`Conv2d::pack_weights`] and [`Conv2d::pack_bias`],
/// and their gradients have the same order.
///
/// # Cost
///
/// 2 mb oc oh ow (ic / groups) kh kw floating-point operations a pass.
///
/// # Examples
///
/// ```
/// use lockstep_ops::{Conv2d, Conv2dDesc, Conv2dForward, Isa, Layout, Tiles};
///
/// let isa = Isa::detect();
/// let conv = Conv2d::new(
///     Conv2dDesc {
///         ic: 1, oc: 1, ih: 1, iw: 3, kh: 1, kw: 2, sh: 1, sw: 1, ph: 0, pw: 0,
///         groups: 1, bias: true, src_layout: Layout::Plain, src_activation: None, dst_activation: None,
///     },
///     isa,
/// )?;
/// let (mut wei, mut bia) = (vec![0.0; conv.wei_len()], vec![0.0; conv.bia_len()]);
/// conv.pack_weights(&[10.0, 1.0], &mut wei);
/// conv.pack_bias(&[0.5], &mut bia);
/// let mut dst = vec![0.0; conv.dst_layout().len(1)];
/// let mut scratch = vec![0.0; conv.forward_scratch_len()];
/// for block in 0..conv.forward_blocks(1) {
///     conv.forward(block, Conv2dForward {
///         mb: 1,
///         src: &[1.0, 2.0, 3.0],
///         wei: &wei,
///         bia: Some(&bia),
///         dst: Tiles::from(&mut dst[..]),
///         scratch: &mut scratch,
///     });
/// }
/// assert_eq!((dst[0], dst[isa.lanes()]), (12.5, 23.5));
/// # Ok::<(), lockstep_ops::ShapeError>(())
/// ```
///
/// # Source
///
/// PyTorch's `conv2d`. Direct convolution over channel blocks: Das et al. 2016, section 2; register blocking in two
/// dimensions instead of the paper's one.
#[derive(Debug, Clone)]
pub struct Conv2d {
    desc: Conv2dDesc,
    src: TensorLayout,
    dst: TensorLayout,
    method: Method,
}

#[derive(Debug, Clone)]
enum Method {
    Blocked(Box<Blocked>),
    Grouped(Box<GroupedPlan>),
    Winograd(Box<Winograd>),
}

#[derive(Debug, Clone)]
struct Blocked {
    weights: PackedWeights,
    forward: ForwardPlan,
    /// Absent for a plain source, which is a network's input and needs no gradient.
    backward_data: Option<BackwardDataPlan>,
    backward_weights: BackwardWeightsPlan,
}

const NO_GRADIENT: &str = "conv2d: a plain source has no gradient";

impl Conv2d {
    /// Plans the layer.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if the descriptor is [invalid](Conv2dDesc::validate).
    pub fn new(desc: Conv2dDesc, isa: Isa) -> Result<Conv2d, ShapeError> {
        Conv2d::for_caches(desc, isa, Caches::default())
    }

    /// Plans the layer for a core with other caches than the [default](Caches::default): blocks are cut to fit them.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if the descriptor is [invalid](Conv2dDesc::validate).
    pub fn for_caches(desc: Conv2dDesc, isa: Isa, caches: Caches) -> Result<Conv2d, ShapeError> {
        let lanes = isa.lanes();
        desc.validate(lanes)?;
        let method = match Geometry::new(&desc, lanes) {
            None => Method::Grouped(Box::new(GroupedPlan::new(&desc, isa))),
            Some(geometry) => Method::Blocked(Box::new(Blocked {
                weights: PackedWeights::new(&geometry),
                forward: ForwardPlan::new(&geometry, desc.dst_activation, isa, caches),
                backward_data: (!geometry.plain)
                    .then(|| BackwardDataPlan::new(&geometry, desc.src_activation, isa, caches)),
                backward_weights: BackwardWeightsPlan::new(&geometry, isa),
            })),
        };
        Ok(Conv2d::with_method(desc, lanes, method))
    }

    /// Cuts the backward weights pass into blocks that so many workers share, 4 if this is not called: a block reads all samples,
    /// so the larger it is, the less is read again. No result depends on it.
    #[must_use]
    pub fn for_workers(mut self, workers: usize) -> Conv2d {
        if let Method::Blocked(blocked) = &mut self.method {
            blocked.backward_weights.cut_for(workers.max(1));
        }
        self
    }

    /// Plans a 3x3 layer of stride 1 by Winograd's minimal filtering, which takes fewer multiplications and rounds otherwise
    /// than the direct method. The forward pass, too, reads weights that are [prepared](Conv2d::pack_forward).
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if the descriptor is [invalid](Conv2dDesc::validate), or [`ShapeError::NoWinograd`] if the layer has
    /// another kernel or stride, groups, or a plain source.
    pub fn winograd(
        desc: Conv2dDesc,
        tile: WinogradTile,
        isa: Isa,
        caches: Caches,
    ) -> Result<Conv2d, ShapeError> {
        desc.validate(isa.lanes())?;
        let Conv2dDesc { kh, kw, sh, sw, groups, .. } = desc;
        let plan = Winograd::new(&desc, tile, isa, caches);
        let plan = plan.ok_or(ShapeError::NoWinograd { kh, kw, sh, sw, groups })?;
        Ok(Conv2d::with_method(desc, isa.lanes(), Method::Winograd(Box::new(plan))))
    }

    fn with_method(desc: Conv2dDesc, lanes: usize, method: Method) -> Conv2d {
        let src = TensorLayout { maps: desc.src_maps(), layout: desc.src_layout };
        let dst = TensorLayout { maps: desc.dst_maps(), layout: Layout::Blocked(lanes) };
        Conv2d { desc, src, dst, method }
    }

    /// What the layer was planned for.
    pub fn desc(&self) -> &Conv2dDesc {
        &self.desc
    }

    /// How `src` and `diff_src` lie in memory.
    pub fn src_layout(&self) -> TensorLayout {
        self.src
    }

    /// How `dst` and `diff_dst` lie in memory.
    pub fn dst_layout(&self) -> TensorLayout {
        self.dst
    }

    /// Elements of the packed weights.
    pub fn wei_len(&self) -> usize {
        match &self.method {
            Method::Blocked(blocked) => blocked.weights.len(),
            Method::Grouped(plan) => plan.wei_len(&plan.forward),
            Method::Winograd(plan) => plan.weights.len(),
        }
    }

    /// Elements of the packed bias: the output channels, filled to whole vectors.
    pub fn bia_len(&self) -> usize {
        self.dst.channel_blocks() * self.lanes()
    }

    fn lanes(&self) -> usize {
        match self.dst.layout {
            Layout::Plain => 1,
            Layout::Blocked(lanes) => lanes,
        }
    }

    /// Packs weights from plain (oc, ic / groups, kh, kw) order; padding becomes zero.
    ///
    /// # Panics
    ///
    /// If a length is not [`Conv2dDesc::plain_wei_len`] or [`Conv2d::wei_len`].
    pub fn pack_weights(&self, plain: &[f32], packed: &mut [f32]) {
        assert_eq!(plain.len(), self.desc.plain_wei_len(), "conv2d: plain weights");
        assert_eq!(packed.len(), self.wei_len(), "conv2d: packed weights");
        packed.fill(0.0);
        self.each_weight(|from, to| packed[to] = plain[from]);
    }

    /// Unpacks weights, or their gradient, to plain (oc, ic / groups, kh, kw) order.
    ///
    /// # Panics
    ///
    /// If a length is not [`Conv2d::wei_len`] or [`Conv2dDesc::plain_wei_len`].
    pub fn unpack_weights(&self, packed: &[f32], plain: &mut [f32]) {
        assert_eq!(packed.len(), self.wei_len(), "conv2d: packed weights");
        assert_eq!(plain.len(), self.desc.plain_wei_len(), "conv2d: plain weights");
        self.each_weight(|to, from| plain[to] = packed[from]);
    }

    fn each_weight(&self, visit: impl FnMut(usize, usize)) {
        match &self.method {
            Method::Blocked(blocked) => blocked.weights.each(visit),
            Method::Grouped(plan) => plan.each(visit),
            Method::Winograd(plan) => plan.weights.each(visit),
        }
    }

    /// Packs the bias of `oc` channels; padding becomes zero.
    ///
    /// # Panics
    ///
    /// If a length is not `oc` or [`Conv2d::bia_len`].
    pub fn pack_bias(&self, plain: &[f32], packed: &mut [f32]) {
        assert_eq!(plain.len(), self.desc.oc, "conv2d: plain bias");
        assert_eq!(packed.len(), self.bia_len(), "conv2d: packed bias");
        packed.fill(0.0);
        packed[..plain.len()].copy_from_slice(plain);
    }

    /// Unpacks the bias, or its gradient.
    ///
    /// # Panics
    ///
    /// If a length is not [`Conv2d::bia_len`] or `oc`.
    pub fn unpack_bias(&self, packed: &[f32], plain: &mut [f32]) {
        assert_eq!(packed.len(), self.bia_len(), "conv2d: packed bias");
        assert_eq!(plain.len(), self.desc.oc, "conv2d: plain bias");
        plain.copy_from_slice(&packed[..plain.len()]);
    }

    /// Elements of the weights as [`Conv2d::pack_forward`] prepares them; 0 where the forward pass reads the packed weights.
    pub fn forward_wei_len(&self) -> usize {
        match &self.method {
            Method::Winograd(plan) => plan.weights_len(Turn::None),
            Method::Blocked(_) | Method::Grouped(_) => 0,
        }
    }

    /// Whether the forward pass reads weights that are prepared.
    pub fn prepares_forward(&self) -> bool {
        self.forward_wei_len() > 0
    }

    /// Blocks of [`Conv2d::pack_forward`].
    pub fn pack_forward_blocks(&self) -> usize {
        match &self.method {
            Method::Winograd(plan) => plan.weights_blocks(Turn::None),
            Method::Blocked(_) | Method::Grouped(_) => 0,
        }
    }

    /// Prepares one block of the weights for the forward pass, once for each change of the weights.
    ///
    /// # Panics
    ///
    /// If a buffer is too short, or the forward pass reads the packed weights.
    pub fn pack_forward(&self, block: usize, wei: &[f32], dst: Tiles<'_>) {
        const OP: &str = "conv2d pack forward";
        expect_len(OP, "wei", wei.len(), self.wei_len());
        expect_len(OP, "dst", dst.len(), self.forward_wei_len());
        match &self.method {
            Method::Winograd(plan) => plan.transform_weights(Turn::None, block, wei, dst),
            Method::Blocked(_) | Method::Grouped(_) => {
                panic!("{OP}: the forward pass reads the packed weights")
            }
        }
    }

    /// Blocks of the forward pass.
    pub fn forward_blocks(&self, mb: usize) -> usize {
        match &self.method {
            Method::Blocked(blocked) => blocked.forward.blocks(mb),
            Method::Grouped(plan) => plan.forward_blocks(mb),
            Method::Winograd(plan) => plan.forward.blocks(mb),
        }
    }

    /// What a block of the forward pass writes; `None` where groups of channels do not fill vectors.
    pub fn forward_region(&self, block: usize, mb: usize) -> Option<TensorRegion> {
        match &self.method {
            Method::Blocked(blocked) => Some(blocked.forward.region(block, mb)),
            Method::Grouped(_) => None,
            Method::Winograd(plan) => Some(plan.forward.region(block, mb)),
        }
    }

    /// Slices that the [regions](Self::forward_region) of the forward pass's blocks make: the first blocks, as many as
    /// there are slices, have them in order. 0 where blocks have no regions.
    pub fn forward_slices(&self, mb: usize) -> usize {
        match &self.method {
            Method::Blocked(blocked) => blocked.forward.slices(mb),
            Method::Grouped(_) => 0,
            Method::Winograd(plan) => plan.forward.slices(mb),
        }
    }

    /// Elements of scratch that a worker needs in the forward pass.
    pub fn forward_scratch_len(&self) -> usize {
        match &self.method {
            Method::Blocked(blocked) => blocked.forward.scratch_len(),
            Method::Grouped(_) => 0,
            Method::Winograd(plan) => plan.forward.scratch_len(),
        }
    }

    /// Computes one block of the output.
    ///
    /// # Panics
    ///
    /// If a buffer is too short, or the layer has a bias and `bia` is missing.
    pub fn forward(&self, block: usize, io: Conv2dForward<'_>) {
        const OP: &str = "conv2d forward";
        expect_len(OP, "src", io.src.len(), self.src.len(io.mb));
        let wei_len = if self.prepares_forward() { self.forward_wei_len() } else { self.wei_len() };
        expect_len(OP, "wei", io.wei.len(), wei_len);
        expect_len(OP, "bia", io.bia.map_or(0, <[f32]>::len), self.needed_bias());
        expect_len(OP, "dst", io.dst.len(), self.dst.len(io.mb));
        expect_len(OP, "scratch", io.scratch.len(), self.forward_scratch_len());
        match &self.method {
            Method::Blocked(blocked) => blocked.forward.run(block, io),
            Method::Grouped(plan) => plan.run_forward(block, io),
            Method::Winograd(plan) => plan.run_forward(block, io),
        }
    }

    fn needed_bias(&self) -> usize {
        if self.desc.bias { self.bia_len() } else { 0 }
    }

    /// Elements of the weights as the backward data pass reads them; 0 for a plain source.
    pub fn backward_wei_len(&self) -> usize {
        match &self.method {
            Method::Blocked(blocked) => {
                blocked.backward_data.as_ref().map_or(0, BackwardDataPlan::wei_len)
            }
            Method::Grouped(plan) => plan.wei_len(&plan.backward),
            Method::Winograd(plan) => plan.weights_len(Turn::Around),
        }
    }

    /// Blocks of [`Conv2d::pack_backward`].
    pub fn pack_backward_blocks(&self) -> usize {
        match &self.method {
            Method::Blocked(blocked) => {
                blocked.backward_data.as_ref().map_or(0, BackwardDataPlan::pack_blocks)
            }
            Method::Grouped(plan) => plan.backward.blocks(),
            Method::Winograd(plan) => plan.weights_blocks(Turn::Around),
        }
    }

    /// Turns around one block of the weights for the backward data pass, once for each change of the weights.
    ///
    /// # Panics
    ///
    /// If a buffer is too short, or the source is plain.
    pub fn pack_backward(&self, block: usize, wei: &[f32], dst: Tiles<'_>) {
        const OP: &str = "conv2d pack backward";
        expect_len(OP, "wei", wei.len(), self.wei_len());
        expect_len(OP, "dst", dst.len(), self.backward_wei_len());
        match &self.method {
            Method::Blocked(blocked) => {
                let phases = blocked.backward_data.as_ref().expect(NO_GRADIENT).phases();
                blocked.weights.pack_backward(phases, block, wei, dst);
            }
            Method::Grouped(plan) => plan.pack_backward(block, wei, dst),
            Method::Winograd(plan) => plan.transform_weights(Turn::Around, block, wei, dst),
        }
    }

    /// Blocks of the backward data pass; 0 for a plain source.
    pub fn backward_data_blocks(&self, mb: usize) -> usize {
        match &self.method {
            Method::Blocked(blocked) => {
                blocked.backward_data.as_ref().map_or(0, |plan| plan.blocks(mb))
            }
            Method::Grouped(plan) => plan.backward_data_blocks(mb),
            Method::Winograd(plan) => plan.backward_data.blocks(mb),
        }
    }

    /// Elements of scratch that a worker needs in the backward data pass.
    pub fn backward_data_scratch_len(&self) -> usize {
        match &self.method {
            Method::Blocked(blocked) => {
                blocked.backward_data.as_ref().map_or(0, BackwardDataPlan::scratch_len)
            }
            Method::Grouped(_) => 0,
            Method::Winograd(plan) => plan.backward_data.scratch_len(),
        }
    }

    /// Computes one block of the gradient of the source.
    ///
    /// # Panics
    ///
    /// If a buffer is too short or missing, or the source is plain.
    pub fn backward_data(&self, block: usize, io: Conv2dBackwardData<'_>) {
        const OP: &str = "conv2d backward data";
        expect_len(OP, "diff_dst", io.diff_dst.len(), self.dst.len(io.mb));
        expect_len(OP, "wei", io.wei.len(), self.backward_wei_len());
        expect_len(OP, "diff_src", io.diff_src.len(), self.src.len(io.mb));
        let src_len = if self.desc.src_activation.is_some() { self.src.len(io.mb) } else { 0 };
        expect_len(OP, "src", io.src.map_or(0, <[f32]>::len), src_len);
        expect_len(OP, "scratch", io.scratch.len(), self.backward_data_scratch_len());
        match &self.method {
            Method::Blocked(blocked) => {
                blocked.backward_data.as_ref().expect(NO_GRADIENT).run(block, io);
            }
            Method::Grouped(plan) => plan.run_backward_data(block, io),
            Method::Winograd(plan) => plan.run_backward_data(block, io),
        }
    }

    /// Blocks of the backward weights pass, whatever the samples: for none they write zeros.
    pub fn backward_weights_blocks(&self, _mb: usize) -> usize {
        match &self.method {
            Method::Blocked(blocked) => blocked.backward_weights.blocks(),
            Method::Grouped(plan) => plan.backward_weights_blocks(),
            Method::Winograd(plan) => plan.backward_weights.blocks(),
        }
    }

    /// Elements of scratch that a worker needs in the backward weights pass.
    pub fn backward_weights_scratch_len(&self) -> usize {
        self.sliced_backward_weights_scratch_len(1)
    }

    /// Elements of scratch that a worker needs where the samples are cut into so many slices.
    pub fn sliced_backward_weights_scratch_len(&self, slices: usize) -> usize {
        match &self.method {
            Method::Blocked(blocked) => blocked.backward_weights.scratch_len(slices),
            Method::Grouped(plan) => plan.backward_weights_scratch_len(slices),
            Method::Winograd(plan) => plan.backward_weights.scratch_len(slices),
        }
    }

    /// Computes one block of the gradients of the weights and the bias: it writes, and does not add to what was there.
    ///
    /// # Panics
    ///
    /// If a buffer is too short, or the layer has a bias and `diff_bia` is missing.
    pub fn backward_weights(&self, block: usize, io: Conv2dBackwardWeights<'_>) {
        self.sliced_backward_weights(block, &SampleSlices::whole(io.mb), io);
    }

    /// [`Conv2d::backward_weights`] whose sums over slices of the samples are added in a balanced tree. Scratch:
    /// [`Conv2d::sliced_backward_weights_scratch_len`].
    ///
    /// # Panics
    ///
    /// As [`Conv2d::backward_weights`], and if the slices have not `mb` samples.
    pub fn sliced_backward_weights(
        &self,
        block: usize,
        slices: &SampleSlices,
        io: Conv2dBackwardWeights<'_>,
    ) {
        const OP: &str = "conv2d backward weights";
        assert_eq!(slices.mb(), io.mb, "{OP}: samples of all slices");
        expect_len(OP, "src", io.src.len(), self.src.len(io.mb));
        expect_len(OP, "diff_dst", io.diff_dst.len(), self.dst.len(io.mb));
        io.diff_wei.expect_len(OP, "diff_wei", self.wei_len());
        match &io.diff_bia {
            Some(diff_bia) => diff_bia.expect_len(OP, "diff_bia", self.needed_bias()),
            None => expect_len(OP, "diff_bia", 0, self.needed_bias()),
        }
        let scratch_len = self.sliced_backward_weights_scratch_len(slices.count());
        expect_len(OP, "scratch", io.scratch.len(), scratch_len);
        match &self.method {
            Method::Blocked(blocked) => blocked.backward_weights.run(block, slices, io),
            Method::Grouped(plan) => plan.run_backward_weights(block, slices, io),
            Method::Winograd(plan) => plan.run_backward_weights(block, slices, io),
        }
    }
}
