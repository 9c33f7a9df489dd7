//! Which convolutions are computed by Winograd's minimal filtering, with fewer multiplications and other rounding.
//!
//! Weights are transformed once an iteration for each pass, which writes four times as many values for tiles of 4, so a layer
//! must have enough pixels; and vectors and register tiles must be filled. A function of the layer alone: training and
//! scoring, any minibatch and every rank have the same method.

use crate::layer::{LayerId, LayerKind};
use crate::network::Network;

/// The outputs of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WinogradTile {
    /// 2 x 2: 2.25 times fewer multiplications than the direct method.
    Two,
    /// 4 x 4: 4 times fewer.
    Four,
}

/// Channels that a layer has at least, in and out.
const MIN_CHANNELS: usize = 16;

/// How many times fewer multiplications it takes at least, pixels beyond the map's edge included.
const MIN_GAIN: f64 = 1.5;

impl WinogradTile {
    /// Outputs along an axis.
    #[must_use]
    pub fn outputs(self) -> usize {
        match self {
            Self::Two => 2,
            Self::Four => 4,
        }
    }

    /// `F(2x2)` or `F(4x4)`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Two => "F(2x2)",
            Self::Four => "F(4x4)",
        }
    }

    /// Values that a pass reads for each value of the weights.
    pub(super) fn weights_growth(self) -> f64 {
        (self.outputs() + 2).pow(2) as f64 / 9.0
    }

    /// How many times fewer multiplications an output map takes than directly.
    #[must_use]
    pub fn gain(self, height: usize, width: usize) -> f64 {
        let outputs = self.outputs();
        let tiles = height.div_ceil(outputs) * width.div_ceil(outputs);
        (9 * height * width) as f64 / (tiles * (outputs + 2).pow(2)) as f64
    }
}

/// The method of every layer: Winograd's with a tile, or the direct one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WinogradLayers(Vec<Option<WinogradTile>>);

impl WinogradLayers {
    /// The layers of a network that take the tile.
    #[must_use]
    pub fn new(network: &Network, tile: Option<WinogradTile>) -> Self {
        Self(network.layers().iter().map(|layer| tile_of(network, layer.id, tile)).collect())
    }

    /// The tile of a layer; `None` where it is computed directly.
    #[must_use]
    pub fn tile(&self, layer: LayerId) -> Option<WinogradTile> {
        self.0[layer.index()]
    }
}

/// The tile of one layer.
pub(super) fn tile_of(
    network: &Network,
    id: LayerId,
    tile: Option<WinogradTile>,
) -> Option<WinogradTile> {
    tile.filter(|&tile| takes(network, id, tile))
}

fn takes(network: &Network, id: LayerId, tile: WinogradTile) -> bool {
    let layer = network.layer(id);
    let LayerKind::Conv2d(conv) = &layer.kind else { return false };
    let (inputs, ..) = network.layer(layer.inputs[0]).shape.maps();
    let (outputs, height, width) = layer.shape.maps();
    conv.window.kernel == (3, 3)
        && conv.window.stride == (1, 1)
        && conv.groups == 1
        && inputs.min(outputs) >= MIN_CHANNELS
        && tile.gain(height, width) >= MIN_GAIN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zoo;

    #[test]
    fn large_3x3_layers_of_stride_1_take_it() {
        let names = |net: &str, tile| {
            let network = zoo::by_name(net).expect("a network of the zoo");
            let layers = WinogradLayers::new(&network, tile);
            let taking = network.layers().iter().filter(|layer| layers.tile(layer.id) == tile);
            taking.map(|layer| layer.name.clone()).collect::<Vec<_>>()
        };
        let vgg = names("vgg-a", Some(WinogradTile::Four));
        assert_eq!(vgg.len(), 7, "all convolutions but the first: {vgg:?}");
        assert_eq!(names("lenet", Some(WinogradTile::Two)), Vec::<String>::new());
    }

    #[test]
    fn a_map_that_does_not_fill_its_tiles_gains_less() {
        assert_eq!(WinogradTile::Four.gain(4, 8), 4.0);
        assert_eq!(WinogradTile::Two.gain(2, 2), 2.25);
        assert_eq!(WinogradTile::Four.gain(1, 1), 0.25);
    }
}
