//! Weight tying: a layer computes with the parameters of another one.

use super::assembly::NetworkBuilder;
use crate::error::{GraphError, TieProblem};
use crate::layer::{Layer, LayerId, LayerKind, Param};

impl NetworkBuilder {
    /// Ties a layer to an earlier one of the same kind: from now on it computes with the trainable parameters of `owner`, and
    /// has none of its own. They are initialized, exchanged, updated and saved once, under the owner's name; their gradient is the
    /// sum of the gradients by each use.
    ///
    /// Strides, padding and sizes of maps may differ. Running statistics of batch normalizations stay with their layer. A tie to
    /// a tied layer is one to its owner.
    ///
    /// # Errors
    /// An id is of another builder; the layers are the same, of different kinds or groups, or of a kind without parameters;
    /// parameters differ in shape; `owner` comes later; or the layer is tied to another one already.
    ///
    /// # Examples
    /// ```
    /// use lockstep_graph::{Conv2d, GraphError, NetworkBuilder, SoftmaxCrossEntropy};
    ///
    /// # fn main() -> Result<(), GraphError> {
    /// let mut net = NetworkBuilder::new("twice");
    /// let data = net.input("data", (8, 5, 5))?;
    /// let first = net.conv2d("first", data, Conv2d::new(8, 3).pad(1))?;
    /// let second = net.conv2d("second", first, Conv2d::new(8, 3).stride(2))?;
    /// net.tie(second, first)?;
    /// let flat = net.flatten("flat", second)?;
    /// net.softmax_cross_entropy("loss", flat, SoftmaxCrossEntropy::default())?;
    /// let net = net.build()?;
    /// assert_eq!(net.parameter_count(), 8 * 8 * 9 + 8);
    /// assert_eq!(net.owner(second), first);
    /// # Ok(())
    /// # }
    /// ```
    pub fn tie(&mut self, layer: LayerId, owner: LayerId) -> Result<(), GraphError> {
        let known = |id: LayerId| {
            let (index, layers) = (id.index(), self.layers.len());
            self.layers.get(index).ok_or(GraphError::ForeignTie { index, layers })
        };
        let (tied, named) = (known(layer)?, known(owner)?);
        let owner = named.tied_to.unwrap_or(owner);
        if tied.tied_to == Some(owner) {
            return Ok(());
        }
        if let Some(problem) = self.problem(tied, &self.layers[owner.index()]) {
            let (layer, owner) = (tied.name.clone(), named.name.clone());
            return Err(GraphError::Tie { layer, owner, problem });
        }
        for other in &mut self.layers {
            // A chain ends at one owner, in whatever order its links are made.
            if other.tied_to == Some(layer) {
                other.tied_to = Some(owner);
            }
        }
        let tied = &mut self.layers[layer.index()];
        self.parameters -= tied.parameter_count();
        tied.params.retain(|param| !param.role.is_trainable());
        tied.tied_to = Some(owner);
        Ok(())
    }

    /// Why a layer cannot be tied to another one, which is not tied itself.
    fn problem(&self, layer: &Layer, owner: &Layer) -> Option<TieProblem> {
        if layer.id == owner.id {
            return Some(TieProblem::Itself);
        }
        if let Some(first) = layer.tied_to {
            return Some(TieProblem::Already { first: self.layers[first.index()].name.clone() });
        }
        let (kind, owner_kind) = (layer.kind.name(), owner.kind.name());
        if kind != owner_kind {
            return Some(TieProblem::Kinds { kind, owner_kind });
        }
        if layer.parameter_count() == 0 {
            return Some(TieProblem::NoParameters { kind });
        }
        if let (LayerKind::Conv2d(conv), LayerKind::Conv2d(owner)) = (&layer.kind, &owner.kind)
            && conv.groups != owner.groups
        {
            return Some(TieProblem::Groups { groups: conv.groups, owner_groups: owner.groups });
        }
        if !trainable(layer).eq(trainable(owner)) {
            return Some(TieProblem::Shapes { params: list(layer), owner_params: list(owner) });
        }
        (owner.id > layer.id).then_some(TieProblem::Later)
    }
}

fn trainable(layer: &Layer) -> impl Iterator<Item = &Param> {
    layer.params.iter().filter(|param| param.role.is_trainable())
}

/// `weight 8x3x5x5, bias 8`.
fn list(layer: &Layer) -> String {
    let each = trainable(layer).map(|param| {
        let sizes: Vec<String> = param.shape.iter().map(usize::to_string).collect();
        format!("{} {}", param.name, sizes.join("x"))
    });
    each.collect::<Vec<_>>().join(", ")
}
