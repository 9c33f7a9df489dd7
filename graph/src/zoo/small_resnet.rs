//! A small residual network.

use super::block::ResidualBlock;
use crate::builder::NetworkBuilder;
use crate::error::GraphError;
use crate::layer::{BatchNorm, Conv2d, Linear, SoftmaxCrossEntropy};
use crate::network::Network;

/// Three residual blocks of 16, 32 and 64 channels with batch normalization: 3x32x32, 10 classes.
///
/// # Errors
/// None: the settings are valid.
///
/// # Source
/// He et al. 2016, section 4.2, with one block a stage.
pub fn small_resnet() -> Result<Network, GraphError> {
    let mut net = NetworkBuilder::new("small-resnet");
    let data = net.input("data", (3, 32, 32))?;
    let conv = net.conv2d("conv", data, Conv2d::new(16, 3).pad(1).no_bias())?;
    let bn = net.batch_norm("bn", conv, BatchNorm::default())?;
    let mut last = net.relu("relu", bn)?;
    for (prefix, oc, stride) in [("block1", 16, 1), ("block2", 32, 2), ("block3", 64, 2)] {
        let block = ResidualBlock { oc, stride, down: stride > 1 };
        last = block.append(&mut net, prefix, last)?;
    }
    let pool = net.global_avg_pool("pool", last)?;
    let features = net.flatten("flatten", pool)?;
    let logits = net.linear("fc", features, Linear::new(10))?;
    net.softmax_cross_entropy("loss", logits, SoftmaxCrossEntropy::default())?;
    net.build()
}
