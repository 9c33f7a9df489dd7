//! ResNet-50.

use super::bottleneck::Bottleneck;
use crate::builder::NetworkBuilder;
use crate::error::GraphError;
use crate::layer::{BatchNorm, Conv2d, Linear, Pool, SoftmaxCrossEntropy};
use crate::network::Network;

/// ResNet with 50 weighted layers: 3x224x224, 1000 classes, 25,557,032 parameters, under torchvision's names.
///
/// # Errors
/// None: the settings are valid.
///
/// # Source
/// He et al. 2016, "Deep residual learning for image recognition", table 1; the stride of a stage is in its first 3x3
/// convolution, as in torchvision's network ("v1.5").
pub fn resnet50() -> Result<Network, GraphError> {
    let mut net = NetworkBuilder::new("resnet50");
    let data = net.input("data", (3, 224, 224))?;
    let conv = net.conv2d("conv1", data, Conv2d::new(64, 7).stride(2).pad(3).no_bias())?;
    let bn = net.batch_norm("bn1", conv, BatchNorm::default())?;
    let relu = net.relu("relu", bn)?;
    let mut last = net.max_pool("maxpool", relu, Pool::new(3).stride(2).pad(1))?;
    for (stage, width, blocks) in [(1, 64, 3), (2, 128, 4), (3, 256, 6), (4, 512, 3)] {
        for index in 0..blocks {
            let stride = if stage > 1 && index == 0 { 2 } else { 1 };
            let block = Bottleneck { width, stride, downsample: index == 0 };
            last = block.append(&mut net, &format!("layer{stage}.{index}"), last)?;
        }
    }
    let pool = net.global_avg_pool("avgpool", last)?;
    let features = net.flatten("flatten", pool)?;
    let logits = net.linear("fc", features, Linear::new(1000))?;
    net.softmax_cross_entropy("loss", logits, SoftmaxCrossEntropy::default())?;
    net.build()
}
