//! The networks of the golden training runs. Layers are named as in PyTorch's `Sequential`, so that parameters have
//! the names of its `state_dict`.

use super::block::ResidualBlock;
use crate::builder::NetworkBuilder;
use crate::error::GraphError;
use crate::layer::{Conv2d, Linear, Pool, SoftmaxCrossEntropy};
use crate::network::Network;

/// Two hidden layers with sigmoids: 20 features, 7 classes.
///
/// # Errors
/// None: the settings are valid.
pub fn mlp() -> Result<Network, GraphError> {
    let mut net = NetworkBuilder::new("mlp");
    let data = net.input("data", 20)?;
    let fc0 = net.linear("0", data, Linear::new(32))?;
    let sigmoid1 = net.sigmoid("1", fc0)?;
    let fc2 = net.linear("2", sigmoid1, Linear::new(24))?;
    let sigmoid3 = net.sigmoid("3", fc2)?;
    let fc4 = net.linear("4", sigmoid3, Linear::new(7))?;
    net.softmax_cross_entropy("loss", fc4, SoftmaxCrossEntropy::default())?;
    net.build()
}

/// LeNet with 100 hidden features: 1x28x28, 10 classes.
///
/// # Errors
/// None: the settings are valid.
pub fn lenet() -> Result<Network, GraphError> {
    let mut net = NetworkBuilder::new("lenet");
    let data = net.input("data", (1, 28, 28))?;
    let conv0 = net.conv2d("0", data, Conv2d::new(20, 5))?;
    let relu1 = net.relu("1", conv0)?;
    let pool2 = net.max_pool("2", relu1, Pool::new(2))?;
    let conv3 = net.conv2d("3", pool2, Conv2d::new(50, 5))?;
    let relu4 = net.relu("4", conv3)?;
    let pool5 = net.max_pool("5", relu4, Pool::new(2))?;
    let flatten6 = net.flatten("6", pool5)?;
    let fc7 = net.linear("7", flatten6, Linear::new(100))?;
    let relu8 = net.relu("8", fc7)?;
    let fc9 = net.linear("9", relu8, Linear::new(10))?;
    net.softmax_cross_entropy("loss", fc9, SoftmaxCrossEntropy::default())?;
    net.build()
}

/// Three 3x3 convolutions and two linear layers: 3x16x16, 12 classes.
///
/// # Errors
/// None: the settings are valid.
pub fn small_vgg() -> Result<Network, GraphError> {
    let mut net = NetworkBuilder::new("small_vgg");
    let data = net.input("data", (3, 16, 16))?;
    let conv0 = net.conv2d("0", data, Conv2d::new(16, 3).pad(1))?;
    let relu1 = net.relu("1", conv0)?;
    let pool2 = net.max_pool("2", relu1, Pool::new(2))?;
    let conv3 = net.conv2d("3", pool2, Conv2d::new(24, 3).pad(1))?;
    let relu4 = net.relu("4", conv3)?;
    let conv5 = net.conv2d("5", relu4, Conv2d::new(24, 3).pad(1))?;
    let relu6 = net.relu("6", conv5)?;
    let pool7 = net.max_pool("7", relu6, Pool::new(2))?;
    let flatten8 = net.flatten("8", pool7)?;
    let fc9 = net.linear("9", flatten8, Linear::new(48))?;
    let relu10 = net.relu("10", fc9)?;
    let fc11 = net.linear("11", relu10, Linear::new(12))?;
    net.softmax_cross_entropy("loss", fc11, SoftmaxCrossEntropy::default())?;
    net.build()
}

/// A convolution and two residual blocks: 3x12x12, 5 classes.
///
/// # Errors
/// None: the settings are valid.
pub fn small_resnet() -> Result<Network, GraphError> {
    let mut net = NetworkBuilder::new("small_resnet");
    let data = net.input("data", (3, 12, 12))?;
    let conv0 = net.conv2d("0", data, Conv2d::new(16, 3).pad(1))?;
    let block1 = ResidualBlock { oc: 16, stride: 1, down: false }.append(&mut net, "1", conv0)?;
    let block2 = ResidualBlock { oc: 24, stride: 2, down: true }.append(&mut net, "2", block1)?;
    let pool3 = net.global_avg_pool("3", block2)?;
    let flatten4 = net.flatten("4", pool3)?;
    let fc5 = net.linear("5", flatten4, Linear::new(5))?;
    net.softmax_cross_entropy("loss", fc5, SoftmaxCrossEntropy::default())?;
    net.build()
}

/// Two convolutions over maps of different sizes and two linear layers that share weights and biases: 3x8x8, 6 classes.
///
/// # Errors
/// None: the settings are valid.
pub fn tied() -> Result<Network, GraphError> {
    let mut net = NetworkBuilder::new("tied");
    let data = net.input("data", (3, 8, 8))?;
    let conv0 = net.conv2d("0", data, Conv2d::new(32, 3).pad(1))?;
    let relu1 = net.relu("1", conv0)?;
    let conv2 = net.conv2d("2", relu1, Conv2d::new(32, 3).pad(1))?;
    let relu3 = net.relu("3", conv2)?;
    let conv4 = net.conv2d("4", relu3, Conv2d::new(32, 3).stride(2).pad(1))?;
    let relu5 = net.relu("5", conv4)?;
    let pool6 = net.max_pool("6", relu5, Pool::new(2))?;
    let flatten7 = net.flatten("7", pool6)?;
    let fc8 = net.linear("8", flatten7, Linear::new(48))?;
    let sigmoid9 = net.sigmoid("9", fc8)?;
    let fc10 = net.linear("10", sigmoid9, Linear::new(48))?;
    let relu11 = net.relu("11", fc10)?;
    let fc12 = net.linear("12", relu11, Linear::new(48))?;
    let relu13 = net.relu("13", fc12)?;
    let fc14 = net.linear("14", relu13, Linear::new(6))?;
    net.tie(conv4, conv2)?;
    net.tie(fc12, fc10)?;
    net.softmax_cross_entropy("loss", fc14, SoftmaxCrossEntropy::default())?;
    net.build()
}
