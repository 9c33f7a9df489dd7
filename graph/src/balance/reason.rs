//! Why a layer has its mesh, as one sentence.

use std::fmt;

use crate::placement::Mesh;

/// Why a layer has its mesh; prints as one sentence.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// The layer works on the features that its input left on each rank.
    Follows {
        /// The input's name.
        input: String,
    },
    /// The layer has the mesh of an earlier one, because parameters are tied between them or between layers that follow them.
    Tied {
        /// The earlier layer's name.
        to: String,
    },
    /// Parameters are tied between the layer, or one that follows it, and a layer that is data-parallel.
    TiedToWholeSamples,
    /// The layer needs all channels of a sample.
    WholeSamples {
        /// The layer's kind.
        kind: &'static str,
    },
    /// The shortest iteration of all that were compared.
    Compared {
        /// The mesh.
        chosen: Mesh,
        /// What an iteration would be with each possible mesh of this layer, all other layers as chosen; by ascending number of
        /// groups, the last one data-parallel.
        alternatives: Vec<Alternative>,
    },
}

/// One mesh that a layer could have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alternative {
    /// The mesh.
    pub mesh: Mesh,
    /// Bytes that the busiest rank sends for this layer in an iteration.
    pub bytes: f64,
    /// The iteration's time by the overlap model, in seconds.
    pub step_s: f64,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Follows { input } => write!(f, "works on what {input} leaves on each rank"),
            Self::Tied { to } => write!(f, "as {to}, with which parameters are tied"),
            Self::TiedToWholeSamples => {
                f.write_str("parameters are tied with a data-parallel layer")
            }
            Self::WholeSamples { kind: "input" } => f.write_str("each rank loads its own samples"),
            Self::WholeSamples { kind } => write!(f, "{kind} needs all channels of a sample"),
            Self::Compared { alternatives, .. } if alternatives.len() == 1 => {
                f.write_str("nothing to choose: one rank, or too few features to split")
            }
            Self::Compared { chosen, alternatives } => compared(f, *chosen, alternatives),
        }
    }
}

/// The chosen mesh, then data, pure model or least hybrid parallelism, and whatever else sends least.
fn compared(f: &mut fmt::Formatter<'_>, chosen: Mesh, all: &[Alternative]) -> fmt::Result {
    let least = all.iter().min_by(|a, b| a.bytes.total_cmp(&b.bytes));
    if let Some(own) = all.iter().find(|a| a.mesh == chosen) {
        write!(f, "{} sends {}", name(chosen), cost(own))?;
    }
    let mut shown = vec![chosen];
    let mut separator = " against ";
    for other in [all.last(), all.first(), least].into_iter().flatten() {
        if !shown.contains(&other.mesh) {
            shown.push(other.mesh);
            write!(f, "{separator}{} of {}", cost(other), name(other.mesh))?;
            separator = " and ";
        }
    }
    Ok(())
}

fn name(mesh: Mesh) -> String {
    match (mesh.groups(), mesh.members()) {
        (_, 1) => "data".to_owned(),
        (1, _) => "model".to_owned(),
        (groups, _) => format!("G={groups}"),
    }
}

fn cost(alternative: &Alternative) -> String {
    format!("{:.2} MB (step {:.2} ms)", alternative.bytes / 1e6, alternative.step_s * 1e3)
}
