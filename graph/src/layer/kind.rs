//! What a layer computes.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::dropout::Dropout;
use super::loss::SoftmaxCrossEntropy;
use super::normalization::{BatchNorm, Lrn, Statistics};
use super::pool::{AvgPool, Pool};
use super::weighted::{Conv2d, Linear};

/// What a layer computes, with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerKind {
    /// The samples.
    Input,
    /// A 2-D convolution.
    Conv2d(Conv2d),
    /// A linear layer: features times a matrix.
    Linear(Linear),
    /// Adds a learned number to each channel.
    Bias,
    /// `max(x, 0)`.
    Relu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// The maximum of each window.
    MaxPool(Pool),
    /// The mean of each window.
    AvgPool(AvgPool),
    /// The mean of each channel; the output has one pixel.
    GlobalAvgPool,
    /// Local response normalization.
    Lrn(Lrn),
    /// Batch normalization.
    BatchNorm(BatchNorm),
    /// Dropout.
    Dropout(Dropout),
    /// The sum of two or more tensors of one shape.
    Add,
    /// The channels of two or more tensors, one after another.
    Concat,
    /// Maps as one vector of features, channel by channel.
    Flatten,
    /// The loss.
    SoftmaxCrossEntropy(SoftmaxCrossEntropy),
}

impl LayerKind {
    /// The kind's name in JSON and messages, such as `conv2d`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Conv2d(_) => "conv2d",
            Self::Linear(_) => "linear",
            Self::Bias => "bias",
            Self::Relu => "relu",
            Self::Sigmoid => "sigmoid",
            Self::Tanh => "tanh",
            Self::MaxPool(_) => "max_pool",
            Self::AvgPool(_) => "avg_pool",
            Self::GlobalAvgPool => "global_avg_pool",
            Self::Lrn(_) => "lrn",
            Self::BatchNorm(_) => "batch_norm",
            Self::Dropout(_) => "dropout",
            Self::Add => "add",
            Self::Concat => "concat",
            Self::Flatten => "flatten",
            Self::SoftmaxCrossEntropy(_) => "softmax_cross_entropy",
        }
    }
}

impl fmt::Display for LayerKind {
    /// Name and settings, such as `conv2d 20 5x5`; settings that are as usual are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Conv2d(conv) => {
                write!(f, " {} {}", conv.oc, conv.window)?;
                if conv.groups != 1 {
                    write!(f, " groups {}", conv.groups)?;
                }
                f.write_str(if conv.bias { "" } else { " no bias" })
            }
            Self::Linear(linear) => {
                write!(f, " {}", linear.out_features)?;
                f.write_str(if linear.bias { "" } else { " no bias" })
            }
            Self::MaxPool(pool) => write_pool(f, pool),
            Self::AvgPool(average) => {
                write_pool(f, &average.pool)?;
                f.write_str(if average.include_pad { "" } else { " exclude pad" })
            }
            Self::Lrn(lrn) => write!(f, " {}", lrn.size),
            Self::BatchNorm(norm) if norm.statistics == Statistics::PerRank => {
                f.write_str(" per rank")
            }
            Self::Dropout(dropout) => write!(f, " {}", dropout.p),
            Self::SoftmaxCrossEntropy(loss) if loss.label_smoothing != 0.0 => {
                write!(f, " smoothing {}", loss.label_smoothing)
            }
            _ => Ok(()),
        }
    }
}

fn write_pool(f: &mut fmt::Formatter<'_>, pool: &Pool) -> fmt::Result {
    write!(f, " {}", pool.window)?;
    f.write_str(if pool.ceil { " ceil" } else { "" })
}
