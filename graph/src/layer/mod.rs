//! Layers: what kinds there are, their settings and their parameters.
//!
//! Settings are plain data with the defaults of PyTorch's layers; [`NetworkBuilder`](crate::NetworkBuilder) checks them.

mod vertex;
mod kind;
mod window;
mod weighted;
mod pool;
mod normalization;
mod dropout;
mod loss;
mod param;

pub use dropout::Dropout;
pub use kind::LayerKind;
pub use loss::SoftmaxCrossEntropy;
pub use normalization::{BatchNorm, Lrn, Statistics};
pub use param::{Param, ParamRole};
pub use pool::{AvgPool, Pool};
pub use vertex::{Layer, LayerId};
pub use weighted::{Conv2d, Linear};
pub use window::{HeightWidth, Window};
