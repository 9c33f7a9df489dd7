//! VGG-A, the network of the paper's largest scaling result.

use super::activated::{classifier, conv_relu};
use crate::builder::NetworkBuilder;
use crate::error::GraphError;
use crate::layer::{Conv2d, Pool};
use crate::network::Network;

/// VGG with 11 weighted layers, without dropout: 3x224x224, 1000 classes, 132,863,336 parameters.
///
/// # Errors
/// None: the settings are valid.
///
/// # Source
/// Simonyan and Zisserman 2015, "Very deep convolutional networks for large-scale image recognition", table 1, column A.
/// Dropout is left out, as in throughput measurements of others.
pub fn vgg_a() -> Result<Network, GraphError> {
    let mut net = NetworkBuilder::new("vgg-a");
    let mut last = net.input("data", (3, 224, 224))?;
    for (stage, channels, steps) in [(1, 64, 1), (2, 128, 1), (3, 256, 2), (4, 512, 2), (5, 512, 2)]
    {
        for step in 1..=steps {
            let conv = Conv2d::new(channels, 3).pad(1);
            last = conv_relu(&mut net, &format!("conv{stage}_{step}"), last, conv)?;
        }
        last = net.max_pool(format!("pool{stage}"), last, Pool::new(2))?;
    }
    classifier(&mut net, last, 6, &[4096, 4096, 1000])?;
    net.build()
}
