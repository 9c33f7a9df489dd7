//! Networks as JSON.
//!
//! ```json
//! {
//!   "format": "lockstep-network",
//!   "version": 1,
//!   "name": "softmax",
//!   "layers": [
//!     { "name": "data", "kind": "input", "shape": [784] },
//!     { "name": "fc", "kind": { "linear": { "out_features": 10 } }, "inputs": ["data"] },
//!     { "name": "loss", "kind": { "softmax_cross_entropy": {} }, "inputs": ["fc"] }
//!   ]
//! }
//! ```
//! A layer that computes with the parameters of another one says so: `"tied_to": "fc"`. Layers may come in any order. Settings
//! that PyTorch has defaults for may be left out; unknown ones are refused.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::GraphError;
use crate::layer::{Layer, LayerKind};
use crate::network::Network;
use crate::order;
use crate::shape::Shape;

const FORMAT: &str = "lockstep-network";
const VERSION: u64 = 1;

/// What is read first, so that another document or version is named as such.
#[derive(Deserialize)]
struct Header {
    format: String,
    version: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(rename = "format")]
    _format: String,
    #[serde(rename = "version")]
    _version: u64,
    name: String,
    layers: Vec<LayerEntry>,
}

/// A layer as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LayerEntry {
    pub(crate) name: String,
    pub(crate) kind: LayerKind,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) inputs: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shape: Option<Shape>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tied_to: Option<String>,
}

impl Network {
    /// The network as JSON, one line a layer; [`Network::from_json`] reads it back as it was.
    #[must_use]
    pub fn to_json(&self) -> String {
        let entry = |layer: &Layer| LayerEntry {
            name: layer.name.clone(),
            kind: layer.kind,
            inputs: layer.inputs.iter().map(|&id| self.layer(id).name.clone()).collect(),
            shape: matches!(layer.kind, LayerKind::Input).then_some(layer.shape),
            tied_to: layer.tied_to.map(|owner| self.layer(owner).name.clone()),
        };
        let layers: Vec<String> =
            self.layers().iter().map(|layer| format!("    {}", line(&entry(layer)))).collect();
        format!(
            "{{\n  \"format\": {},\n  \"version\": {VERSION},\n  \"name\": {},\n  \"layers\": [\n{}\n  ]\n}}\n",
            line(FORMAT),
            line(self.name()),
            layers.join(",\n")
        )
    }

    /// Reads a network and checks all of it.
    ///
    /// # Errors
    /// The text is no JSON, not of this format or version, has an unknown field, layers form a cycle, or the network
    /// is refused by the builder.
    pub fn from_json(text: &str) -> Result<Self, GraphError> {
        let header: Header = serde_json::from_str(text).map_err(|error| json_error(&error))?;
        if header.format != FORMAT {
            return Err(GraphError::WrongFormat { got: header.format });
        }
        if header.version != VERSION {
            return Err(GraphError::WrongVersion { got: header.version, known: VERSION });
        }
        let document: Document = serde_json::from_str(text).map_err(|error| json_error(&error))?;
        order::assemble(document.name, &document.layers)
    }

    /// Reads a network from a file.
    ///
    /// # Errors
    /// The file cannot be read, or as [`Network::from_json`]; the error names the file.
    pub fn from_json_file(path: &Path) -> Result<Self, GraphError> {
        let text = fs::read_to_string(path).map_err(|error| GraphError::FileUnreadable {
            path: path.to_owned(),
            kind: error.kind(),
        })?;
        Self::from_json(&text).map_err(|error| GraphError::NetworkFile {
            path: path.to_owned(),
            error: Box::new(error),
        })
    }
}

fn line(value: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(value).expect("all keys are strings")
}

fn json_error(error: &serde_json::Error) -> GraphError {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    // The reader ends its message with the place, which has fields of its own here.
    let reason = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
    GraphError::Json { line, column, reason: reason.to_owned() }
}
