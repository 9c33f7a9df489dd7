//! A weighted layer and the function after it, as most networks have them by the dozen.

use crate::builder::NetworkBuilder;
use crate::error::GraphError;
use crate::layer::{Conv2d, LayerId, Linear, SoftmaxCrossEntropy};

/// A convolution called `name`, then its ReLU, `name.relu`.
pub(super) fn conv_relu(
    net: &mut NetworkBuilder,
    name: &str,
    from: LayerId,
    conv: Conv2d,
) -> Result<LayerId, GraphError> {
    let conv = net.conv2d(name, from, conv)?;
    net.relu(format!("{name}.relu"), conv)
}

/// Flattens, then the linear layers `fc{first}`, `fc{first + 1}` and so on, with a ReLU after each but the last, then
/// the loss.
pub(super) fn classifier(
    net: &mut NetworkBuilder,
    from: LayerId,
    first: usize,
    widths: &[usize],
) -> Result<(), GraphError> {
    let mut last = net.flatten("flatten", from)?;
    for (index, &features) in widths.iter().enumerate() {
        let name = format!("fc{}", first + index);
        last = net.linear(&name, last, Linear::new(features))?;
        if index + 1 < widths.len() {
            last = net.relu(format!("{name}.relu"), last)?;
        }
    }
    net.softmax_cross_entropy("loss", last, SoftmaxCrossEntropy::default())?;
    Ok(())
}
