//! The lowering of a network into tasks: state and small steps that the passes share.

use super::fusion::Fusion;
use super::plan::{Mode, PlanOptions};
use crate::cost::Price;
use crate::layer::{Layer, LayerId, Statistics};
use crate::network::Network;
use crate::placement::{Mesh, Placement, share};
use crate::task::{InPlace, NewTask, TaskGraph, TaskGraphBuilder, TaskKind, TensorId, TensorRole};

/// Bytes of one value.
pub(super) const VALUE_BYTES: f64 = 4.0;

/// Values of one rank's metrics: loss in two parts, hits, and the request to stop.
pub(super) const METRICS: usize = 4;

/// What one layer's tasks share.
#[derive(Debug, Default, Clone)]
pub(super) struct LayerTensors {
    pub(super) activation: Option<TensorId>,
    pub(super) parameters: Option<TensorId>,
    pub(super) batch_statistics: Option<TensorId>,
    /// Of a batch normalization: what the task of the layer before writes along.
    pub(super) slice_statistics: Option<TensorId>,
    /// Terms of the gradient with respect to the layer's output, in consumer order.
    pub(super) gradient_terms: Vec<TensorId>,
    /// True where parameters lie at or before the layer, so that its output's gradient is needed.
    pub(super) needs_gradient: bool,
}

/// Walks the network once forward and once backward and emits tasks.
#[derive(Debug)]
pub(super) struct Lowering<'a> {
    pub(super) network: &'a Network,
    pub(super) options: &'a PlanOptions,
    pub(super) fusion: &'a Fusion,
    pub(super) builder: TaskGraphBuilder,
    pub(super) layers: Vec<LayerTensors>,
    /// Samples that the busiest rank has; prices are for that rank.
    pub(super) local_minibatch: f64,
}

impl<'a> Lowering<'a> {
    pub(super) fn new(network: &'a Network, options: &'a PlanOptions, fusion: &'a Fusion) -> Self {
        let mut layers = vec![LayerTensors::default(); network.layers().len()];
        for layer in network.layers() {
            let upstream = layer.inputs.iter().any(|i| layers[i.index()].needs_gradient);
            let own = layer.params.iter().any(|p| p.role.is_trainable());
            layers[layer.id.index()].needs_gradient = own || upstream;
        }
        let local_minibatch = share(options.minibatch, options.ranks, 0).len() as f64;
        let builder = TaskGraphBuilder::default();
        Self { network, options, fusion, builder, layers, local_minibatch }
    }

    pub(super) fn run(mut self, loss: LayerId) -> TaskGraph {
        self.forward();
        self.loss(loss);
        if self.trains() {
            self.backward(loss);
        }
        self.builder.finish(&self.options.platform)
    }

    pub(super) fn trains(&self) -> bool {
        matches!(self.options.mode, Mode::Train { .. })
    }

    pub(super) fn ranks(&self) -> usize {
        self.options.ranks
    }

    pub(super) fn mesh(&self, layer: LayerId) -> Mesh {
        self.options.strategy.mesh(layer, self.ranks())
    }

    /// A tensor of `layer` with the placement that its role implies.
    pub(super) fn tensor(&mut self, layer: &Layer, role: TensorRole) -> TensorId {
        let mesh = self.mesh(layer.id);
        let (placement, suffix) = match role {
            TensorRole::Activation => (Placement::activation(mesh), "activation"),
            TensorRole::ActivationGradient => (Placement::activation(mesh), "gradient"),
            TensorRole::Parameters => (Placement::parameter(mesh), "parameters"),
            TensorRole::ParameterGradient => {
                (Placement::parameter_gradient(mesh), "parameter_gradient")
            }
            TensorRole::Velocity => (Placement::parameter(mesh), "velocity"),
            TensorRole::BackwardWeights => (Placement::parameter(mesh), "backward_weights"),
            TensorRole::RunningStatistics => (Placement::parameter(mesh), "running_statistics"),
            TensorRole::SliceStatistics => (Placement::activation(mesh), "slice_statistics"),
            TensorRole::SliceGradientSums => (Placement::activation(mesh), "slice_gradient_sums"),
            TensorRole::LocalStatistics => (Placement::activation(mesh), "local_statistics"),
            TensorRole::GatheredStatistics => (Placement::parameter(mesh), "gathered_statistics"),
            TensorRole::BatchStatistics => (Placement::parameter(mesh), "batch_statistics"),
            TensorRole::LocalGradientSums => (Placement::activation(mesh), "local_gradient_sums"),
            TensorRole::GatheredGradientSums => {
                (Placement::parameter(mesh), "gathered_gradient_sums")
            }
            TensorRole::SampleLosses => (Placement::activation(mesh), "sample_losses"),
            TensorRole::LocalMetrics => (Placement::activation(mesh), "local_metrics"),
            TensorRole::GatheredMetrics => (Placement::parameter(mesh), "gathered_metrics"),
        };
        self.builder.tensor(layer.id, role, format!("{}.{suffix}", layer.name), placement)
    }

    /// The activation that holds a layer's output.
    pub(super) fn activation(&self, layer: LayerId) -> TensorId {
        self.layers[layer.index()].activation.expect("layers are lowered in topological order")
    }

    /// Bytes of a layer's output for this rank's samples.
    pub(super) fn activation_bytes(&self, layer: LayerId) -> f64 {
        self.network.layer(layer).shape.elements() as f64 * self.local_minibatch * VALUE_BYTES
    }

    /// Bytes of all inputs of a layer.
    pub(super) fn input_bytes(&self, layer: &Layer) -> f64 {
        layer.inputs.iter().map(|&i| self.activation_bytes(i)).sum()
    }

    /// Bytes of a layer's trainable parameters.
    pub(super) fn parameter_bytes(layer: &Layer) -> f64 {
        let trainable = layer.params.iter().filter(|p| p.role.is_trainable());
        trainable.map(|p| p.shape.iter().product::<usize>() as f64).sum::<f64>() * VALUE_BYTES
    }

    pub(super) fn emit(&mut self, layer: &Layer, kind: TaskKind, operands: Operands, price: Price) {
        let Operands { reads, writes, in_place } = operands;
        self.builder.task(NewTask {
            kind,
            layer: layer.id,
            name: self.task_name(layer, kind),
            reads,
            writes,
            in_place,
            price,
        });
    }

    /// Layer and pass, `conv1.forward`; with the activation layer whose work the task also does, `conv1+relu1.forward`.
    fn task_name(&self, layer: &Layer, kind: TaskKind) -> String {
        let along = match kind {
            TaskKind::Forward => {
                self.fusion.dst_activation(layer.id).or(self.statistics_along(layer))
            }
            TaskKind::BackwardData => self.src_activation(layer),
            _ => None,
        };
        let along =
            along.map_or_else(String::new, |id| format!("+{}", self.network.layer(id).name));
        format!("{}{along}.{}", layer.name, kind.pass())
    }

    /// The layer whose output a layer's forward task writes: its own, or that of the activation that it computes along.
    pub(super) fn written(&self, layer: &Layer) -> &'a Layer {
        self.network.layer(self.fusion.dst_activation(layer.id).unwrap_or(layer.id))
    }

    /// The batch normalization whose statistics a layer's forward task computes of its output.
    pub(super) fn statistics_along(&self, layer: &Layer) -> Option<LayerId> {
        self.fusion.statistics(layer.id).filter(|_| self.trains())
    }

    /// True where the batch statistics of a normalization are gathered from several ranks.
    pub(super) fn gathers(&self, statistics: Statistics) -> bool {
        statistics == Statistics::Minibatch && self.ranks() > 1
    }

    /// The activation layer by whose slope a layer's data gradient multiplies.
    pub(super) fn src_activation(&self, layer: &Layer) -> Option<LayerId> {
        self.fusion.src_activation(self.network, layer.id)
    }

    /// Emits the exchange that gives every rank the small per-rank tensor of all ranks; with one rank, nothing:
    /// the local tensor is the gathered one.
    pub(super) fn gather(
        &mut self,
        layer: &Layer,
        local: TensorId,
        role: TensorRole,
        elements: usize,
    ) -> TensorId {
        let others = self.ranks() as f64 - 1.0;
        if self.ranks() == 1 {
            return local;
        }
        let gathered = self.tensor(layer, role);
        let price = Price::exchange(elements as f64 * VALUE_BYTES * others, others);
        self.emit(layer, TaskKind::Redistribute, Operands::new([local], [gathered]), price);
        gathered
    }
}

/// The tensors of a task.
#[derive(Debug)]
pub(super) struct Operands {
    reads: Vec<TensorId>,
    writes: Vec<TensorId>,
    in_place: Option<InPlace>,
}

impl Operands {
    pub(super) fn new(
        reads: impl IntoIterator<Item = TensorId>,
        writes: impl IntoIterator<Item = TensorId>,
    ) -> Self {
        Self {
            reads: reads.into_iter().collect(),
            writes: writes.into_iter().collect(),
            in_place: None,
        }
    }

    /// The first result may take the place of the first operand.
    pub(super) fn in_place(mut self) -> Self {
        self.in_place = Some(InPlace { source: self.reads[0], result: self.writes[0] });
        self
    }
}
