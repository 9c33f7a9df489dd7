//! `lockstep info`: what this machine has and what would be chosen.

use std::fs;
use std::time::Duration;

use clap::Args as ClapArgs;
use lockstep::RunError;
use lockstep::ops::{Isa, peak};
use lockstep::scheduler::{CacheLevel, Cores, cache_levels};

use super::inputs;

/// How long the peak and the bandwidth are measured, each.
const PEAK_TIME: Duration = Duration::from_millis(300);

/// Elements of each of the triad's three arrays: 64 MB, more than caches hold.
const TRIAD_LEN: usize = 16 << 20;

/// Arguments of `lockstep info`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {}

/// Prints.
pub(super) fn run(_args: &Args) -> Result<(), RunError> {
    let isa = inputs::isa()?;
    let cores = Cores::detect();
    say!("CPU                {}", cpu_name());
    say!("cores              {} in the affinity mask, {} usable", cores.in_mask(), cores.usable());
    for CacheLevel { level, bytes } in cache_levels() {
        say!("L{level} cache           {} KB", bytes >> 10);
    }
    let available: Vec<_> = Isa::all_available().into_iter().map(Isa::name).collect();
    say!("instruction sets   {}", available.join(" "));
    say!("chosen             {} ({} lanes); LOCKSTEP_ISA forces another", isa.name(), isa.lanes());
    say!("peak, one core     {:.1} GFLOP/s (measured)", peak::gflops(isa, PEAK_TIME));
    say!(
        "fed from L1        {:.1} GFLOP/s (measured: a register tile with its loads)",
        peak::fed_gflops(isa, PEAK_TIME)
    );
    say!(
        "memory, one core   {:.1} GB/s (measured triad)",
        peak::triad_gbytes(isa, TRIAD_LEN, PEAK_TIME)
    );
    say!("workers            {} for one rank", cores.default_workers(1, false));
    say!("MPI                {}", lockstep::mpi_description());
    if let Some(launcher) = lockstep::comm::launcher() {
        say!(
            "launcher           {}: rank {} of {}",
            launcher.name,
            launcher.rank,
            launcher.n_ranks
        );
    }
    Ok(())
}

fn cpu_name() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("model name"));
    line.map_or_else(
        || std::env::consts::ARCH.to_owned(),
        |l| l.trim_start_matches([' ', '\t', ':']).to_owned(),
    )
}
