//! Which mesh each layer's tensors lie on.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::GraphError;
use crate::layer::LayerId;
use crate::placement::Mesh;

/// How the ranks share the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Strategy {
    /// Every rank computes all features of its own samples.
    #[default]
    Data,
}

impl Strategy {
    /// The mesh of one layer.
    #[must_use]
    pub fn mesh(self, _layer: LayerId, ranks: usize) -> Mesh {
        match self {
            Self::Data => Mesh::data_parallel(ranks),
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data => f.write_str("data"),
        }
    }
}

impl FromStr for Strategy {
    type Err = GraphError;

    fn from_str(name: &str) -> Result<Self, GraphError> {
        match name {
            "data" => Ok(Self::Data),
            _ => Err(GraphError::UnknownStrategy { name: name.to_owned() }),
        }
    }
}
