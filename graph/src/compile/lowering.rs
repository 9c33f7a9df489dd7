//! The lowering of a network into tasks: state and small steps that the passes share.

use std::collections::BTreeMap;

use super::fusion::Fusion;
use super::meshes::{Meshes, is_splittable};
use super::operands::Operands;
use super::plan::{Mode, PlanOptions, REPRODUCIBLE_SLICES};
use super::updates::Pending;
use crate::cost::Price;
use crate::layer::{Layer, LayerId, Param, Statistics};
use crate::network::Network;
use crate::placement::{Extent, Mesh, Placement, redistribution};
use crate::task::{
    NewTask, SamplePart, TaskGraph, TaskGraphBuilder, TaskKind, Tensor, TensorId, TensorRole,
};

/// Bytes of one value.
pub(super) const VALUE_BYTES: f64 = 4.0;

/// Values of one rank's metrics: loss in two parts, hits, and the request to stop.
pub(super) const METRICS: usize = 4;

/// Values a sample that the members of a group exchange where classes are split.
pub(super) const LOSS_STATISTICS: usize = 6;

/// Values of an exact sum of squares.
pub(super) const SQUARES: usize = 48;

/// What one layer's tasks share.
#[derive(Debug, Default, Clone)]
pub(super) struct LayerTensors {
    /// The output, as the layer computes it.
    pub(super) activation: Option<TensorId>,
    /// Of a layer that is not tied.
    pub(super) parameters: Option<TensorId>,
    /// Of a layer that others are tied to: the gradient by those of its uses that were walked, one tensor a slice of the samples.
    pub(super) shared_gradient: Vec<TensorId>,
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
    pub(super) meshes: &'a Meshes,
    pub(super) layers: Vec<LayerTensors>,
    /// The copies of activations in other placements, by activation and by the rank-independent essence of the placement.
    copies: BTreeMap<(TensorId, CopyKey), TensorId>,
    /// The labels of the samples that this rank loads, where others need them.
    pub(super) labels: Option<TensorId>,
    /// Gradients on their way to their updates.
    pub(super) pending: Pending,
}

/// Groups, and whether every member has all features.
type CopyKey = (usize, bool);

impl<'a> Lowering<'a> {
    pub(super) fn new(
        network: &'a Network,
        options: &'a PlanOptions,
        fusion: &'a Fusion,
        meshes: &'a Meshes,
    ) -> Self {
        let mut layers = vec![LayerTensors::default(); network.layers().len()];
        for layer in network.layers() {
            let upstream = layer.inputs.iter().any(|i| layers[i.index()].needs_gradient);
            let own = network.parameters(layer.id).next().is_some();
            layers[layer.id.index()].needs_gradient = own || upstream;
        }
        let (builder, copies) = (TaskGraphBuilder::default(), BTreeMap::new());
        Self {
            network,
            options,
            fusion,
            builder,
            meshes,
            layers,
            copies,
            labels: None,
            pending: Pending::default(),
        }
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

    /// Slices of this rank's samples over which gradients and statistics are computed; more than one only in the reproducible
    /// mode.
    pub(super) fn slices(&self) -> usize {
        if self.options.reproducible { REPRODUCIBLE_SLICES / self.ranks() } else { 1 }
    }

    pub(super) fn ranks(&self) -> usize {
        self.options.ranks
    }

    pub(super) fn mesh(&self, layer: LayerId) -> Mesh {
        self.meshes.mesh(layer)
    }

    /// A tensor of `layer` with the placement that its role implies.
    pub(super) fn tensor(&mut self, layer: &Layer, role: TensorRole) -> TensorId {
        let (mesh, grain) = (self.mesh(layer.id), self.meshes.grain(layer.id));
        let activation = Placement::activation(mesh, grain);
        let parameter = Placement::parameter(mesh, grain);
        let samples = Placement::gathered(mesh);
        let (placement, suffix) = match role {
            TensorRole::Activation => (activation, "activation"),
            TensorRole::ActivationGradient => (activation, "gradient"),
            TensorRole::Parameters => (parameter, "parameters"),
            TensorRole::ParameterGradient => {
                (Placement::parameter_gradient(mesh, grain), "parameter_gradient")
            }
            TensorRole::Velocity => (parameter, "velocity"),
            TensorRole::ForwardWeights => (parameter, "forward_weights"),
            TensorRole::BackwardWeights => (parameter, "backward_weights"),
            TensorRole::RunningStatistics => (parameter, "running_statistics"),
            TensorRole::SliceStatistics => (activation, "slice_statistics"),
            TensorRole::SliceGradientSums => (activation, "slice_gradient_sums"),
            TensorRole::LocalStatistics => (activation, "local_statistics"),
            TensorRole::GatheredStatistics => (parameter, "gathered_statistics"),
            TensorRole::BatchStatistics => (parameter, "batch_statistics"),
            TensorRole::LocalGradientSums => (activation, "local_gradient_sums"),
            TensorRole::GatheredGradientSums => (parameter, "gathered_gradient_sums"),
            TensorRole::GradientSquares => (parameter, "gradient_squares"),
            TensorRole::LocalSquares => (samples, "local_squares"),
            TensorRole::GatheredSquares => (samples, "gathered_squares"),
            TensorRole::Labels => (samples, "labels"),
            TensorRole::LossStatistics => (samples, "loss_statistics"),
            TensorRole::GatheredLossStatistics => (samples, "gathered_loss_statistics"),
            TensorRole::SampleLosses => (samples, "sample_losses"),
            TensorRole::LocalMetrics => (samples, "local_metrics"),
            TensorRole::GatheredMetrics => (parameter, "gathered_metrics"),
        };
        self.placed_tensor(layer, role, suffix, placement)
    }

    fn placed_tensor(
        &mut self,
        layer: &Layer,
        role: TensorRole,
        suffix: &str,
        placement: Placement,
    ) -> TensorId {
        self.builder.tensor(layer.id, role, format!("{}.{suffix}", layer.name), placement)
    }

    pub(super) fn placement(&self, tensor: TensorId) -> Placement {
        self.builder.get(tensor).placement
    }

    /// An input of a layer where the layer needs it: the activation itself, or a copy in another placement, for which an
    /// exchange is emitted before the first layer that needs it.
    pub(super) fn operand(&mut self, layer: &Layer, input: LayerId) -> TensorId {
        let activation = self.activation(input);
        let wanted = self.meshes.operand(layer, input);
        let of = self.builder.get(activation).layer;
        if self.placement(activation).is_same(&wanted, self.extent(of)) {
            return activation;
        }
        let gathered = wanted == Placement::gathered(wanted.mesh);
        let key = (activation, (wanted.mesh.groups(), gathered));
        if let Some(&copy) = self.copies.get(&key) {
            return copy;
        }
        let source = self.network.layer(of);
        let suffix = format!("activation@{}", layer.name);
        let copy = self.placed_tensor(source, TensorRole::Activation, &suffix, wanted);
        self.redistribute(layer, "redistribute_input", activation, copy);
        self.copies.insert(key, copy);
        copy
    }

    /// A tensor for the gradient of a layer's input as the layer computes it; where the slope of an activation is folded in,
    /// that of the activation's input.
    pub(super) fn operand_gradient(
        &mut self,
        layer: &Layer,
        input: LayerId,
        folded: bool,
    ) -> TensorId {
        let placement = self.meshes.operand_gradient(layer, input);
        let of = self.gradient_layer(input, folded);
        let same = placement.is_same(&self.meshes.output(of.id), self.extent(of.id));
        let suffix = if same { "gradient".to_owned() } else { format!("gradient@{}", layer.name) };
        self.placed_tensor(of, TensorRole::ActivationGradient, &suffix, placement)
    }

    /// The gradient of a layer's input where the input's own tasks need it: as computed, or summed and sent there.
    pub(super) fn returned_gradient(
        &mut self,
        layer: &Layer,
        input: LayerId,
        gradient: TensorId,
    ) -> TensorId {
        let of = self.network.layer(self.builder.get(gradient).layer);
        let wanted = self.meshes.output(input);
        if self.placement(gradient).is_same(&wanted, self.extent(input)) {
            return gradient;
        }
        let suffix = format!("gradient from {}", layer.name);
        let term = self.placed_tensor(of, TensorRole::ActivationGradient, &suffix, wanted);
        self.redistribute(layer, "redistribute_gradient", gradient, term);
        term
    }

    /// The layer whose output a gradient tensor belongs to.
    pub(super) fn gradient_layer(&self, layer: LayerId, folded: bool) -> &'a Layer {
        let layer = self.network.layer(layer);
        if folded { self.network.layer(layer.inputs[0]) } else { layer }
    }

    /// Emits the exchange that brings what is in `source` to `target`, in another placement; terms of sums are added.
    pub(super) fn redistribute(
        &mut self,
        layer: &Layer,
        pass: &str,
        source: TensorId,
        target: TensorId,
    ) {
        let Tensor { layer: of, role, .. } = *self.builder.get(source);
        let (mut extent, mut values) = (self.extent(of), self.pixels(of));
        if role == TensorRole::Labels {
            (extent.features, values) = (1, 1);
        }
        let (from, to) = (self.placement(source), self.placement(target));
        // What the busiest sender sends.
        let mut sent = vec![(0, 0); self.ranks()];
        for transfer in redistribution(&from, &to, extent) {
            if transfer.from != transfer.to {
                sent[transfer.from].0 += transfer.region.elements() * values;
                sent[transfer.from].1 += 1;
            }
        }
        let (elements, messages) = sent.into_iter().max().expect("there are ranks");
        let price = Price::exchange(elements as f64 * VALUE_BYTES, f64::from(messages));
        let name = format!("{}.{pass}", layer.name);
        let parts =
            if role.has_samples() { self.exchange_parts(layer, from, to) } else { Vec::new() };
        let operands = Operands::new([source], [target]);
        self.emit_named_parts(&parts, layer, (TaskKind::Redistribute, name), operands, price);
    }

    /// The parts in which an exchange before or behind a layer goes: its own, or, where the other side has more groups, those of the
    /// layer that feeds it, so that all ranks send at the same time.
    fn exchange_parts(&self, layer: &Layer, from: Placement, to: Placement) -> Vec<SamplePart> {
        if from.mesh.groups() == to.mesh.groups() {
            return self.meshes.parts(layer.id);
        }
        let feeds = layer.inputs.first().map(|&input| self.meshes.parts(input));
        feeds.unwrap_or_default()
    }

    /// Samples of the minibatch, and features of a layer's output.
    fn extent(&self, layer: LayerId) -> Extent {
        let (features, ..) = self.network.layer(layer).shape.maps();
        Extent { samples: self.options.minibatch, features }
    }

    /// Values of one feature of one sample of a layer's output.
    fn pixels(&self, layer: LayerId) -> usize {
        let (_, h, w) = self.network.layer(layer).shape.maps();
        h * w
    }

    /// The activation that holds a layer's output.
    pub(super) fn activation(&self, layer: LayerId) -> TensorId {
        self.layers[layer.index()].activation.expect("layers are lowered in topological order")
    }

    /// Samples that the busiest rank computes of a layer; prices are for that rank.
    pub(super) fn samples(&self, layer: LayerId) -> f64 {
        self.meshes.samples(layer, 0, self.options.minibatch).len() as f64
    }

    /// The part of a layer's output features that the busiest rank computes.
    pub(super) fn feature_share(&self, layer: LayerId) -> f64 {
        let (features, ..) = self.network.layer(layer).shape.maps();
        self.meshes.features(self.network, layer, 0).len() as f64 / features as f64
    }

    /// Bytes of a layer's output that the busiest rank holds.
    pub(super) fn activation_bytes(&self, layer: LayerId) -> f64 {
        let elements = self.network.layer(layer).shape.elements() as f64;
        elements * self.feature_share(layer) * self.samples(layer) * VALUE_BYTES
    }

    /// Bytes of all inputs of a layer as it reads them.
    pub(super) fn input_bytes(&self, layer: &Layer) -> f64 {
        let of = |&input: &LayerId| {
            let elements = self.network.layer(input).shape.elements() as f64;
            let part = if is_splittable(layer) { 1.0 } else { self.feature_share(layer.id) };
            elements * part * self.samples(layer.id) * VALUE_BYTES
        };
        layer.inputs.iter().map(of).sum()
    }

    /// The trainable parameters with which a layer computes, once the forward pass of the layer that keeps them is lowered.
    pub(super) fn parameters_of(&self, layer: LayerId) -> Option<TensorId> {
        self.layers[self.network.owner(layer).index()].parameters
    }

    /// Bytes of the trainable parameters of a layer's features on the busiest rank.
    pub(super) fn parameter_bytes(&self, layer: &Layer) -> f64 {
        let values: usize = self.network.parameters(layer.id).map(Param::elements).sum();
        values as f64 * self.feature_share(layer.id) * VALUE_BYTES
    }

    pub(super) fn emit(&mut self, layer: &Layer, kind: TaskKind, operands: Operands, price: Price) {
        let name = self.task_name(layer, kind);
        self.emit_named(layer, kind, name, operands, price);
    }

    /// Emits a task for each part of the samples in which a layer is computed.
    pub(super) fn emit_parts(
        &mut self,
        layer: &Layer,
        kind: TaskKind,
        operands: Operands,
        price: Price,
    ) {
        let name = self.task_name(layer, kind);
        let parts = self.meshes.parts(layer.id);
        self.emit_named_parts(&parts, layer, (kind, name), operands, price);
    }

    /// Emits a task for one slice of the samples.
    pub(super) fn emit_slice(
        &mut self,
        layer: &Layer,
        kind: TaskKind,
        part: SamplePart,
        operands: Operands,
        price: Price,
    ) {
        let name = self.task_name(layer, kind);
        self.emit_part(layer, kind, (&name, part), operands, price);
    }

    /// One task where there are no parts.
    fn emit_named_parts(
        &mut self,
        parts: &[SamplePart],
        layer: &Layer,
        (kind, name): (TaskKind, String),
        operands: Operands,
        price: Price,
    ) {
        if parts.is_empty() {
            self.emit_named(layer, kind, name, operands, price);
            return;
        }
        for &part in parts {
            let price = price.part(parts.len());
            self.emit_part(layer, kind, (&name, part), operands.clone(), price);
        }
    }

    fn emit_part(
        &mut self,
        layer: &Layer,
        kind: TaskKind,
        (name, part): (&str, SamplePart),
        operands: Operands,
        price: Price,
    ) {
        let Operands { reads, writes, in_place } = operands;
        let name = format!("{name} {}/{}", part.index + 1, part.of);
        let (layer, part) = (layer.id, Some(part));
        self.builder.task(NewTask { kind, layer, name, reads, writes, part, in_place, price });
    }

    pub(super) fn emit_named(
        &mut self,
        layer: &Layer,
        kind: TaskKind,
        name: String,
        operands: Operands,
        price: Price,
    ) {
        let Operands { reads, writes, in_place } = operands;
        let (layer, part) = (layer.id, None);
        self.builder.task(NewTask { kind, layer, name, reads, writes, part, in_place, price });
    }

    /// Layer and pass, `conv1.forward`; with the activation layer whose work the task also does, `conv1+relu1.forward`.
    pub(super) fn task_name(&self, layer: &Layer, kind: TaskKind) -> String {
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
    pub(super) fn gathers(&self, layer: LayerId, statistics: Statistics) -> bool {
        statistics == Statistics::Minibatch && self.mesh(layer).groups() > 1
    }

    /// The activation layer by whose slope a layer's data gradient multiplies.
    pub(super) fn src_activation(&self, layer: &Layer) -> Option<LayerId> {
        self.fusion.src_activation(self.network, layer.id)
    }

    /// Emits the exchange that gives `peers` ranks, this one among them, the small tensor of each other; with one rank,
    /// nothing: the local tensor is the gathered one.
    pub(super) fn gather(
        &mut self,
        layer: &Layer,
        local: TensorId,
        role: TensorRole,
        (peers, elements): (usize, f64),
    ) -> TensorId {
        if peers == 1 {
            return local;
        }
        let others = peers as f64 - 1.0;
        let gathered = self.tensor(layer, role);
        let price = Price::exchange(elements * VALUE_BYTES * others, others);
        let pass = match role {
            TensorRole::GatheredStatistics => "gather_statistics",
            TensorRole::GatheredGradientSums => "gather_gradient_sums",
            TensorRole::GatheredLossStatistics => "gather_loss_statistics",
            TensorRole::GatheredSquares => "gather_squares",
            _ => "gather_metrics",
        };
        let name = format!("{}.{pass}", layer.name);
        self.emit_named(
            layer,
            TaskKind::Redistribute,
            name,
            Operands::new([local], [gathered]),
            price,
        );
        gathered
    }
}
