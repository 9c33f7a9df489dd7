//! Multilayer perceptrons.

use crate::builder::NetworkBuilder;
use crate::error::GraphError;
use crate::layer::{Linear, SoftmaxCrossEntropy};
use crate::network::Network;
use crate::shape::Shape;

/// A perceptron with the given hidden layers, each followed by a ReLU; maps are flattened first.
///
/// # Errors
/// A size is zero, or too large.
///
/// # Examples
/// ```
/// let net = lockstep_graph::zoo::mlp(429, &[2048, 2048], 9304)?;
/// assert_eq!(net.find("fc3").unwrap().params[0].shape, [9304, 2048]);
/// # Ok::<(), lockstep_graph::GraphError>(())
/// ```
pub fn mlp(
    input: impl Into<Shape>,
    hidden: &[usize],
    classes: usize,
) -> Result<Network, GraphError> {
    let input = input.into();
    let mut net = NetworkBuilder::new("mlp");
    let mut last = net.input("data", input)?;
    if let Shape::Maps { .. } = input {
        last = net.flatten("flatten", last)?;
    }
    for (index, &features) in hidden.iter().enumerate() {
        let number = index + 1;
        last = net.linear(format!("fc{number}"), last, Linear::new(features))?;
        last = net.relu(format!("relu{number}"), last)?;
    }
    let logits = net.linear(format!("fc{}", hidden.len() + 1), last, Linear::new(classes))?;
    net.softmax_cross_entropy("loss", logits, SoftmaxCrossEntropy::default())?;
    net.build()
}
