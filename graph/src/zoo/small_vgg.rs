//! A small network in the style of VGG.

use crate::builder::NetworkBuilder;
use crate::error::GraphError;
use crate::layer::{Conv2d, Dropout, Linear, Pool, SoftmaxCrossEntropy};
use crate::network::Network;

/// Three stages of two 3x3 convolutions and a pooling, then two linear layers: 3x32x32, 10 classes.
///
/// # Errors
/// None: the settings are valid.
///
/// # Source
/// The pattern of Simonyan and Zisserman 2015, table 1, scaled down.
pub fn small_vgg() -> Result<Network, GraphError> {
    let mut net = NetworkBuilder::new("small-vgg");
    let mut last = net.input("data", (3, 32, 32))?;
    for (stage, channels) in [(1, 32), (2, 64), (3, 128)] {
        for step in [1, 2] {
            let conv = Conv2d::new(channels, 3).pad(1);
            last = net.conv2d(format!("conv{stage}_{step}"), last, conv)?;
            last = net.relu(format!("relu{stage}_{step}"), last)?;
        }
        last = net.max_pool(format!("pool{stage}"), last, Pool::new(2))?;
    }
    let features = net.flatten("flatten", last)?;
    let fc1 = net.linear("fc1", features, Linear::new(256))?;
    let relu = net.relu("relu4", fc1)?;
    let drop = net.dropout("drop", relu, Dropout::new(0.5))?;
    let fc2 = net.linear("fc2", drop, Linear::new(10))?;
    net.softmax_cross_entropy("loss", fc2, SoftmaxCrossEntropy::default())?;
    net.build()
}
