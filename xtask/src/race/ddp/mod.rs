//! `cargo xtask race ddp`: one rank a host and one core a rank, over slow links, against PyTorch's DistributedDataParallel.

mod hosts;
mod sides;
mod table;

use std::path::PathBuf;

use clap::Args as ClapArgs;

use self::hosts::Hosts;
use self::sides::{Run, own_alone, own_on_all, peer_alone, peer_on_all};
use self::table::{HEADER, Round, Side, line, row};
use super::programs::write_rows;
use crate::failure::Failure;
use crate::steps::say;

/// Networks, and the samples a rank that each is raced at.
const NETS: [(&str, usize); 4] = [("alexnet", 32), ("cd-dnn", 256), ("lenet", 64), ("vgg-a", 8)];

/// Arguments of `cargo xtask race ddp`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// A Python with PyTorch (see benches/peers/README.md)
    #[arg(long, value_name = "FILE")]
    python: PathBuf,
    /// Rounds: in each, both sides run on one rank, and at each rate on two, by turns
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Rates of the hosts' links
    #[arg(long, value_delimiter = ',', default_value = "10gbit,1gbit,100mbit")]
    rate: Vec<String>,
    /// Networks [default: all]
    #[arg(long, value_delimiter = ',', value_parser = NETS.map(|(net, _)| net))]
    net: Vec<String>,
    /// Samples a rank [default: for each network its own]
    #[arg(long)]
    batch: Option<usize>,
    /// How our ranks share the work
    #[arg(long, default_value = "auto", value_name = "S")]
    strategy: String,
    /// Seconds of one run, which has three steps at least
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// A core of this machine for each of the two hosts
    #[arg(long, value_delimiter = ',', num_args = 2, default_value = "0,1")]
    cores: Vec<usize>,
    /// No run may take longer, in seconds
    #[arg(long, default_value_t = 600)]
    limit: u64,
    /// Write the rows as JSON too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One network at one number of samples a rank.
#[derive(Debug, Clone, Copy)]
struct Heat<'a> {
    net: &'a str,
    batch: usize,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let Some(first_rate) = args.rate.first() else { return Ok(()) };
    let hosts = Hosts::up(&args.cores, first_rate, args.limit)?;
    let wanted = |net: &str| args.net.is_empty() || args.net.iter().any(|wanted| wanted == net);
    let mut rows = Vec::new();
    for (net, usual) in NETS.into_iter().filter(|(net, _)| wanted(net)) {
        let heat = Heat { net, batch: args.batch.unwrap_or(usual) };
        let by_rate = race(args, &hosts, heat)?;
        for (rate, rounds) in args.rate.iter().zip(&by_rate) {
            rows.push(row(heat, rate, &args.strategy, rounds));
        }
        // After every network: a race takes long, and may be cut short.
        write_rows(args.json.as_deref(), &rows)?;
        say(HEADER);
        rows.iter().for_each(|row| say(&line(row)));
    }
    Ok(())
}

/// The rounds of one network, for each rate.
fn race(args: &Args, hosts: &Hosts, heat: Heat<'_>) -> Result<Vec<Vec<Round>>, Failure> {
    let format = faster_format(args, hosts, heat)?;
    let mut by_rate = vec![Vec::new(); args.rate.len()];
    for turn in 0..args.runs {
        // What one rank does depends on no link.
        let (own, peer) = in_turn(
            turn,
            || own_alone(args, hosts, heat),
            || peer_alone(args, hosts, heat, format),
        )?;
        for (rate, rounds) in args.rate.iter().zip(&mut by_rate) {
            hosts.set_rate(rate)?;
            let (own_all, peer_all) = in_turn(
                turn,
                || own_on_all(args, hosts, heat),
                || peer_on_all(args, hosts, heat, format),
            )?;
            rounds.push(Round {
                own: Side { alone: own, on_all: own_all },
                peer: Side { alone: peer, on_all: peer_all },
            });
        }
    }
    Ok(by_rate)
}

/// Both sides once; who begins changes with the turn, so that neither always finds the machine as the other left it.
fn in_turn(
    turn: usize,
    own: impl FnOnce() -> Result<Run, Failure>,
    peer: impl FnOnce() -> Result<Run, Failure>,
) -> Result<(Run, Run), Failure> {
    if turn.is_multiple_of(2) {
        let own = own()?;
        Ok((own, peer()?))
    } else {
        let peer = peer()?;
        Ok((own()?, peer))
    }
}

/// The memory format in which the peer is faster on one rank.
fn faster_format(args: &Args, hosts: &Hosts, heat: Heat<'_>) -> Result<&'static str, Failure> {
    let mut best = ("channels_last", 0.0);
    for format in ["channels_last", "contiguous"] {
        let run = peer_alone(args, hosts, heat, format)?;
        if run.per_s > best.1 {
            best = (format, run.per_s);
        }
    }
    Ok(best.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_begins_changes_with_the_turn() {
        let order = std::cell::RefCell::new(String::new());
        let side = |name: char, per_s| {
            order.borrow_mut().push(name);
            Ok(Run { per_s, exposed: 0.0 })
        };
        for turn in 0..3 {
            let (own, peer) = in_turn(turn, || side('o', 2.0), || side('p', 1.0)).unwrap();
            assert_eq!((own.per_s, peer.per_s), (2.0, 1.0));
        }
        assert_eq!(*order.borrow(), "oppoop");
    }
}
