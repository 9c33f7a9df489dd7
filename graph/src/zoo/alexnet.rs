//! AlexNet in its form for one device.

use super::activated::{classifier, conv_relu};
use crate::builder::NetworkBuilder;
use crate::error::GraphError;
use crate::layer::{Conv2d, Pool};
use crate::network::Network;

/// AlexNet with one tower, without normalization and dropout: 3x224x224, 1000 classes, 61,100,840 parameters.
///
/// # Errors
/// None: the settings are valid.
///
/// # Source
/// Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks", footnote 1, with the 256 maps of the
/// fourth convolution that torchvision's network has.
pub fn alexnet() -> Result<Network, GraphError> {
    let mut net = NetworkBuilder::new("alexnet");
    let pool = Pool::new(3).stride(2);
    let mut last = net.input("data", (3, 224, 224))?;
    last = conv_relu(&mut net, "conv1", last, Conv2d::new(64, 11).stride(4).pad(2))?;
    last = net.max_pool("pool1", last, pool)?;
    last = conv_relu(&mut net, "conv2", last, Conv2d::new(192, 5).pad(2))?;
    last = net.max_pool("pool2", last, pool)?;
    for (name, channels) in [("conv3", 384), ("conv4", 256), ("conv5", 256)] {
        last = conv_relu(&mut net, name, last, Conv2d::new(channels, 3).pad(1))?;
    }
    last = net.max_pool("pool5", last, pool)?;
    classifier(&mut net, last, 6, &[4096, 4096, 1000])?;
    net.build()
}
