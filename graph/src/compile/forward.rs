//! The forward pass and the loss, as tasks.

use super::lowering::{LOSS_STATISTICS, Lowering, METRICS, VALUE_BYTES};
use super::operands::Operands;
use super::winograd::{WinogradTile, tile_of};
use crate::cost::Price;
use crate::layer::{Layer, LayerId, LayerKind, Statistics};
use crate::task::{TaskKind, TensorId, TensorRole};

impl Lowering<'_> {
    /// Emits every layer's forward tasks in topological order.
    pub(super) fn forward(&mut self) {
        for layer in self.network.layers() {
            if let Some(producer) = self.fusion.producer(layer.id) {
                // The task of the layer before has written it.
                self.layers[layer.id.index()].activation = self.layers[producer.index()].activation;
                continue;
            }
            let activation = match &layer.kind {
                LayerKind::SoftmaxCrossEntropy(_) => continue,
                LayerKind::Input => self.load(layer),
                LayerKind::Dropout(_) if !self.trains() => self.activation(layer.inputs[0]),
                // A map of one pixel and a vector of features are the same values in the same order.
                LayerKind::Flatten if self.is_one_pixel(layer.inputs[0]) => {
                    self.activation(layer.inputs[0])
                }
                LayerKind::BatchNorm(norm) if self.trains() => {
                    self.batch_norm(layer, norm.statistics)
                }
                LayerKind::BatchNorm(_) => self.batch_norm_score(layer),
                _ => self.plain_forward(layer),
            };
            self.layers[layer.id.index()].activation = Some(activation);
        }
    }

    /// Emits the loss and the collection of its sums over the ranks.
    pub(super) fn loss(&mut self, loss: LayerId) {
        let layer = self.network.layer(loss);
        let logits = layer.inputs[0];
        let scores = self.operand(layer, logits);
        let labels = self.labels(layer);
        let mut reads = vec![scores];
        reads.extend(labels);
        let bytes = self.activation_bytes(logits);
        let mesh = self.mesh(loss);
        if mesh.members() > 1 {
            // Every member has its own classes: sums over all classes are put together from the members'.
            let local = self.tensor(layer, TensorRole::LossStatistics);
            let price = Price::compute(5.0 * bytes / VALUE_BYTES, bytes);
            let operands = Operands::new(reads.clone(), [local]);
            self.emit(layer, TaskKind::LossStatistics, operands, price);
            let values = LOSS_STATISTICS as f64 * self.samples(loss);
            let peers = (mesh.members(), values);
            reads.push(self.gather(layer, local, TensorRole::GatheredLossStatistics, peers));
        }
        let losses = self.tensor(layer, TensorRole::SampleLosses);
        let mut writes = vec![losses];
        if self.trains() && self.layers[logits.index()].needs_gradient {
            let gradient = self.operand_gradient(layer, logits, false);
            writes.push(gradient);
        }
        let gradient = writes.get(1).copied();
        // Subtract the maximum, exponential, sum, divide, subtract the target: about ten operations a value.
        let price = Price::compute(10.0 * bytes / VALUE_BYTES, 2.0 * bytes);
        self.emit(layer, TaskKind::Loss, Operands::new(reads, writes), price);
        if let Some(gradient) = gradient {
            let term = self.returned_gradient(layer, logits, gradient);
            self.layers[logits.index()].gradient_terms.push(term);
        }

        let metrics = self.tensor(layer, TensorRole::LocalMetrics);
        let samples = self.samples(loss);
        let price = Price::compute(2.0 * samples, 8.0 * samples);
        self.emit(layer, TaskKind::Metrics, Operands::new([losses], [metrics]), price);
        let peers = (self.ranks(), (METRICS * self.slices()) as f64);
        let gathered = self.gather(layer, metrics, TensorRole::GatheredMetrics, peers);
        self.emit(layer, TaskKind::Report, Operands::new([gathered], []), Price::default());
    }

    /// The labels of the samples whose loss this rank computes, where those are not the samples that it loads.
    fn labels(&mut self, loss: &Layer) -> Option<TensorId> {
        let loaded = self.labels?;
        let labels = self.tensor(loss, TensorRole::Labels);
        self.redistribute(loss, "redistribute_labels", loaded, labels);
        Some(labels)
    }

    /// True where a layer's output has one pixel a channel.
    pub(super) fn is_one_pixel(&self, layer: LayerId) -> bool {
        let (_, h, w) = self.network.layer(layer).shape.maps();
        h == 1 && w == 1
    }

    fn load(&mut self, layer: &Layer) -> TensorId {
        let activation = self.tensor(layer, TensorRole::Activation);
        let price = Price::compute(0.0, 2.0 * self.activation_bytes(layer.id));
        let mut writes = vec![activation];
        let loss = self.network.loss().expect("a plan is made of a network with a loss");
        if self.mesh(loss).members() > 1 {
            let labels = self.tensor(layer, TensorRole::Labels);
            self.labels = Some(labels);
            writes.push(labels);
        }
        self.emit(layer, TaskKind::Load, Operands::new([], writes), price);
        activation
    }

    fn parameters(&mut self, layer: &Layer) -> Option<TensorId> {
        self.network.parameters(layer.id).next()?;
        if let Some(known) = self.parameters_of(layer.id) {
            return Some(known);
        }
        // Tied layers come after the layer that keeps the parameters.
        let tensor = self.tensor(layer, TensorRole::Parameters);
        self.layers[layer.id.index()].parameters = Some(tensor);
        Some(tensor)
    }

    fn plain_forward(&mut self, layer: &Layer) -> TensorId {
        let mut reads: Vec<_> = layer.inputs.iter().map(|&i| self.operand(layer, i)).collect();
        reads.extend(self.parameters(layer));
        reads.extend(self.prepared_weights(layer));
        let activation = self.tensor(self.written(layer), TensorRole::Activation);
        let mut writes = vec![activation];
        if let Some(norm) = self.statistics_along(layer) {
            let slices = self.tensor(self.network.layer(norm), TensorRole::SliceStatistics);
            self.layers[norm.index()].slice_statistics = Some(slices);
            writes.push(slices);
        }
        let mut operands = Operands::new(reads, writes);
        if matches!(
            layer.kind,
            LayerKind::Relu
                | LayerKind::Sigmoid
                | LayerKind::Tanh
                | LayerKind::Dropout(_)
                | LayerKind::Bias
        ) {
            operands = operands.in_place();
        }
        let mut price = self.forward_price(layer);
        price.flops += self.along_price(layer);
        self.emit_parts(layer, TaskKind::Forward, operands, price);
        activation
    }

    /// The weights of a convolution as its forward pass reads them, where they are not the parameters.
    fn prepared_weights(&mut self, layer: &Layer) -> Option<TensorId> {
        tile_of(self.network, layer.id, self.options.winograd)?;
        let parameters = self.parameters_of(layer.id).expect("a convolution has weights");
        let prepared = self.tensor(layer, TensorRole::ForwardWeights);
        let price = Price::compute(0.0, self.prepared_bytes(layer));
        self.emit(layer, TaskKind::PrepareWeights, Operands::new([parameters], [prepared]), price);
        Some(prepared)
    }

    /// Bytes that are read and written to rearrange a convolution's weights for a pass.
    pub(super) fn prepared_bytes(&self, layer: &Layer) -> f64 {
        let tile = tile_of(self.network, layer.id, self.options.winograd);
        let written = tile.map_or(1.0, WinogradTile::weights_growth);
        (1.0 + written) * self.parameter_bytes(layer)
    }

    /// Flops of the layer's samples; bytes of inputs, output and parameters, each once.
    pub(super) fn forward_price(&self, layer: &Layer) -> Price {
        let flops = self.flops(layer.id);
        let bytes =
            self.input_bytes(layer) + self.activation_bytes(layer.id) + self.parameter_bytes(layer);
        Price::compute(flops, bytes)
    }

    /// Flops of a layer's forward pass for the busiest rank's samples and features.
    fn flops(&self, layer: LayerId) -> f64 {
        let flops = self.network.forward_flops_per_sample(layer) as f64;
        flops * self.samples(layer) * self.feature_share(layer)
    }

    /// What an activation that a layer's forward task computes along adds to its price: arithmetic, but no memory.
    fn along_price(&self, layer: &Layer) -> f64 {
        self.fusion.dst_activation(layer.id).map_or(0.0, |along| self.flops(along))
    }

    /// Statistics of this rank, unless the layer before has computed them, those of all ranks, then the normalization itself.
    fn batch_norm(&mut self, layer: &Layer, statistics: Statistics) -> TensorId {
        let source = self.activation(layer.inputs[0]);
        let bytes = self.activation_bytes(layer.id);
        let slices = self.layers[layer.id.index()].slice_statistics.unwrap_or_else(|| {
            let slices = self.tensor(layer, TensorRole::SliceStatistics);
            let price = Price::compute(5.0 * bytes / VALUE_BYTES, bytes);
            self.emit(layer, TaskKind::Statistics, Operands::new([source], [slices]), price);
            slices
        });
        let statistics = if self.options.reproducible {
            // The slices of all ranks are merged, not the ranks.
            let (ranks, values) = self.statistics_peers(layer);
            let peers = (ranks, values * self.slices() as f64);
            self.gather(layer, slices, TensorRole::GatheredStatistics, peers)
        } else if self.gathers(layer.id, statistics) {
            let local = self.tensor(layer, TensorRole::LocalStatistics);
            let operands = Operands::new([slices], [local]);
            self.emit(layer, TaskKind::MergeStatistics, operands, Price::default());
            let peers = self.statistics_peers(layer);
            self.gather(layer, local, TensorRole::GatheredStatistics, peers)
        } else {
            slices
        };
        let parameters = self.parameters(layer);
        let activation = self.tensor(self.written(layer), TensorRole::Activation);
        let batch = self.tensor(layer, TensorRole::BatchStatistics);
        let running = self.tensor(layer, TensorRole::RunningStatistics);
        self.layers[layer.id.index()].batch_statistics = Some(batch);
        let reads = [Some(source), parameters, Some(statistics), Some(running)];
        let operands = Operands::new(reads.into_iter().flatten(), [activation, batch, running]);
        let flops = 2.0 * bytes / VALUE_BYTES + self.along_price(layer);
        let price = Price::compute(flops, 2.0 * bytes);
        self.emit(layer, TaskKind::Forward, operands, price);
        activation
    }

    /// The ranks that have statistics of the same channels of a normalization, and the statistics' number of values.
    pub(super) fn statistics_peers(&self, layer: &Layer) -> (usize, f64) {
        let (channels, ..) = layer.shape.maps();
        let values = 2.0 * channels as f64 * self.feature_share(layer.id);
        (self.mesh(layer.id).groups(), values)
    }

    fn batch_norm_score(&mut self, layer: &Layer) -> TensorId {
        let source = self.activation(layer.inputs[0]);
        let parameters = self.parameters(layer);
        let running = self.tensor(layer, TensorRole::RunningStatistics);
        let activation = self.tensor(self.written(layer), TensorRole::Activation);
        let reads = [Some(source), parameters, Some(running)];
        let operands = Operands::new(reads.into_iter().flatten(), [activation]).in_place();
        let bytes = self.activation_bytes(layer.id);
        let flops = 2.0 * bytes / VALUE_BYTES + self.along_price(layer);
        let price = Price::compute(flops, 2.0 * bytes);
        self.emit(layer, TaskKind::Forward, operands, price);
        activation
    }
}
