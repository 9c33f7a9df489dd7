//! The backward pass as tasks.
//!
//! Layers are walked in reverse order. For each: the terms of its output's gradient are summed where there are
//! several, the weight gradient is computed, then the data gradient, then follow the exchange and the update
//! (`updates.rs`). The weight gradient comes first in this order so that its exchange travels while the data gradient is
//! computed. Where layers are tied, exchange and update follow the first of them, which is walked last. Where there is no exchange,
//! and no norm of all gradients to wait for, the weight gradient comes last and is no tensor: its task makes the step of the
//! parameters, block by block, while their gradient is in the cache.
//!
//! Where the gradient of an activation function is folded into the task that writes the gradient of its output
//! ([`Fusion`](super::Fusion)), that task writes the gradient of the function's input, and the activation layer only
//! passes it on.

use super::lowering::{Lowering, VALUE_BYTES};
use super::operands::Operands;
use crate::cost::Price;
use crate::layer::{Layer, LayerId, LayerKind, Statistics};
use crate::task::{SamplePart, TaskKind, TensorId, TensorRole};

impl Lowering<'_> {
    /// Emits everything after the loss.
    pub(super) fn backward(&mut self, loss: LayerId) {
        self.bundle(loss);
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
        self.parameters_of(layer.id)?;
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
        let owner = self.network.owner(layer.id);
        if self.network.tied(owner).next().is_some() {
            let slices = self.slices();
            let sum = SliceSum { reads, price: price.part(slices), slices };
            return self.shared_gradient(layer, &sum, owner);
        }
        let parameter_gradient = self.tensor(layer, TensorRole::ParameterGradient);
        let operands = Operands::new(reads, [parameter_gradient]);
        self.emit(layer, TaskKind::BackwardWeights, operands, price);
        Some(parameter_gradient)
    }

    /// Emits a layer's terms of the gradient by parameters that several layers compute with. These are walked from the last to the
    /// first, which is the owner: with it the gradient is complete. Terms are added slice by slice before slices are summed,
    /// so that the order of all additions is the same for any number of ranks.
    fn shared_gradient(
        &mut self,
        layer: &Layer,
        sum: &SliceSum,
        owner: LayerId,
    ) -> Option<TensorId> {
        let mut sums = std::mem::take(&mut self.layers[owner.index()].shared_gradient);
        for slice in 0..sum.slices {
            let term = self.tensor(layer, TensorRole::ParameterGradient);
            self.slice_gradient(layer, sum, slice, term);
            match sums.get(slice) {
                Some(&known) => self.add_gradient(layer, term, known),
                None => sums.push(term),
            }
        }
        if layer.id == owner {
            return Some(self.sum_tree(layer, &sums));
        }
        self.layers[owner.index()].shared_gradient = sums;
        None
    }

    /// Emits the sum of gradients over neighboring slices, in a balanced tree: the same whatever the slices of a rank, since these
    /// are a whole branch of it.
    fn sum_tree(&mut self, layer: &Layer, slices: &[TensorId]) -> TensorId {
        if let [only] = slices {
            return *only;
        }
        let (left, right) = slices.split_at(slices.len() / 2);
        let (into, other) = (self.sum_tree(layer, left), self.sum_tree(layer, right));
        self.add_gradient(layer, other, into);
        into
    }

    /// Emits the gradient over one slice of the samples; over all of them where there is but one.
    fn slice_gradient(&mut self, layer: &Layer, sum: &SliceSum, index: usize, into: TensorId) {
        let operands = Operands::new(sum.reads.iter().copied(), [into]);
        if sum.slices == 1 {
            self.emit(layer, TaskKind::BackwardWeights, operands, sum.price);
        } else {
            let groups = self.mesh(layer.id).groups();
            let part = SamplePart { index, of: sum.slices, groups };
            self.emit_slice(layer, TaskKind::BackwardWeights, part, operands, sum.price);
        }
    }

    fn add_gradient(&mut self, layer: &Layer, term: TensorId, into: TensorId) {
        let bytes = self.parameter_bytes(layer);
        let price = Price::compute(bytes / VALUE_BYTES, 3.0 * bytes);
        self.emit(layer, TaskKind::SumGradients, Operands::new([term], [into]), price);
    }

    /// True where the parameters make their step in the task that computes their gradient: where nobody else is to see it.
    fn steps_along(&self, layer: &Layer) -> bool {
        let is_product = matches!(layer.kind, LayerKind::Conv2d(_) | LayerKind::Linear(_));
        let is_whole = self.mesh(layer.id).groups() == 1 && !self.options.clip;
        let is_tied = self.network.tied(self.network.owner(layer.id)).next().is_some();
        is_product && is_whole && !is_tied && self.options.fuse
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
        let parameters = self.parameters_of(layer.id);
        let mut reads = vec![gradient];
        // The operand whose place the gradient may take.
        let mut gives_way = None;
        match &layer.kind {
            LayerKind::Conv2d(_) => reads.push(self.pack_weights(layer)),
            LayerKind::Linear(_) => reads.extend(parameters),
            LayerKind::Relu | LayerKind::Sigmoid | LayerKind::Tanh => {
                reads.push(output);
                gives_way = Some(gradient);
            }
            LayerKind::Dropout(_) => gives_way = Some(gradient),
            LayerKind::MaxPool(pool) => {
                reads.push(source);
                let input = self.network.layer(layer.inputs[0]);
                gives_way = pool.tiles(input.shape, layer.shape).then_some(source);
            }
            LayerKind::Lrn(_) => reads.push(source),
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
        if let Some(operand) = gives_way {
            operands = operands.in_place_of(operand);
        }
        let price = self.forward_price(layer);
        self.emit_parts(layer, TaskKind::BackwardData, operands, price);
        for (&input, gradient) in wanted.iter().zip(writes).rev() {
            let term = self.returned_gradient(layer, input, gradient);
            self.layers[input.index()].gradient_terms.push(term);
        }
    }

    fn pack_weights(&mut self, layer: &Layer) -> TensorId {
        let parameters = self.parameters_of(layer.id).expect("a convolution has weights");
        let packed = self.tensor(layer, TensorRole::BackwardWeights);
        let price = Price::compute(0.0, self.prepared_bytes(layer));
        self.emit(layer, TaskKind::PackWeights, Operands::new([parameters], [packed]), price);
        packed
    }
}

/// A use's terms of a gradient by tied parameters, slice by slice.
struct SliceSum {
    reads: Vec<TensorId>,
    /// Of one slice.
    price: Price,
    slices: usize,
}
