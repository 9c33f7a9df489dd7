//! The backward pass, the exchanges and the updates, as tasks.
//!
//! Layers are walked in reverse order. For each: the terms of its output's gradient are summed where there are
//! several, the weight gradient is computed, then the data gradient, then follow the exchange and the update. The
//! weight gradient comes first in this order so that its exchange travels while the data gradient is computed. Where there is
//! no exchange, and no norm of all gradients to wait for, it comes last and is no tensor: its task makes the step of the
//! parameters, block by block, while their gradient is in the cache.
//!
//! Where the gradient of an activation function is folded into the task that writes the gradient of its output
//! ([`Fusion`](super::Fusion)), that task writes the gradient of the function's input, and the activation layer only
//! passes it on.

use super::lowering::{Lowering, Operands, Reduced, SQUARES, VALUE_BYTES};
use super::plan::Mode;
use crate::cost::Price;
use crate::layer::{Layer, LayerId, LayerKind, Statistics};
use crate::task::{TaskKind, TensorId, TensorRole};

impl Lowering<'_> {
    /// Emits everything after the loss.
    pub(super) fn backward(&mut self, loss: LayerId) {
        for layer in self.network.layers().iter().rev() {
            if layer.id == loss || !self.layers[layer.id.index()].needs_gradient {
                continue;
            }
            let gradient = self.output_gradient(layer);
            self.layer_backward(layer, gradient);
        }
        if self.options.clip {
            self.clipped_updates(loss);
        }
    }

    /// The gradient with respect to a layer's output: its only term, or the sum of all.
    fn output_gradient(&mut self, layer: &Layer) -> TensorId {
        let mut terms = std::mem::take(&mut self.layers[layer.id.index()].gradient_terms);
        // Consumers were walked in reverse; the sum is in layer order.
        terms.reverse();
        if let [only] = terms[..] {
            return only;
        }
        let folded = self.fusion.is_folded_into_sum(layer.id);
        let of = self.gradient_layer(layer.id, folded);
        let sum = self.tensor(of, TensorRole::ActivationGradient);
        let bytes = self.activation_bytes(layer.id);
        if folded {
            terms.push(self.activation(layer.id));
        }
        // As many additions as there are terms, less one, and with a slope a multiplication; each tensor moves once.
        let reads = terms.len() as f64;
        let price = Price::compute((reads - 1.0) * bytes / VALUE_BYTES, (reads + 1.0) * bytes);
        let operands = Operands::new(terms, [sum]).in_place();
        self.emit(layer, TaskKind::AccumulateGradient, operands, price);
        sum
    }

    fn layer_backward(&mut self, layer: &Layer, gradient: TensorId) {
        let sums = match &layer.kind {
            LayerKind::BatchNorm(norm) => {
                Some(self.gradient_statistics(layer, gradient, norm.statistics))
            }
            _ => None,
        };
        if self.steps_along(layer) {
            // After the data gradient, which reads the parameters as they were.
            self.backward_data(layer, gradient, sums);
            self.backward_weights_and_step(layer, gradient);
            return;
        }
        let parameter_gradient = self.backward_weights(layer, gradient, sums);
        self.backward_data(layer, gradient, sums);
        if let Some(parameter_gradient) = parameter_gradient {
            self.exchange_and_update(layer, parameter_gradient);
        }
    }

    /// This rank's gradient sums of a batch normalization: by slices, or merged where they are to be gathered.
    fn gradient_statistics(
        &mut self,
        layer: &Layer,
        gradient: TensorId,
        statistics: Statistics,
    ) -> TensorId {
        let sums = self.tensor(layer, TensorRole::SliceGradientSums);
        let bytes = self.activation_bytes(layer.id);
        let source = self.operand(layer, layer.inputs[0]);
        let reads = [source, gradient, self.batch_statistics(layer)];
        let price = Price::compute(4.0 * bytes / VALUE_BYTES, 2.0 * bytes);
        self.emit(layer, TaskKind::GradientStatistics, Operands::new(reads, [sums]), price);
        if self.options.reproducible || !self.gathers(layer.id, statistics) {
            return sums;
        }
        let local = self.tensor(layer, TensorRole::LocalGradientSums);
        let operands = Operands::new([sums], [local]);
        self.emit(layer, TaskKind::MergeGradientStatistics, operands, Price::default());
        local
    }

    fn batch_statistics(&self, layer: &Layer) -> TensorId {
        let statistics = self.layers[layer.id.index()].batch_statistics;
        statistics.expect("the forward pass of a training plan keeps them")
    }

    fn backward_weights(
        &mut self,
        layer: &Layer,
        gradient: TensorId,
        sums: Option<TensorId>,
    ) -> Option<TensorId> {
        self.layers[layer.id.index()].parameters?;
        let parameter_gradient = self.tensor(layer, TensorRole::ParameterGradient);
        let (reads, price) = match (&layer.kind, sums) {
            (_, Some(sums)) => (vec![sums], Price::compute(0.0, 2.0 * self.parameter_bytes(layer))),
            (LayerKind::Bias, None) => {
                let bytes = self.activation_bytes(layer.id);
                (vec![gradient], Price::compute(bytes / VALUE_BYTES, bytes))
            }
            _ => {
                let source = self.operand(layer, layer.inputs[0]);
                (vec![source, gradient], self.forward_price(layer))
            }
        };
        let operands = Operands::new(reads, [parameter_gradient]);
        self.emit(layer, TaskKind::BackwardWeights, operands, price);
        Some(parameter_gradient)
    }

    /// True where the parameters make their step in the task that computes their gradient: where nobody else is to see it.
    fn steps_along(&self, layer: &Layer) -> bool {
        let is_product = matches!(layer.kind, LayerKind::Conv2d(_) | LayerKind::Linear(_));
        let is_whole = self.mesh(layer.id).groups() == 1 && !self.options.clip;
        is_product && is_whole && self.options.fuse
    }

    /// Emits the weight gradient and the update as one task.
    fn backward_weights_and_step(&mut self, layer: &Layer, gradient: TensorId) {
        let source = self.operand(layer, layer.inputs[0]);
        let writes = self.updated(layer);
        let Price { flops, bytes, .. } = self.forward_price(layer);
        let parameters = self.parameter_bytes(layer);
        // Parameters and velocity are read and written; a gradient would have been written, which is in the price.
        let moved = 2.0 * writes.len() as f64 - 1.0;
        let price =
            Price::compute(flops + 4.0 * parameters / VALUE_BYTES, bytes + moved * parameters);
        let kind = TaskKind::BackwardWeights;
        let name = format!("{}+update", self.task_name(layer, kind));
        self.emit_named(layer, kind, name, Operands::new([source, gradient], writes), price);
    }

    fn backward_data(&mut self, layer: &Layer, gradient: TensorId, sums: Option<TensorId>) {
        let wanted: Vec<LayerId> = layer
            .inputs
            .iter()
            .copied()
            .filter(|input| self.layers[input.index()].needs_gradient)
            .collect();
        if wanted.is_empty() {
            return;
        }
        match &layer.kind {
            // The gradient passes unchanged: the same tensor serves every input.
            LayerKind::Add | LayerKind::Bias => self.pass_on(layer, &wanted, gradient),
            LayerKind::Flatten if self.is_one_pixel(layer.inputs[0]) => {
                self.pass_on(layer, &wanted, gradient);
            }
            _ if self.fusion.is_gradient_folded(layer.id) => {
                self.pass_on(layer, &wanted, gradient);
            }
            _ => self.compute_backward_data(layer, &wanted, gradient, sums),
        }
    }

    fn pass_on(&mut self, layer: &Layer, inputs: &[LayerId], gradient: TensorId) {
        // In reverse, as everything here is: `output_gradient` turns the terms round.
        for &input in inputs.iter().rev() {
            let term = self.returned_gradient(layer, input, gradient);
            self.layers[input.index()].gradient_terms.push(term);
        }
    }

    /// Reads after the gradient: convolution: backward weights; linear: parameters; activation functions: their
    /// output; max pooling and local response normalization: input; batch normalization: input, batch
    /// statistics, parameters, gathered gradient sums. Where the gradient of an activation is folded in, last the
    /// activation, which is the input, if it is not among these already; dropout reads its output instead.
    fn compute_backward_data(
        &mut self,
        layer: &Layer,
        wanted: &[LayerId],
        gradient: TensorId,
        sums: Option<TensorId>,
    ) {
        let source = self.operand(layer, layer.inputs[0]);
        let output = self.activation(layer.id);
        let parameters = self.layers[layer.id.index()].parameters;
        let mut reads = vec![gradient];
        let mut in_place = false;
        match &layer.kind {
            LayerKind::Conv2d(_) => reads.push(self.pack_weights(layer)),
            LayerKind::Linear(_) => reads.extend(parameters),
            LayerKind::Relu | LayerKind::Sigmoid | LayerKind::Tanh => {
                reads.push(output);
                in_place = true;
            }
            LayerKind::Dropout(_) => in_place = true,
            LayerKind::MaxPool(_) | LayerKind::Lrn(_) => reads.push(source),
            LayerKind::BatchNorm(norm) => {
                let local = sums.expect("batch normalization has gradient sums");
                let gathered = if self.options.reproducible {
                    let (ranks, values) = self.statistics_peers(layer);
                    let peers = (ranks, values * self.slices() as f64);
                    self.gather(layer, local, TensorRole::GatheredGradientSums, peers)
                } else if self.gathers(layer.id, norm.statistics) {
                    let peers = self.statistics_peers(layer);
                    self.gather(layer, local, TensorRole::GatheredGradientSums, peers)
                } else {
                    local
                };
                reads.extend([source, self.batch_statistics(layer)]);
                reads.extend(parameters);
                reads.push(gathered);
            }
            _ => {}
        }
        let folded = self.src_activation(layer).is_some();
        match &layer.kind {
            LayerKind::Dropout(_) if folded => reads.push(output),
            _ if folded && !reads.contains(&source) => reads.push(source),
            _ => {}
        }
        let mut writes = Vec::new();
        for &input in wanted {
            writes.push(self.operand_gradient(layer, input, folded));
        }
        let mut operands = Operands::new(reads, writes.iter().copied());
        if in_place {
            operands = operands.in_place();
        }
        let price = self.forward_price(layer);
        self.emit_parts(layer, TaskKind::BackwardData, operands, price);
        for (&input, gradient) in wanted.iter().zip(writes).rev() {
            let term = self.returned_gradient(layer, input, gradient);
            self.layers[input.index()].gradient_terms.push(term);
        }
    }

    fn pack_weights(&mut self, layer: &Layer) -> TensorId {
        let parameters = self.layers[layer.id.index()].parameters;
        let parameters = parameters.expect("a convolution has weights");
        let packed = self.tensor(layer, TensorRole::BackwardWeights);
        let price = Price::compute(0.0, 2.0 * self.parameter_bytes(layer));
        self.emit(layer, TaskKind::PackWeights, Operands::new([parameters], [packed]), price);
        packed
    }

    /// Emits the part-reduce of a layer's gradient, and its update unless that has to wait for all gradients.
    fn exchange_and_update(&mut self, layer: &Layer, gradient: TensorId) {
        if self.mesh(layer.id).groups() > 1 {
            let operands = Operands::new([gradient], [gradient]);
            let price = self.strip_exchange(layer);
            self.emit(layer, TaskKind::PartReduce, operands, price);
        }
        if self.options.clip {
            let squares = self.tensor(layer, TensorRole::GradientSquares);
            let strip = self.strip_bytes(layer);
            let price = Price::compute(2.0 * strip / VALUE_BYTES, strip);
            let operands = Operands::new([gradient], [squares]);
            self.emit(layer, TaskKind::GradientSquares, operands, price);
            self.reduced.push(Reduced { layer: layer.id, gradient, squares });
        } else {
            self.update(layer, gradient, None);
        }
    }

    /// Emits the norm of all gradients together, then all updates.
    fn clipped_updates(&mut self, loss: LayerId) {
        let loss = self.network.layer(loss);
        let reduced = std::mem::take(&mut self.reduced);
        let local = self.tensor(loss, TensorRole::LocalSquares);
        let operands = Operands::new(reduced.iter().map(|r| r.squares), [local]);
        self.emit(loss, TaskKind::MergeSquares, operands, Price::default());
        let peers = (self.ranks(), SQUARES as f64);
        let norm = self.gather(loss, local, TensorRole::GatheredSquares, peers);
        for Reduced { layer, gradient, .. } in reduced {
            self.update(self.network.layer(layer), gradient, Some(norm));
        }
    }

    /// Emits the update of the owned strip and its part-broadcast.
    fn update(&mut self, layer: &Layer, gradient: TensorId, norm: Option<TensorId>) {
        let writes = self.updated(layer);
        let parameters = writes[0];
        let strip = self.strip_bytes(layer);
        let price = Price::compute(4.0 * strip / VALUE_BYTES, 5.0 * strip);
        let reads = [Some(gradient), norm].into_iter().flatten();
        self.emit(layer, TaskKind::Update, Operands::new(reads, writes), price);
        if self.mesh(layer.id).groups() > 1 {
            let operands = Operands::new([parameters], [parameters]);
            let price = self.strip_exchange(layer);
            self.emit(layer, TaskKind::PartBroadcast, operands, price);
        }
    }

    /// What the step of a layer's parameters writes: these, and their velocity if there is one.
    fn updated(&mut self, layer: &Layer) -> Vec<TensorId> {
        let parameters = self.layers[layer.id.index()].parameters;
        let mut writes =
            vec![parameters.expect("a layer with a parameter gradient has parameters")];
        if self.options.mode == (Mode::Train { momentum: true }) {
            writes.push(self.tensor(layer, TensorRole::Velocity));
        }
        writes
    }

    /// Bytes of the part of a layer's parameters that a rank owns.
    fn strip_bytes(&self, layer: &Layer) -> f64 {
        self.parameter_bytes(layer) / self.mesh(layer.id).groups() as f64
    }

    /// What a rank sends in a part-reduce, and again in a part-broadcast, of a layer's parameters.
    fn strip_exchange(&self, layer: &Layer) -> Price {
        let others = self.mesh(layer.id).groups() as f64 - 1.0;
        Price::exchange(self.strip_bytes(layer) * others, others)
    }
}
