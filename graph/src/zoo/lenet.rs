//! LeNet for handwritten digits.

use crate::builder::NetworkBuilder;
use crate::error::GraphError;
use crate::layer::{Conv2d, Linear, Pool, SoftmaxCrossEntropy};
use crate::network::Network;

/// LeNet as Caffe trains it on MNIST, with ReLU after each convolution: 1x28x28, 10 classes, 431,080 parameters.
///
/// # Errors
/// None: the settings are valid.
///
/// # Source
/// LeCun et al. 1998, "Gradient-based learning applied to document recognition"; sizes of Caffe's example.
pub fn lenet() -> Result<Network, GraphError> {
    let mut net = NetworkBuilder::new("lenet");
    let data = net.input("data", (1, 28, 28))?;
    let conv1 = net.conv2d("conv1", data, Conv2d::new(20, 5))?;
    let relu1 = net.relu("relu1", conv1)?;
    let pool1 = net.max_pool("pool1", relu1, Pool::new(2))?;
    let conv2 = net.conv2d("conv2", pool1, Conv2d::new(50, 5))?;
    let relu2 = net.relu("relu2", conv2)?;
    let pool2 = net.max_pool("pool2", relu2, Pool::new(2))?;
    let features = net.flatten("flatten", pool2)?;
    let fc1 = net.linear("fc1", features, Linear::new(500))?;
    let relu3 = net.relu("relu3", fc1)?;
    let fc2 = net.linear("fc2", relu3, Linear::new(10))?;
    net.softmax_cross_entropy("loss", fc2, SoftmaxCrossEntropy::default())?;
    net.build()
}
