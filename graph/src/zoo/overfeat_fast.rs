//! OverFeat in its fast form.

use super::activated::{classifier, conv_relu};
use crate::builder::NetworkBuilder;
use crate::error::GraphError;
use crate::layer::{Conv2d, Pool};
use crate::network::Network;

/// OverFeat-FAST without dropout: 3x231x231, 1000 classes, 145,920,872 parameters.
///
/// # Errors
/// None: the settings are valid.
///
/// # Source
/// Sermanet et al. 2014, "OverFeat: integrated recognition, localization and detection using convolutional networks",
/// table 1. Its first and second convolution are not padded, the others by one pixel.
pub fn overfeat_fast() -> Result<Network, GraphError> {
    let mut net = NetworkBuilder::new("overfeat-fast");
    let mut last = net.input("data", (3, 231, 231))?;
    last = conv_relu(&mut net, "conv1", last, Conv2d::new(96, 11).stride(4))?;
    last = net.max_pool("pool1", last, Pool::new(2))?;
    last = conv_relu(&mut net, "conv2", last, Conv2d::new(256, 5))?;
    last = net.max_pool("pool2", last, Pool::new(2))?;
    for (name, channels) in [("conv3", 512), ("conv4", 1024), ("conv5", 1024)] {
        last = conv_relu(&mut net, name, last, Conv2d::new(channels, 3).pad(1))?;
    }
    last = net.max_pool("pool5", last, Pool::new(2))?;
    classifier(&mut net, last, 6, &[3072, 4096, 1000])?;
    net.build()
}
