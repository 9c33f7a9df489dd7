//! How the ranks share the work: asked for by the user, then a mesh for every layer.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use crate::error::GraphError;

/// How the ranks share the work of the layers with weights; all other layers follow their input.
///
/// On the command line: `data`, `model`, `auto`, `G=2`, or the path of a JSON file such as
/// `{"default": "data", "fc6": "model", "fc7": 2}`. Of tied layers it is enough to name one; to name two
/// of them differently is refused.
///
/// # Examples
/// ```
/// use lockstep_graph::Strategy;
///
/// assert_eq!("G=2".parse::<Strategy>().unwrap(), Strategy::Groups(2));
/// assert_eq!(Strategy::Model.to_string(), "model");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Strategy {
    /// Every rank computes all features of its own samples: as many groups as ranks.
    #[default]
    Data,
    /// Every rank computes its own features of all samples: one group.
    Model,
    /// So many groups, or the next smaller number that divides the ranks.
    Groups(usize),
    /// Whatever the planner finds fastest, layer by layer.
    Auto,
    /// By layer.
    PerLayer(Arc<PerLayer>),
}

/// A strategy for each layer by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerLayer {
    /// Where it was read from.
    path: PathBuf,
    /// For layers that are not named.
    default: Box<Strategy>,
    layers: BTreeMap<String, Strategy>,
}

/// The name of the entry for all layers that are not named.
const DEFAULT: &str = "default";

impl PerLayer {
    /// What is asked for a layer.
    #[must_use]
    pub fn of(&self, layer: &str) -> &Strategy {
        self.layers.get(layer).unwrap_or(&self.default)
    }

    /// The layers that are named.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.layers.keys().map(String::as_str)
    }

    /// Where it was read from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a JSON object of layer names, each with `"data"`, `"model"`, `"auto"`, `"G=2"` or a number of groups.
    ///
    /// # Errors
    /// The file cannot be read, is not such an object, or names a strategy that does not exist.
    pub fn from_json_file(path: &Path) -> Result<Self, GraphError> {
        let text = std::fs::read_to_string(path).map_err(|e| GraphError::StrategyFile {
            path: path.to_owned(),
            reason: e.kind().to_string(),
        })?;
        Self::from_json(path, &text)
    }

    /// The same from the text of a file.
    pub(crate) fn from_json(path: &Path, text: &str) -> Result<Self, GraphError> {
        let bad = |reason: String| GraphError::StrategyFile { path: path.to_owned(), reason };
        let entries: BTreeMap<String, serde_json::Value> =
            serde_json::from_str(text).map_err(|e| bad(e.to_string()))?;
        let mut layers = BTreeMap::new();
        for (name, value) in entries {
            let text = match &value {
                serde_json::Value::String(text) => text.clone(),
                other => format!("G={other}"),
            };
            let strategy =
                Strategy::named(&text).ok_or_else(|| bad(format!("{name}: {value}: {KNOWN}")))?;
            layers.insert(name, strategy);
        }
        let default = Box::new(layers.remove(DEFAULT).unwrap_or_default());
        Ok(Self { path: path.to_owned(), default, layers })
    }
}

/// What can be asked for.
const KNOWN: &str =
    "use data, model, auto, G=n (n groups) or a .json file with one of these a layer";

impl Strategy {
    /// The strategy of a name, other than a file's.
    fn named(name: &str) -> Option<Self> {
        match name {
            "data" => Some(Self::Data),
            "model" => Some(Self::Model),
            "auto" => Some(Self::Auto),
            _ => {
                let groups = name.strip_prefix("G=").or_else(|| name.strip_prefix("g="))?;
                groups.parse().ok().filter(|&groups| groups > 0).map(Self::Groups)
            }
        }
    }

    /// What is asked for a layer; never [`Strategy::PerLayer`].
    #[must_use]
    pub fn of(&self, layer: &str) -> &Strategy {
        match self {
            Self::PerLayer(layers) => layers.of(layer),
            other => other,
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data => f.write_str("data"),
            Self::Model => f.write_str("model"),
            Self::Auto => f.write_str("auto"),
            Self::Groups(groups) => write!(f, "G={groups}"),
            Self::PerLayer(layers) => write!(f, "{}", layers.path.display()),
        }
    }
}

impl FromStr for Strategy {
    type Err = GraphError;

    fn from_str(name: &str) -> Result<Self, GraphError> {
        if let Some(strategy) = Self::named(name) {
            return Ok(strategy);
        }
        let path = Path::new(name);
        if path.extension().is_some_and(|ext| ext.eq_ignore_ascii_case("json")) {
            return Ok(Self::PerLayer(Arc::new(PerLayer::from_json_file(path)?)));
        }
        Err(GraphError::UnknownStrategy { name: name.to_owned(), known: KNOWN })
    }
}
