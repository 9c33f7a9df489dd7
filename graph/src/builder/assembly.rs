//! The builder's state, and the checks that concern more than one layer.

use std::collections::HashSet;

use super::naming::check_name;
use crate::error::GraphError;
use crate::infer::{Inferred, Site, check_shape, checked_sum, infer};
use crate::layer::{Layer, LayerId, LayerKind, Param};
use crate::network::Network;
use crate::shape::Shape;

/// Builds a [`Network`], one method a kind of layer; each checks at once and leaves the builder as it was when it
/// fails.
///
/// # Examples
/// ```
/// use lockstep_graph::{Conv2d, GraphError, Linear, NetworkBuilder, Pool, SoftmaxCrossEntropy};
///
/// # fn main() -> Result<(), GraphError> {
/// let mut net = NetworkBuilder::new("tiny");
/// let data = net.input("data", (1, 28, 28))?;
/// let conv1 = net.conv2d("conv1", data, Conv2d::new(8, 5))?;
/// let pool1 = net.max_pool("pool1", conv1, Pool::new(2))?;
/// let features = net.flatten("flatten", pool1)?;
/// let logits = net.linear("fc", features, Linear::new(10))?;
/// net.softmax_cross_entropy("loss", logits, SoftmaxCrossEntropy::default())?;
/// let net = net.build()?;
/// assert_eq!(net.layer(pool1).shape.to_string(), "8x12x12");
/// assert_eq!(net.parameter_count(), 8 * 25 + 8 + 8 * 144 * 10 + 10);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct NetworkBuilder {
    name: String,
    pub(super) layers: Vec<Layer>,
    flops: Vec<u64>,
    names: HashSet<String>,
    /// Trainable values so far.
    pub(super) parameters: usize,
    input: Option<LayerId>,
    loss: Option<LayerId>,
}

impl NetworkBuilder {
    /// An empty network.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            layers: Vec::new(),
            flops: Vec::new(),
            names: HashSet::new(),
            parameters: 0,
            input: None,
            loss: None,
        }
    }

    /// Adds the input.
    pub(super) fn insert_input(
        &mut self,
        name: String,
        shape: Shape,
    ) -> Result<LayerId, GraphError> {
        self.check_new(&name)?;
        if let Some(first) = self.input {
            let first = self.layers[first.index()].name.clone();
            return Err(GraphError::SecondInput { first, second: name });
        }
        check_shape(&name, shape)?;
        let inferred = Inferred { shape, params: Vec::new(), flops: 0 };
        let id = self.push(name, LayerKind::Input, Vec::new(), inferred);
        self.input = Some(id);
        Ok(id)
    }

    /// Adds a layer of any kind but input.
    pub(crate) fn insert(
        &mut self,
        name: impl Into<String>,
        kind: LayerKind,
        inputs: &[LayerId],
    ) -> Result<LayerId, GraphError> {
        let name = name.into();
        self.check_new(&name)?;
        let mut sources = Vec::with_capacity(inputs.len());
        for &input in inputs {
            let source =
                self.layers.get(input.index()).ok_or_else(|| GraphError::ForeignInput {
                    layer: name.clone(),
                    index: input.index(),
                    layers: self.layers.len(),
                })?;
            if self.loss == Some(input) {
                return Err(GraphError::LossIsRead { layer: name, loss: source.name.clone() });
            }
            sources.push((source.name.as_str(), source.shape));
        }
        let inferred = infer(Site { layer: &name, kind: &kind, inputs: &sources })?;
        let is_loss = matches!(kind, LayerKind::SoftmaxCrossEntropy(_));
        if let (true, Some(first)) = (is_loss, self.loss) {
            let first = self.layers[first.index()].name.clone();
            return Err(GraphError::SecondLoss { first, second: name });
        }
        let trainable = inferred.params.iter().filter(|p| p.role.is_trainable());
        let sizes = trainable.map(Param::elements).chain([self.parameters]);
        self.parameters = checked_sum(&name, "the network up to here", sizes)?;
        let id = self.push(name, kind, inputs.to_vec(), inferred);
        if is_loss {
            self.loss = Some(id);
        }
        Ok(id)
    }

    /// The network, if it is whole.
    ///
    /// # Errors
    /// The network's name is not allowed, there is no input, or a layer is a dead branch: its output reaches neither
    /// the loss nor, in a network without a loss, the last layer.
    pub fn build(self) -> Result<Network, GraphError> {
        check_name(&self.name)?;
        let Some(input) = self.input else {
            return Err(GraphError::NoInput { network: self.name });
        };
        let output = self.loss.unwrap_or(LayerId::new(self.layers.len() - 1));
        let mut is_read = vec![false; self.layers.len()];
        for layer in &self.layers {
            for input in &layer.inputs {
                is_read[input.index()] = true;
            }
        }
        // Whatever does not reach the output ends in a layer that nobody reads.
        if let Some(dead) = self.layers.iter().find(|l| l.id != output && !is_read[l.id.index()]) {
            return Err(GraphError::DeadBranch {
                layer: dead.name.clone(),
                output: self.layers[output.index()].name.clone(),
            });
        }
        Ok(Network::new(self.name, self.layers, self.flops, input, output))
    }

    fn check_new(&self, name: &str) -> Result<(), GraphError> {
        check_name(name)?;
        if self.names.contains(name) {
            return Err(GraphError::DuplicateName { name: name.to_owned() });
        }
        Ok(())
    }

    fn push(
        &mut self,
        name: String,
        kind: LayerKind,
        inputs: Vec<LayerId>,
        inferred: Inferred,
    ) -> LayerId {
        let id = LayerId::new(self.layers.len());
        let Inferred { shape, params, flops } = inferred;
        self.names.insert(name.clone());
        self.layers.push(Layer { id, name, kind, inputs, shape, tied_to: None, params });
        self.flops.push(flops);
        id
    }
}
