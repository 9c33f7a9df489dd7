//! `--reproducible`: whether the bits are the same on any number of ranks.

use clap::{Args as ClapArgs, ValueEnum};
use lockstep::Reproducible;

/// The option.
#[derive(Debug, Clone, Copy, ClapArgs)]
pub(super) struct ReproducibleArgs {
    /// The same bits on 1, 2, 4 and 8 data-parallel ranks: sums over samples are made in one fixed order, which costs 0 to 4 % of the
    /// time. Without a value: on
    #[arg(
        long,
        value_enum,
        default_value_t = Choice::Auto,
        default_missing_value = "on",
        num_args = 0..=1,
        value_name = "CHOICE"
    )]
    reproducible: Choice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// Refuse a run that cannot have it
    On,
    /// Wherever it can be had: data-parallel on 1, 2, 4 or 8 ranks
    Auto,
    /// Sums in the order that is fastest on this number of ranks
    Off,
}

impl From<ReproducibleArgs> for Reproducible {
    fn from(args: ReproducibleArgs) -> Self {
        match args.reproducible {
            Choice::On => Self::Always,
            Choice::Auto => Self::WherePossible,
            Choice::Off => Self::Never,
        }
    }
}
