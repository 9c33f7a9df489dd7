//! One builder method a kind of layer.
//!
//! All return the new layer's id, to be read by later layers. Output sizes follow PyTorch's rules.

use super::assembly::NetworkBuilder;
use crate::error::GraphError;
use crate::layer::{
    AvgPool, BatchNorm, Conv2d, Dropout, LayerId, LayerKind, Linear, Lrn, Pool, SoftmaxCrossEntropy,
};
use crate::shape::Shape;

/// What a builder method returns.
type Added = Result<LayerId, GraphError>;

impl NetworkBuilder {
    /// Adds the input: the shape of one sample, as features or as (channels, height, width).
    ///
    /// # Errors
    /// The name is taken or not allowed, there is an input already, or a size is zero.
    pub fn input(&mut self, name: impl Into<String>, shape: impl Into<Shape>) -> Added {
        self.insert_input(name.into(), shape.into())
    }

    /// Adds a convolution.
    ///
    /// # Shapes
    /// `(ic, ih, iw)` to `(oc, (ih + 2 ph - kh) / sh + 1, (iw + 2 pw - kw) / sw + 1)`, divisions rounded down.
    ///
    /// # Errors
    /// The name is taken or not allowed, or `from` is of another builder or the loss;
    /// `from` has no maps, the window does not fit, the groups do not divide the channels, or a size is zero.
    pub fn conv2d(&mut self, name: impl Into<String>, from: LayerId, conv: Conv2d) -> Added {
        self.insert(name, LayerKind::Conv2d(conv), &[from])
    }

    /// Adds a linear layer.
    ///
    /// # Errors
    /// The name is taken or not allowed, or `from` is of another builder or the loss;
    /// `from` has maps, or a size is zero.
    pub fn linear(&mut self, name: impl Into<String>, from: LayerId, linear: Linear) -> Added {
        self.insert(name, LayerKind::Linear(linear), &[from])
    }

    /// Adds a learned number to each channel.
    ///
    /// # Errors
    /// The name is taken or not allowed, or `from` is of another builder or the loss.
    pub fn bias(&mut self, name: impl Into<String>, from: LayerId) -> Added {
        self.insert(name, LayerKind::Bias, &[from])
    }

    /// Adds `max(x, 0)`.
    ///
    /// # Errors
    /// The name is taken or not allowed, or `from` is of another builder or the loss.
    pub fn relu(&mut self, name: impl Into<String>, from: LayerId) -> Added {
        self.insert(name, LayerKind::Relu, &[from])
    }

    /// Adds `1 / (1 + exp(-x))`.
    ///
    /// # Errors
    /// The name is taken or not allowed, or `from` is of another builder or the loss.
    pub fn sigmoid(&mut self, name: impl Into<String>, from: LayerId) -> Added {
        self.insert(name, LayerKind::Sigmoid, &[from])
    }

    /// Adds the hyperbolic tangent.
    ///
    /// # Errors
    /// The name is taken or not allowed, or `from` is of another builder or the loss.
    pub fn tanh(&mut self, name: impl Into<String>, from: LayerId) -> Added {
        self.insert(name, LayerKind::Tanh, &[from])
    }

    /// Adds max pooling.
    ///
    /// # Shapes
    /// Each axis: `(i + 2 p - k) / s + 1`, rounded down. In ceil mode rounded up, less a last window that would start in
    /// the padding behind the map.
    ///
    /// # Errors
    /// The name is taken or not allowed, or `from` is of another builder or the loss;
    /// `from` has no maps, the window does not fit, padding is more than half of it, or a size is zero.
    pub fn max_pool(&mut self, name: impl Into<String>, from: LayerId, pool: Pool) -> Added {
        self.insert(name, LayerKind::MaxPool(pool), &[from])
    }

    /// Adds average pooling; shapes and errors as [`NetworkBuilder::max_pool`].
    ///
    /// # Errors
    /// The name is taken or not allowed, or `from` is of another builder or the loss;
    /// the window is at fault.
    pub fn avg_pool(
        &mut self,
        name: impl Into<String>,
        from: LayerId,
        pool: impl Into<AvgPool>,
    ) -> Added {
        self.insert(name, LayerKind::AvgPool(pool.into()), &[from])
    }

    /// Adds the mean of each channel: `(c, h, w)` to `(c, 1, 1)`.
    ///
    /// # Errors
    /// The name is taken or not allowed, or `from` is of another builder or the loss;
    /// `from` has no maps.
    pub fn global_avg_pool(&mut self, name: impl Into<String>, from: LayerId) -> Added {
        self.insert(name, LayerKind::GlobalAvgPool, &[from])
    }

    /// Adds local response normalization.
    ///
    /// # Errors
    /// The name is taken or not allowed, or `from` is of another builder or the loss;
    /// `from` has no maps, or a setting makes no sense.
    pub fn lrn(&mut self, name: impl Into<String>, from: LayerId, lrn: Lrn) -> Added {
        self.insert(name, LayerKind::Lrn(lrn), &[from])
    }

    /// Adds batch normalization, of maps or features.
    ///
    /// # Errors
    /// The name is taken or not allowed, or `from` is of another builder or the loss;
    /// a setting makes no sense.
    pub fn batch_norm(&mut self, name: impl Into<String>, from: LayerId, norm: BatchNorm) -> Added {
        self.insert(name, LayerKind::BatchNorm(norm), &[from])
    }

    /// Adds dropout.
    ///
    /// # Errors
    /// The name is taken or not allowed, or `from` is of another builder or the loss;
    /// `p` is outside [0, 1).
    pub fn dropout(&mut self, name: impl Into<String>, from: LayerId, dropout: Dropout) -> Added {
        self.insert(name, LayerKind::Dropout(dropout), &[from])
    }

    /// Adds the sum of two or more layers of one shape.
    ///
    /// # Errors
    /// As for one input; the shapes differ, or there are fewer than two.
    pub fn add(&mut self, name: impl Into<String>, from: &[LayerId]) -> Added {
        self.insert(name, LayerKind::Add, from)
    }

    /// Adds the channels of two or more layers one after another.
    ///
    /// # Errors
    /// As for one input; heights or widths differ, or there are fewer than two.
    pub fn concat(&mut self, name: impl Into<String>, from: &[LayerId]) -> Added {
        self.insert(name, LayerKind::Concat, from)
    }

    /// Turns maps into features, channel by channel.
    ///
    /// # Errors
    /// The name is taken or not allowed, or `from` is of another builder or the loss.
    pub fn flatten(&mut self, name: impl Into<String>, from: LayerId) -> Added {
        self.insert(name, LayerKind::Flatten, &[from])
    }

    /// Adds the loss. There is one, and nothing follows it.
    ///
    /// # Errors
    /// The name is taken or not allowed, or `from` is of another builder or the loss;
    /// `from` has maps, there is a loss already, or a setting makes no sense.
    pub fn softmax_cross_entropy(
        &mut self,
        name: impl Into<String>,
        from: LayerId,
        loss: SoftmaxCrossEntropy,
    ) -> Added {
        self.insert(name, LayerKind::SoftmaxCrossEntropy(loss), &[from])
    }
}
