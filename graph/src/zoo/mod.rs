//! Networks that come with the crate.

mod activated;
mod alexnet;
mod block;
mod bottleneck;
mod cd_dnn;
mod lenet;
mod mlp;
mod overfeat_fast;
mod resnet50;
mod small_resnet;
mod small_vgg;
mod vgg_a;
pub mod golden;

pub use alexnet::alexnet;
pub use cd_dnn::cd_dnn;
pub use lenet::lenet;
pub use mlp::mlp;
pub use overfeat_fast::overfeat_fast;
pub use resnet50::resnet50;
pub use small_resnet::small_resnet;
pub use small_vgg::small_vgg;
pub use vgg_a::vgg_a;

use crate::error::GraphError;
use crate::network::Network;

/// Builds a network.
type Recipe = fn() -> Result<Network, GraphError>;

/// All networks that [`by_name`] knows.
const RECIPES: [(&str, Recipe); 9] = [
    ("lenet", lenet),
    ("mlp", || mlp((1, 28, 28), &[300, 100], 10)),
    ("small-vgg", small_vgg),
    ("small-resnet", small_resnet),
    ("alexnet", alexnet),
    ("cd-dnn", cd_dnn),
    ("overfeat-fast", overfeat_fast),
    ("resnet50", resnet50),
    ("vgg-a", vgg_a),
];

/// The names that [`by_name`] knows.
pub fn names() -> impl Iterator<Item = &'static str> {
    RECIPES.iter().map(|(name, _)| *name)
}

/// A network by its name on the command line.
///
/// # Errors
/// There is no such network; the error lists those that there are.
pub fn by_name(name: &str) -> Result<Network, GraphError> {
    match RECIPES.iter().find(|(known, _)| *known == name) {
        Some((_, recipe)) => recipe(),
        None => Err(GraphError::UnknownNetwork {
            name: name.to_owned(),
            known: names().collect::<Vec<_>>().join(", "),
        }),
    }
}
