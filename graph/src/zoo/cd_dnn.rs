//! The speech network of the paper.

use crate::builder::NetworkBuilder;
use crate::error::GraphError;
use crate::layer::{Linear, SoftmaxCrossEntropy};
use crate::network::Network;

/// CD-DNN: seven hidden layers of 2048 sigmoids: 429 features, 9304 classes, 45,122,648 parameters.
///
/// # Errors
/// None: the settings are valid.
///
/// # Source
/// Seide et al. 2011, "Conversational speech transcription using context-dependent deep neural networks": 11 frames of
/// 39 features, 9304 tied states.
pub fn cd_dnn() -> Result<Network, GraphError> {
    let mut net = NetworkBuilder::new("cd-dnn");
    let mut last = net.input("data", 429)?;
    for number in 1..=7 {
        last = net.linear(format!("fc{number}"), last, Linear::new(2048))?;
        last = net.sigmoid(format!("fc{number}.sigmoid"), last)?;
    }
    let logits = net.linear("fc8", last, Linear::new(9304))?;
    net.softmax_cross_entropy("loss", logits, SoftmaxCrossEntropy::default())?;
    net.build()
}
