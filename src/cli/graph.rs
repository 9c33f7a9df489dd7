//! `lockstep graph`: a network, or the task graph that it is compiled into.

use clap::Args as ClapArgs;
use lockstep::RunError;
use lockstep::graph::{Mode, Plan, PlanOptions, Platform, Strategy, zoo};

use super::{at_least_one, inputs};

/// Arguments of `lockstep graph`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Network: a name (see --list) or a .json file
    #[arg(long, default_value = "lenet", value_name = "NAME|FILE.json")]
    net: String,
    /// List the names of the built-in networks
    #[arg(long)]
    list: bool,
    /// Form of the output
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// Print the task graph of one training step instead of the network
    #[arg(long)]
    tasks: bool,
    /// Samples of a minibatch over all ranks, for the task graph
    #[arg(long, default_value_t = 64, value_name = "B")]
    batch: usize,
    /// Ranks, for the task graph
    #[arg(long, default_value_t = 1, value_name = "R")]
    ranks: usize,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Format {
    /// Rows and columns
    Table,
    /// Graphviz
    Dot,
    /// JSON; of a network it can be read back with --net FILE.json
    Json,
}

/// Prints.
pub(super) fn run(args: &Args) -> Result<(), RunError> {
    if args.list {
        for name in zoo::names() {
            say!("{name}");
        }
        return Ok(());
    }
    at_least_one(&[("--batch", Some(args.batch)), ("--ranks", Some(args.ranks))])?;
    let network = inputs::network(&args.net)?;
    if !args.tasks {
        let text = match args.format {
            Format::Table => network.to_table(),
            Format::Dot => network.to_dot(),
            Format::Json => network.to_json(),
        };
        say!("{}", text.trim_end());
        return Ok(());
    }
    let plan = Plan::compile(
        network,
        PlanOptions {
            minibatch: args.batch,
            ranks: args.ranks,
            mode: Mode::Train { momentum: true },
            strategy: Strategy::Data,
            platform: Platform::default(),
            fuse: true,
            ..PlanOptions::default()
        },
    )?;
    let text = match args.format {
        Format::Table => plan.tasks().to_table(),
        Format::Dot => plan.tasks().to_dot(),
        Format::Json => plan.tasks().to_json(),
    };
    say!("{}", text.trim_end());
    Ok(())
}
