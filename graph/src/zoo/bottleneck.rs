//! The residual block with a bottleneck.

use crate::builder::NetworkBuilder;
use crate::error::GraphError;
use crate::layer::{BatchNorm, Conv2d, LayerId};

/// How many times the block's width its output has channels.
const EXPANSION: usize = 4;

/// Settings of a bottleneck block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bottleneck {
    /// Channels between the two 1x1 convolutions.
    pub(super) width: usize,
    pub(super) stride: usize,
    /// Whether a 1x1 convolution fits the shortcut to another number of channels or another size.
    pub(super) downsample: bool,
}

impl Bottleneck {
    /// `relu(bn3(1x1(relu(bn2(3x3(relu(bn1(1x1(x)))))))) + shortcut(x))`; all names begin with `prefix.` and are torchvision's.
    ///
    /// # Source
    /// He et al. 2016, figure 5 right, option B; the stride is in the 3x3 convolution (Goyal et al. 2017, section 5.1).
    pub(super) fn append(
        self,
        net: &mut NetworkBuilder,
        prefix: &str,
        from: LayerId,
    ) -> Result<LayerId, GraphError> {
        let Self { width, stride, downsample } = self;
        let oc = EXPANSION * width;
        let first = Conv2d::new(width, 1).no_bias();
        let second = Conv2d::new(width, 3).stride(stride).pad(1).no_bias();
        let mut last = from;
        for (number, conv) in [(1, first), (2, second)] {
            last = net.conv2d(format!("{prefix}.conv{number}"), last, conv)?;
            last = net.batch_norm(format!("{prefix}.bn{number}"), last, BatchNorm::default())?;
            last = net.relu(format!("{prefix}.relu{number}"), last)?;
        }
        let conv3 = net.conv2d(format!("{prefix}.conv3"), last, Conv2d::new(oc, 1).no_bias())?;
        let bn3 = net.batch_norm(format!("{prefix}.bn3"), conv3, BatchNorm::default())?;
        let shortcut = if downsample {
            let conv = Conv2d::new(oc, 1).stride(stride).no_bias();
            let conv = net.conv2d(format!("{prefix}.downsample.0"), from, conv)?;
            net.batch_norm(format!("{prefix}.downsample.1"), conv, BatchNorm::default())?
        } else {
            from
        };
        let sum = net.add(format!("{prefix}.add"), &[bn3, shortcut])?;
        net.relu(format!("{prefix}.relu3"), sum)
    }
}
