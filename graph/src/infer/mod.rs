//! Shape inference: from a layer's settings and the shapes it reads to its output, parameters and cost.
//!
//! One file a family of layers. Every check that concerns a single layer is here; what concerns the whole network is
//! in [`builder`](crate::builder).

mod size;
mod window;
mod convolution;
mod linear;
mod pool;
mod elementwise;
mod normalization;
mod join;
mod head;

pub(crate) use size::{check_shape, checked_sum};

use crate::error::GraphError;
use crate::layer::{LayerKind, Param};
use crate::shape::Shape;

/// What a layer is asked about: its name and kind, and name and shape of each layer that it reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) layer: &'a str,
    pub(crate) kind: &'a LayerKind,
    pub(crate) inputs: &'a [(&'a str, Shape)],
}

impl Site<'_> {
    /// The only input's shape.
    fn src(&self) -> Result<Shape, GraphError> {
        match self.inputs {
            [(_, shape)] => Ok(*shape),
            _ => Err(self.wrong_input_count("1 input")),
        }
    }

    /// The only input's channels, height and width, where features will not do.
    fn src_maps(&self) -> Result<(usize, usize, usize), GraphError> {
        match self.src()? {
            Shape::Maps { c, h, w } => Ok((c, h, w)),
            got @ Shape::Features(_) => Err(GraphError::MapsExpected {
                layer: self.layer.to_owned(),
                kind: self.kind.name(),
                got,
            }),
        }
    }

    /// The only input's features, where maps will not do.
    fn src_features(&self) -> Result<usize, GraphError> {
        match self.src()? {
            Shape::Features(features) => Ok(features),
            got @ Shape::Maps { .. } => Err(GraphError::FeaturesExpected {
                layer: self.layer.to_owned(),
                kind: self.kind.name(),
                got,
            }),
        }
    }

    fn wrong_input_count(&self, expected: &'static str) -> GraphError {
        GraphError::WrongInputCount {
            layer: self.layer.to_owned(),
            kind: self.kind.name(),
            expected,
            got: self.inputs.len(),
        }
    }
}

/// What follows from a layer's settings and inputs.
#[derive(Debug)]
pub(crate) struct Inferred {
    pub(crate) shape: Shape,
    pub(crate) params: Vec<Param>,
    /// Of the forward pass, for one sample.
    pub(crate) flops: u64,
}

impl Inferred {
    fn without_params(shape: Shape, flops: u64) -> Self {
        Self { shape, params: Vec::new(), flops }
    }
}

/// Infers one layer that is not an input.
pub(crate) fn infer(site: Site<'_>) -> Result<Inferred, GraphError> {
    let inferred = match site.kind {
        LayerKind::Input => return Err(site.wrong_input_count("no inputs")),
        LayerKind::Conv2d(conv) => convolution::conv2d(site, conv)?,
        LayerKind::Linear(linear) => linear::linear(site, *linear)?,
        LayerKind::Bias => elementwise::bias(site)?,
        LayerKind::Relu => elementwise::function(site, 1)?,
        LayerKind::Sigmoid | LayerKind::Tanh => elementwise::function(site, 10)?,
        LayerKind::MaxPool(pool) => pool::pool(site, pool)?,
        LayerKind::AvgPool(average) => pool::pool(site, &average.pool)?,
        LayerKind::GlobalAvgPool => pool::global(site)?,
        LayerKind::Lrn(lrn) => normalization::lrn(site, lrn)?,
        LayerKind::BatchNorm(norm) => normalization::batch_norm(site, norm)?,
        LayerKind::Dropout(dropout) => elementwise::dropout(site, *dropout)?,
        LayerKind::Add => join::add(site)?,
        LayerKind::Concat => join::concat(site)?,
        LayerKind::Flatten => head::flatten(site)?,
        LayerKind::SoftmaxCrossEntropy(loss) => head::softmax_cross_entropy(site, *loss)?,
    };
    check_shape(site.layer, inferred.shape)?;
    Ok(inferred)
}
