//! The residual block that several networks share.

use crate::builder::NetworkBuilder;
use crate::error::GraphError;
use crate::layer::{BatchNorm, Conv2d, LayerId};

/// Settings of a residual block.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResidualBlock {
    pub(super) oc: usize,
    pub(super) stride: usize,
    /// Whether a 1x1 convolution fits the shortcut to another number of channels or another size.
    pub(super) down: bool,
}

impl ResidualBlock {
    /// `relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x))`; all names begin with `prefix.`.
    ///
    /// # Source
    /// He et al. 2016, figure 2 and section 3.3, option B without batch normalization on the shortcut.
    pub(super) fn append(
        self,
        net: &mut NetworkBuilder,
        prefix: &str,
        from: LayerId,
    ) -> Result<LayerId, GraphError> {
        let name = |layer: &str| format!("{prefix}.{layer}");
        let Self { oc, stride, down } = self;
        let conv1 = Conv2d::new(oc, 3).stride(stride).pad(1).no_bias();
        let conv1 = net.conv2d(name("conv1"), from, conv1)?;
        let bn1 = net.batch_norm(name("bn1"), conv1, BatchNorm::default())?;
        let relu1 = net.relu(name("relu1"), bn1)?;
        let conv2 = net.conv2d(name("conv2"), relu1, Conv2d::new(oc, 3).pad(1).no_bias())?;
        let bn2 = net.batch_norm(name("bn2"), conv2, BatchNorm::default())?;
        let shortcut = if down {
            net.conv2d(name("down"), from, Conv2d::new(oc, 1).stride(stride).no_bias())?
        } else {
            from
        };
        let sum = net.add(name("add"), &[bn2, shortcut])?;
        net.relu(name("relu2"), sum)
    }
}
