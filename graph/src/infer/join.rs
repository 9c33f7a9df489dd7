//! Layers with several inputs: sum and concatenation.

use super::size::{checked_sum, flops};
use super::{Inferred, Site};
use crate::error::GraphError;
use crate::shape::Shape;

/// One addition a value and input but the first; all shapes are the same.
pub(super) fn add(site: Site<'_>) -> Result<Inferred, GraphError> {
    let [(_, shape), rest @ ..] = site.inputs else {
        return Err(site.wrong_input_count("2 or more inputs"));
    };
    if rest.is_empty() {
        return Err(site.wrong_input_count("2 or more inputs"));
    }
    if rest.iter().any(|(_, other)| other != shape) {
        return Err(GraphError::AddMismatch {
            layer: site.layer.to_owned(),
            inputs: named(site.inputs),
        });
    }
    let flops = flops(site, &[rest.len(), shape.elements()])?;
    Ok(Inferred::without_params(*shape, flops))
}

/// The sum of the channels; heights and widths are the same, and maps do not mix with features.
pub(super) fn concat(site: Site<'_>) -> Result<Inferred, GraphError> {
    if site.inputs.len() < 2 {
        return Err(site.wrong_input_count("2 or more inputs"));
    }
    let channels = site.inputs.iter().map(|(_, shape)| shape.maps().0);
    let channels = checked_sum(site.layer, "output", channels)?;
    let joined = site.inputs.iter().map(|(_, shape)| with_channels(*shape, channels));
    let first = with_channels(site.inputs[0].1, channels);
    if joined.into_iter().any(|shape| shape != first) {
        return Err(GraphError::ConcatMismatch {
            layer: site.layer.to_owned(),
            inputs: named(site.inputs),
        });
    }
    Ok(Inferred::without_params(first, 0))
}

fn with_channels(shape: Shape, c: usize) -> Shape {
    match shape {
        Shape::Features(_) => Shape::Features(c),
        Shape::Maps { h, w, .. } => Shape::Maps { c, h, w },
    }
}

fn named(inputs: &[(&str, Shape)]) -> Vec<(String, Shape)> {
    inputs.iter().map(|(name, shape)| ((*name).to_owned(), *shape)).collect()
}
