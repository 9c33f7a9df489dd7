//! The exchanges of gradients and parameters, and the updates between them, as tasks.
//!
//! For every bundle of layers ([`bundles`](super::bundles)): a part-reduce of their gradients, the update of each layer's owned
//! strip, a part-broadcast of their parameters. Where gradients are clipped, all updates wait for the norm of all gradients.

use super::bundles::{Bundle, Gradient, bundles};
use super::lowering::{Lowering, SQUARES, VALUE_BYTES};
use super::operands::Operands;
use super::plan::Mode;
use crate::cost::Price;
use crate::layer::{Layer, LayerId, LayerKind};
use crate::task::{TaskKind, TensorId, TensorRole};

/// Gradients on their way to their updates.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Layers whose gradients are exchanged together; only those of several layers.
    bundles: Vec<Bundle>,
    /// Gradients that wait for the others of their bundle.
    waiting: Vec<(LayerId, TensorId)>,
    /// Bundles that wait for the norm of all gradients.
    reduced: Vec<Vec<Reduced>>,
}

/// A layer's summed gradient, before its update.
#[derive(Debug)]
struct Reduced {
    layer: LayerId,
    gradient: TensorId,
    squares: TensorId,
}

impl Lowering<'_> {
    /// Decides which layers' gradients will be exchanged together.
    pub(super) fn bundle(&mut self, loss: LayerId) {
        if self.options.bundle {
            let all = bundles(&self.gradients(loss), &self.options.platform);
            self.pending.bundles = all.into_iter().filter(|b| b.layers.len() > 1).collect();
        }
    }

    /// The gradients that are exchanged, in the order in which the backward pass yields them.
    fn gradients(&self, loss: LayerId) -> Vec<Gradient> {
        let seconds = |layer: &Layer| self.options.platform.seconds(&self.forward_price(layer));
        let mut needed_s = Vec::new();
        let mut forward_s = 0.0;
        for layer in self.network.layers() {
            needed_s.push(forward_s);
            if self.fusion.producer(layer.id).is_none() {
                forward_s += seconds(layer);
            }
        }
        let (mut gradients, mut backward_s) = (Vec::new(), 0.0);
        for layer in self.network.layers().iter().rev() {
            if layer.id == loss || !self.layers[layer.id.index()].needs_gradient {
                continue;
            }
            if self.parameters_of(layer.id).is_some() {
                backward_s += seconds(layer);
                let mesh = self.mesh(layer.id);
                // The gradient of tied layers is complete with that of the first.
                if mesh.groups() > 1 && self.network.owner(layer.id) == layer.id {
                    gradients.push(Gradient {
                        layer: layer.id,
                        mesh,
                        exchange: self.strip_exchange(&[layer.id]),
                        ready_s: backward_s,
                        needed_s: needed_s[layer.id.index()],
                    });
                }
            }
            let upstream = layer.inputs.iter().any(|i| self.layers[i.index()].needs_gradient);
            let passes_on = matches!(layer.kind, LayerKind::Add | LayerKind::Bias);
            if upstream && !passes_on && !self.fusion.is_gradient_folded(layer.id) {
                backward_s += seconds(layer);
            }
        }
        for gradient in &mut gradients {
            gradient.needed_s += backward_s;
        }
        gradients
    }

    /// Takes a layer's gradient. With the last one of a bundle: emits the part-reduce, and the updates unless these have to wait
    /// for all gradients.
    pub(super) fn exchange_and_update(&mut self, layer: &Layer, gradient: TensorId) {
        self.pending.waiting.push((layer.id, gradient));
        let shared = self.pending.bundles.iter().find(|b| b.layers.contains(&layer.id));
        let layers = shared.map_or_else(|| vec![layer.id], |bundle| bundle.layers.clone());
        if layers.last() != Some(&layer.id) {
            return;
        }
        let (mut complete, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pending.waiting)
            .into_iter()
            .partition(|(layer, _)| layers.contains(layer));
        self.pending.waiting = waiting;
        // By their places in the next forward pass.
        complete.reverse();
        let tensors: Vec<TensorId> = complete.iter().map(|&(_, gradient)| gradient).collect();
        self.exchange(TaskKind::PartReduce, &layer_ids(&complete), &tensors);
        if self.options.clip {
            let reduced = complete.iter().map(|&(layer, gradient)| self.squares(layer, gradient));
            let reduced = reduced.collect();
            self.pending.reduced.push(reduced);
        } else {
            self.update_all(&complete, None);
        }
    }

    fn squares(&mut self, layer: LayerId, gradient: TensorId) -> Reduced {
        let layer = self.network.layer(layer);
        let squares = self.tensor(layer, TensorRole::GradientSquares);
        let strip = self.strip_bytes(layer);
        let price = Price::compute(2.0 * strip / VALUE_BYTES, strip);
        let operands = Operands::new([gradient], [squares]);
        self.emit(layer, TaskKind::GradientSquares, operands, price);
        Reduced { layer: layer.id, gradient, squares }
    }

    /// Emits the norm of all gradients together, then all updates.
    pub(super) fn clipped_updates(&mut self, loss: LayerId) {
        let loss = self.network.layer(loss);
        let reduced = std::mem::take(&mut self.pending.reduced);
        let local = self.tensor(loss, TensorRole::LocalSquares);
        let operands = Operands::new(reduced.iter().flatten().map(|r| r.squares), [local]);
        self.emit(loss, TaskKind::MergeSquares, operands, Price::default());
        let peers = (self.ranks(), SQUARES as f64);
        let norm = self.gather(loss, local, TensorRole::GatheredSquares, peers);
        for bundle in reduced {
            let gradients: Vec<_> = bundle.iter().map(|r| (r.layer, r.gradient)).collect();
            self.update_all(&gradients, Some(norm));
        }
    }

    /// Emits the updates of the layers of a bundle, most urgent first, and the part-broadcast of their parameters.
    fn update_all(&mut self, gradients: &[(LayerId, TensorId)], norm: Option<TensorId>) {
        let updates = gradients.iter().map(|&(layer, gradient)| self.update(layer, gradient, norm));
        let parameters: Vec<TensorId> = updates.collect();
        self.exchange(TaskKind::PartBroadcast, &layer_ids(gradients), &parameters);
    }

    /// Emits the update of a layer's owned strip; returns its parameters.
    fn update(&mut self, layer: LayerId, gradient: TensorId, norm: Option<TensorId>) -> TensorId {
        let layer = self.network.layer(layer);
        let writes = self.updated(layer);
        let parameters = writes[0];
        let strip = self.strip_bytes(layer);
        let price = Price::compute(4.0 * strip / VALUE_BYTES, 5.0 * strip);
        let reads = [Some(gradient), norm].into_iter().flatten();
        self.emit(layer, TaskKind::Update, Operands::new(reads, writes), price);
        parameters
    }

    /// What the step of a layer's parameters writes: these, and their velocity if there is one.
    pub(super) fn updated(&mut self, layer: &Layer) -> Vec<TensorId> {
        let parameters = self.parameters_of(layer.id);
        let mut writes =
            vec![parameters.expect("a layer with a parameter gradient has parameters")];
        if self.options.mode == (Mode::Train { momentum: true }) {
            writes.push(self.tensor(layer, TensorRole::Velocity));
        }
        writes
    }

    /// Emits the exchange of the tensors of some layers, most urgent first, where several ranks have the same ones. It belongs to
    /// the most urgent layer.
    fn exchange(&mut self, kind: TaskKind, layers: &[LayerId], tensors: &[TensorId]) {
        let first = self.network.layer(layers[0]);
        if self.mesh(first.id).groups() == 1 {
            return;
        }
        let others = match layers[1..] {
            [] => String::new(),
            [other] => format!("+{}", self.network.layer(other).name),
            _ => format!("+{} more", layers.len() - 1),
        };
        let name = format!("{}{others}.{}", first.name, kind.pass());
        let operands = Operands::new(tensors.iter().copied(), tensors.iter().copied());
        self.emit_named(first, kind, name, operands, self.strip_exchange(layers));
    }

    /// Bytes of the part of a layer's parameters that a rank owns.
    fn strip_bytes(&self, layer: &Layer) -> f64 {
        self.parameter_bytes(layer) / self.mesh(layer.id).groups() as f64
    }

    /// What a rank sends in a part-reduce, and again in a part-broadcast, of the parameters of layers of one mesh.
    fn strip_exchange(&self, layers: &[LayerId]) -> Price {
        let others = self.mesh(layers[0]).groups() as f64 - 1.0;
        let strips = layers.iter().map(|&layer| self.strip_bytes(self.network.layer(layer)));
        Price::exchange(strips.sum::<f64>() * others, others)
    }
}

fn layer_ids(gradients: &[(LayerId, TensorId)]) -> Vec<LayerId> {
    gradients.iter().map(|&(layer, _)| layer).collect()
}
