//! Layers bound to kernels: the translation of the graph's words into those of `ops`.

use std::ops::Range;

use lockstep_graph::{
    Extent, Fusion, Layer, LayerId, LayerKind, Meshes, Network, Placement, Window, WinogradLayers,
    WinogradTile,
};
use lockstep_ops::blocking::{CacheBudget, Caches, ConvShape, search};
use lockstep_ops::{
    Activation, ActivationDesc, ActivationKind, Add, AddDesc, AddFinish, BatchNorm, BatchNormDesc,
    Bias, BiasDesc, Concat, ConcatDesc, Conv2d, Conv2dDesc, Dropout, DropoutDesc, Flatten,
    FlattenDesc, Isa, Layout, Linear, LinearDesc, Lrn, LrnDesc, Maps, Pool, PoolDesc, PoolKind,
    ShapeError, SoftmaxCrossEntropy, SoftmaxCrossEntropyDesc, SplitSoftmaxCrossEntropy,
    SplitSoftmaxCrossEntropyDesc, TensorLayout,
};

use crate::caches::detect_caches;
use crate::error::ScheduleError;
use crate::program::store::ALIGN;

/// What computes a layer.
#[derive(Debug)]
pub(crate) enum Op {
    /// Nothing but the copy of samples into the tensor's layout.
    Input,
    Conv2d(Box<Conv2d>),
    Linear(Linear),
    Bias(Bias),
    Activation(Activation),
    /// Maximum, average and global average pooling.
    Pool(Box<Pool>),
    Lrn(Lrn),
    BatchNorm(BatchNorm),
    Dropout(Dropout),
    Add(Add),
    Concat(Concat),
    Flatten(Flatten),
    Loss(SoftmaxCrossEntropy),
    /// The loss of classes that are split over the members of a group.
    SplitLoss(SplitSoftmaxCrossEntropy),
}

/// A layer with its kernels and the layout of what this rank computes of its output.
#[derive(Debug)]
pub(crate) struct LayerKernel {
    pub(crate) op: Op,
    pub(crate) layout: TensorLayout,
    /// Output features that this rank computes.
    pub(crate) features: Range<usize>,
    /// The addition of gradient terms at this layer's fan-out, where there is one.
    pub(crate) fan_out: Option<Add>,
    /// Of a batch normalization: the convolution that computes the statistics of its input.
    pub(crate) statistics_from: Option<LayerId>,
    isa: Isa,
}

/// All layers' kernels.
#[derive(Debug)]
pub(crate) struct Kernels {
    layers: Vec<LayerKernel>,
}

impl Kernels {
    /// The kernels of what one rank computes.
    pub(crate) fn new(
        network: &Network,
        meshes: &Meshes,
        rank: usize,
        (fusion, winograd): (&Fusion, &WinogradLayers),
        isa: Isa,
    ) -> Result<Self, ScheduleError> {
        let caches = detect_caches();
        let mut layers = Vec::new();
        for layer in network.layers() {
            let along = Along::new(network, fusion, layer);
            let part = Part { network, meshes, rank, winograd };
            let kernel = bind(part, layer, along, isa, caches)
                .map_err(|source| ScheduleError::Kernel { layer: layer.name.clone(), source })?;
            kernel.log_blocking(&layer.name, caches);
            layers.push(kernel);
        }
        Ok(Self { layers })
    }

    /// The same, with blocks for so many workers.
    pub(crate) fn for_workers(mut self, workers: usize) -> Self {
        for layer in &mut self.layers {
            match &mut layer.op {
                Op::Linear(linear) => *linear = linear.clone().for_workers(workers),
                Op::Conv2d(conv) => **conv = (**conv).clone().for_workers(workers),
                _ => {}
            }
        }
        self
    }

    pub(crate) fn get(&self, layer: LayerId) -> &LayerKernel {
        &self.layers[layer.index()]
    }
}

/// The activations whose work a layer's kernels do along with their own.
#[derive(Debug, Clone, Copy)]
struct Along {
    /// The function that the layer's input is the value of, and by whose slope the data gradient is multiplied.
    src: Option<ActivationKind>,
    /// The function that the forward pass applies to the layer's output.
    dst: Option<ActivationKind>,
    /// The layer's own function, where the sum of the gradient terms at its output is multiplied by its slope.
    fan_out: Option<ActivationKind>,
    /// The layer before, where it computes the statistics that this one needs.
    statistics_from: Option<LayerId>,
}

impl Along {
    fn new(network: &Network, fusion: &Fusion, layer: &Layer) -> Self {
        let kind = |id: LayerId| activation_kind(&network.layer(id).kind);
        let source = layer.inputs.first().copied();
        Self {
            statistics_from: source.filter(|&id| fusion.statistics(id) == Some(layer.id)),
            src: fusion.src_activation(network, layer.id).and_then(kind),
            dst: fusion.dst_activation(layer.id).and_then(kind),
            fan_out: Some(layer.id).filter(|&id| fusion.is_folded_into_sum(id)).and_then(kind),
        }
    }
}

fn activation_kind(kind: &LayerKind) -> Option<ActivationKind> {
    match kind {
        LayerKind::Relu => Some(ActivationKind::Relu),
        LayerKind::Sigmoid => Some(ActivationKind::Sigmoid),
        LayerKind::Tanh => Some(ActivationKind::Tanh),
        _ => None,
    }
}

fn maps(layer: &Layer) -> Maps {
    let (c, h, w) = layer.shape.maps();
    Maps { c, h, w }
}

/// What of a network one rank computes.
#[derive(Debug, Clone, Copy)]
struct Part<'a> {
    network: &'a Network,
    meshes: &'a Meshes,
    rank: usize,
    winograd: &'a WinogradLayers,
}

impl Part<'_> {
    /// What this rank holds of a layer's output in a placement.
    fn held(&self, layer: LayerId, placement: &Placement) -> (Range<usize>, Maps) {
        let maps = maps(self.network.layer(layer));
        let extent = Extent { samples: self.meshes.minibatch(), features: maps.c };
        let features = placement.region(self.rank, extent).features;
        let c = features.len();
        (features, Maps { c, ..maps })
    }

    fn output(&self, layer: LayerId) -> (Range<usize>, Maps) {
        self.held(layer, &self.meshes.output(layer))
    }

    fn operand(&self, layer: &Layer, input: LayerId) -> (Range<usize>, Maps) {
        self.held(input, &self.meshes.operand(layer, input))
    }
}

/// A network's input stays in plain order where only convolutions read it and its channels would not fill a vector. The order
/// of packed weights depends on that, so no tied convolution may read anything else.
fn stays_plain(network: &Network, layer: &Layer, isa: Isa) -> bool {
    let reads_input = |id: LayerId| network.layer(id).inputs == [layer.id];
    matches!(layer.kind, LayerKind::Input)
        && maps(layer).c < isa.lanes()
        && network.consumers(layer.id).iter().all(|&id| {
            let owner = network.owner(id);
            matches!(&network.layer(id).kind, LayerKind::Conv2d(conv) if conv.groups == 1)
                && reads_input(owner)
                && network.tied(owner).all(|tied| reads_input(tied.id))
        })
}

/// The order of the elements of a layer's output.
pub(super) fn layout(network: &Network, layer: &Layer, isa: Isa) -> Layout {
    if stays_plain(network, layer, isa) { Layout::Plain } else { Layout::Blocked(isa.lanes()) }
}

fn bind(
    part: Part<'_>,
    layer: &Layer,
    along: Along,
    isa: Isa,
    caches: Caches,
) -> Result<LayerKernel, ShapeError> {
    let network = part.network;
    let source = layer.inputs.first().map(|&id| network.layer(id));
    let (features, dst) = part.output(layer.id);
    // Every layer but the input has one.
    let (first, src) = match layer.inputs.first() {
        Some(&input) => part.operand(layer, input),
        None => (features.clone(), dst),
    };
    let Along { src: src_activation, dst: dst_activation, fan_out, statistics_from } = along;
    let activation = |kind| Activation::new(ActivationDesc { kind, maps: src }, isa);
    let op = match &layer.kind {
        LayerKind::Input => Op::Input,
        LayerKind::Conv2d(conv) => {
            let Window { kernel, stride, pad } = conv.window;
            let source = source.expect("a convolution has an input");
            let desc = Conv2dDesc {
                ic: src.c,
                oc: dst.c,
                ih: src.h,
                iw: src.w,
                kh: kernel.0,
                kw: kernel.1,
                sh: stride.0,
                sw: stride.1,
                ph: pad.0,
                pw: pad.1,
                groups: conv.groups,
                bias: conv.bias,
                src_layout: layout(network, source, isa),
                src_activation,
                dst_activation,
            };
            Op::Conv2d(Box::new(match part.winograd.tile(layer.id) {
                Some(tile) => Conv2d::winograd(desc, winograd_tile(tile), isa, caches)?,
                None => Conv2d::for_caches(desc, isa, caches)?,
            }))
        }
        LayerKind::Linear(linear) => Op::Linear(Linear::new(
            LinearDesc {
                in_features: src.c,
                out_features: dst.c,
                bias: linear.bias,
                src_activation,
                dst_activation,
            },
            isa,
        )?),
        LayerKind::Bias => Op::Bias(Bias::new(BiasDesc { maps: src, dst_activation }, isa)?),
        LayerKind::Relu => Op::Activation(activation(ActivationKind::Relu)?),
        LayerKind::Sigmoid => Op::Activation(activation(ActivationKind::Sigmoid)?),
        LayerKind::Tanh => Op::Activation(activation(ActivationKind::Tanh)?),
        LayerKind::MaxPool(pool) => {
            let desc = pool_desc(PoolKind::Max, src, pool.window, pool.ceil);
            Op::Pool(Box::new(Pool::new(PoolDesc { src_activation, ..desc }, isa)?))
        }
        LayerKind::AvgPool(average) => {
            let kind = PoolKind::Average { include_pad: average.include_pad };
            let desc = pool_desc(kind, src, average.pool.window, average.pool.ceil);
            Op::Pool(Box::new(Pool::new(PoolDesc { src_activation, ..desc }, isa)?))
        }
        LayerKind::GlobalAvgPool => {
            let desc = PoolDesc { src_activation, ..PoolDesc::global_average(src) };
            Op::Pool(Box::new(Pool::new(desc, isa)?))
        }
        LayerKind::Lrn(lrn) => Op::Lrn(Lrn::new(
            LrnDesc {
                maps: src,
                size: lrn.size,
                alpha: lrn.alpha as f32,
                beta: lrn.beta as f32,
                k: lrn.k as f32,
                src_activation,
            },
            isa,
        )?),
        LayerKind::BatchNorm(norm) => Op::BatchNorm(BatchNorm::new(
            BatchNormDesc {
                maps: src,
                eps: norm.eps as f32,
                momentum: norm.momentum as f32,
                src_activation,
                dst_activation,
            },
            isa,
        )?),
        LayerKind::Dropout(dropout) => Op::Dropout(Dropout::new(
            DropoutDesc {
                maps: src,
                first_channel: first.start,
                p: dropout.p as f32,
                follows_relu: src_activation.is_some(),
            },
            isa,
        )?),
        LayerKind::Add => {
            let finish = dst_activation.map_or(AddFinish::Sum, AddFinish::Activate);
            Op::Add(Add::new(AddDesc { maps: src, terms: layer.inputs.len(), finish }, isa)?)
        }
        LayerKind::Concat => {
            let channels = layer.inputs.iter().map(|&id| maps(network.layer(id)).c).collect();
            Op::Concat(Concat::new(ConcatDesc { channels, h: src.h, w: src.w }, isa)?)
        }
        LayerKind::Flatten => {
            Op::Flatten(Flatten::new(FlattenDesc { maps: src, src_activation }, isa)?)
        }
        LayerKind::SoftmaxCrossEntropy(loss) if src.c < maps(layer_of(source)).c => {
            Op::SplitLoss(SplitSoftmaxCrossEntropy::new(
                SplitSoftmaxCrossEntropyDesc {
                    classes_here: src.c,
                    first_class: first.start,
                    classes: maps(layer_of(source)).c,
                    label_smoothing: loss.label_smoothing as f32,
                },
                isa,
            )?)
        }
        LayerKind::SoftmaxCrossEntropy(loss) => Op::Loss(SoftmaxCrossEntropy::new(
            SoftmaxCrossEntropyDesc {
                classes: src.c,
                label_smoothing: loss.label_smoothing as f32,
            },
            isa,
        )?),
    };
    let consumers = network.consumers(layer.id).len();
    let fan_out = (consumers > 1)
        .then(|| {
            let finish = fan_out.map_or(AddFinish::Sum, AddFinish::Differentiate);
            Add::new(AddDesc { maps: dst, terms: consumers, finish }, isa)
        })
        .transpose()?;
    let layout = TensorLayout { maps: dst, layout: layout(network, layer, isa) };
    Ok(LayerKernel { op, layout, features, fan_out, statistics_from, isa })
}

/// A tile in the words of `ops`.
#[must_use]
pub fn winograd_tile(tile: WinogradTile) -> lockstep_ops::WinogradTile {
    match tile {
        WinogradTile::Two => lockstep_ops::WinogradTile::Two,
        WinogradTile::Four => lockstep_ops::WinogradTile::Four,
    }
}

fn layer_of(source: Option<&Layer>) -> &Layer {
    source.expect("a loss has an input")
}

fn pool_desc(kind: PoolKind, src: Maps, window: Window, ceil: bool) -> PoolDesc {
    let Window { kernel, stride, pad } = window;
    PoolDesc {
        kind,
        c: src.c,
        ih: src.h,
        iw: src.w,
        kh: kernel.0,
        kw: kernel.1,
        sh: stride.0,
        sw: stride.1,
        ph: pad.0,
        pw: pad.1,
        ceil,
        src_activation: None,
    }
}

/// Parts of a layer's flat parameters: what is multiplied, then what is added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Weights, or scales; empty for a bias layer.
    pub(crate) wei: Range<usize>,
    /// Biases, or shifts; empty where there are none.
    pub(crate) bia: Range<usize>,
    /// Whether weights are what is in `wei`; scales are not.
    pub(crate) has_weights: bool,
}

impl LayerKernel {
    /// Where the parts lie in the flat tensor; each begins on a cache line.
    pub(crate) fn parts(&self) -> Parts {
        let (wei, bia, has_weights) = match &self.op {
            Op::Conv2d(conv) if !conv.desc().bias => (conv.wei_len(), 0, true),
            Op::Conv2d(conv) => (conv.wei_len(), conv.bia_len(), true),
            Op::Linear(linear) if !linear.desc().bias => (linear.wei_len(), 0, true),
            Op::Linear(linear) => (linear.wei_len(), linear.bia_len(), true),
            Op::Bias(bias) => (0, bias.bia_len(), false),
            Op::BatchNorm(norm) => (norm.channels(), norm.channels(), false),
            _ => (0, 0, false),
        };
        let start = wei.next_multiple_of(ALIGN);
        Parts { wei: 0..wei, bia: start..start + bia, has_weights }
    }

    /// Elements of the flat parameters.
    pub(crate) fn parameters_len(&self) -> usize {
        self.parts().bia.end
    }

    /// Elements of the running statistics.
    pub(crate) fn running_len(&self) -> usize {
        match &self.op {
            Op::BatchNorm(norm) => norm.stats_len(),
            _ => 0,
        }
    }

    /// Elements of the weights that the forward pass reads, where those are not the parameters.
    pub(crate) fn forward_weights_len(&self) -> usize {
        match &self.op {
            Op::Conv2d(conv) => conv.forward_wei_len(),
            _ => 0,
        }
    }

    /// Elements of the weights that the data gradient reads.
    pub(crate) fn backward_weights_len(&self) -> usize {
        match &self.op {
            Op::Conv2d(conv) => conv.backward_wei_len(),
            _ => 0,
        }
    }

    /// Elements of one rank's batch-normalization statistics.
    pub(crate) fn statistics_len(&self) -> usize {
        self.running_len()
    }

    /// The part of a parameter's values, in plain order, that belongs to this rank's features: all parameters have output
    /// features outermost.
    pub(crate) fn share_of(&self, shape: &[usize]) -> Range<usize> {
        let row: usize = shape[1..].iter().product();
        self.features.start * row..self.features.end * row
    }

    /// Plain order into the layer's tensor: its flat parameters, or its running statistics.
    pub(crate) fn pack(&self, param: &str, plain: &[f32], tensor: &mut [f32]) {
        let parts = self.parts();
        match (&self.op, param) {
            (Op::Conv2d(conv), "weight") => conv.pack_weights(plain, &mut tensor[parts.wei]),
            (Op::Linear(linear), "weight") => linear.pack_weights(plain, &mut tensor[parts.wei]),
            (_, "weight") => tensor[parts.wei][..plain.len()].copy_from_slice(plain),
            (_, "bias") => tensor[parts.bia][..plain.len()].copy_from_slice(plain),
            _ => tensor[self.running_row(param)][..plain.len()].copy_from_slice(plain),
        }
    }

    /// The inverse of [`LayerKernel::pack`].
    pub(crate) fn unpack(&self, param: &str, tensor: &[f32], plain: &mut [f32]) {
        let parts = self.parts();
        let n = plain.len();
        match (&self.op, param) {
            (Op::Conv2d(conv), "weight") => conv.unpack_weights(&tensor[parts.wei], plain),
            (Op::Linear(linear), "weight") => linear.unpack_weights(&tensor[parts.wei], plain),
            (_, "weight") => plain.copy_from_slice(&tensor[parts.wei][..n]),
            (_, "bias") => plain.copy_from_slice(&tensor[parts.bia][..n]),
            _ => plain.copy_from_slice(&tensor[self.running_row(param)][..n]),
        }
    }

    /// Running means come first, then running variances.
    fn running_row(&self, param: &str) -> Range<usize> {
        let row = self.running_len() / 2;
        if param == "running_mean" { 0..row } else { row..2 * row }
    }

    /// Logs the blocking that moves the fewest bytes, for one sample, to compare what the kernels do with.
    fn log_blocking(&self, layer: &str, caches: Caches) {
        let shape = match &self.op {
            Op::Conv2d(conv) => ConvShape::of(conv.desc(), 1),
            Op::Linear(linear) => {
                ConvShape::linear(1, linear.desc().in_features, linear.desc().out_features)
            }
            _ => return,
        };
        if tracing::enabled!(tracing::Level::DEBUG) {
            let budget = CacheBudget::double_buffered(caches.l2_bytes);
            let blocking = search(&shape, budget, self.isa.lanes());
            tracing::debug!(layer, %blocking, unblocked = shape.unblocked_bytes_per_flop());
        }
    }

    /// The instruction set of the kernels.
    pub(crate) fn isa(&self) -> Isa {
        self.isa
    }
}
