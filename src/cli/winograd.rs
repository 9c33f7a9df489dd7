//! `--winograd`: whether 3x3 convolutions take fewer multiplications, and how many fewer.

use clap::{Args as ClapArgs, ValueEnum};
use lockstep::graph::WinogradTile;
use lockstep::ops;
use lockstep::scheduler::winograd_tile;

/// The option.
#[derive(Debug, Clone, Copy, ClapArgs)]
pub(super) struct Winograd {
    /// Compute large 3x3 convolutions of stride 1 by Winograd's minimal filtering, in tiles of 2x2 or 4x4 outputs: 2.25 or 4
    /// times fewer multiplications, and other rounding
    #[arg(long, value_enum, default_value_t = Choice::Off, value_name = "TILE")]
    winograd: Choice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// The direct method for all layers
    Off,
    /// 2x2 outputs: no less exact than the direct method
    #[value(name = "2")]
    Two,
    /// 4x4 outputs: fastest, up to about twice the direct method's rounding error
    #[value(name = "4")]
    Four,
}

impl Winograd {
    /// The tile of a plan's layers that take one.
    pub(super) fn of_plan(self) -> Option<WinogradTile> {
        match self.winograd {
            Choice::Off => None,
            Choice::Two => Some(WinogradTile::Two),
            Choice::Four => Some(WinogradTile::Four),
        }
    }

    /// The tile of a single layer.
    pub(super) fn of_layer(self) -> Option<ops::WinogradTile> {
        self.of_plan().map(winograd_tile)
    }
}
