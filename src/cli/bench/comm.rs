//! `lockstep bench comm`: part-reduce and part-broadcast between ranks, by every algorithm and size, beside MPI's own collectives.
//!
//! A run of one size is a number of pairs (part-reduce, then part-broadcast) one after another; its time is that of the slowest
//! rank. Runs of the algorithms and of MPI take turns, so that what else the machines do meets all alike; the median counts.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
#[cfg(feature = "mpi")]
use lockstep::Ranks;
use lockstep::comm::{
    Algorithm, CommConfig, Communicator, Endpoint, ExchangePair, LinkModel, LocalJob,
};
use lockstep::{RankChoice, RunError, choose_ranks};
use serde::Serialize;

use super::{Common, median};
use crate::cli::{at_least_one, bad_flag};

/// Arguments of `lockstep bench comm`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Ranks, as threads of this process; under mpirun the launcher says how many [default: 2]
    #[arg(long, value_name = "R")]
    ranks: Option<usize>,
    /// Smallest tensor in bytes; the next ones are each four times as large
    #[arg(long, default_value_t = 1 << 10, value_name = "BYTES")]
    min_bytes: usize,
    /// Largest tensor in bytes
    #[arg(long, default_value_t = 256 << 20, value_name = "BYTES")]
    max_bytes: usize,
    /// Longest message of an exchange in bytes [default: what training uses]
    #[arg(long, value_name = "BYTES")]
    chunk_bytes: Option<usize>,
    /// Chunks on the way to a peer at once [default: what training uses]
    #[arg(long, value_name = "N")]
    window: Option<usize>,
    /// The link's rate in Mbit/s, if it is known: the bandwidth is also given as a part of it
    #[arg(long, value_name = "MBIT")]
    link: Option<f64>,
    #[command(flatten)]
    common: Common,
}

/// Bytes of pairs that are timed together at least, so that a run is long enough to be timed and ranks need not start at once.
const BYTES_A_RUN: usize = 4 << 20;

/// Pairs that are timed together at most.
const MOST_PAIRS: usize = 100;

/// Bytes of the tensor that is overtaken, and of the one that overtakes it.
const BULK_BYTES: usize = 64 << 20;
const URGENT_BYTES: usize = 64 << 10;

/// Ids of the exchanges; each pair has two.
const BULK_ID: u32 = 100;
const URGENT_ID: u32 = 102;

/// One way of exchanging tensors of one size.
#[derive(Debug, Clone, Serialize)]
struct Row {
    system: &'static str,
    ranks: usize,
    /// Of the tensor.
    bytes: usize,
    /// Of a pair, part-reduce and part-broadcast: the median of the runs.
    pair_us: f64,
    /// Fastest and slowest run.
    pair_us_range: (f64, f64),
    /// What a rank sends, by the time.
    mbytes_per_s: f64,
    /// The time, in MPI's own times for the same size; only with MPI.
    #[serde(skip_serializing_if = "Option::is_none")]
    of_mpi: Option<f64>,
}

/// All that was measured.
#[derive(Debug, Serialize)]
struct Results {
    library: String,
    ranks: usize,
    chunk_bytes: usize,
    rows: Vec<Row>,
    /// Microseconds of an urgent exchange pair alone, and while a large part-reduce is under way.
    urgent_us: [f64; 2],
    /// As fitted; absent where only one size was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<LinkModel>,
}

/// Measures.
pub(super) fn run(args: &Args) -> Result<(), RunError> {
    at_least_one(&[
        ("--ranks", args.ranks),
        ("--runs", Some(args.common.runs)),
        ("--min-bytes", Some(args.min_bytes)),
        ("--chunk-bytes", args.chunk_bytes),
        ("--window", args.window),
    ])?;
    if args.max_bytes < args.min_bytes {
        let reason = format!("must be at least --min-bytes, {}", args.min_bytes);
        return Err(bad_flag("--max-bytes", &args.max_bytes, reason));
    }
    match choose_ranks(RankChoice { asked: args.ranks })? {
        #[cfg(feature = "mpi")]
        Ranks::Mpi => rank(args, lockstep::comm::MpiEndpoint),
        // Under mpirun without MPI the choice has been refused.
        _ => in_process(args, args.ranks.unwrap_or(2)),
    }
}

/// All ranks as threads of this process.
fn in_process(args: &Args, ranks: usize) -> Result<(), RunError> {
    std::thread::scope(|scope| {
        let endpoints = LocalJob::endpoints(ranks).into_iter();
        let ranks: Vec<_> =
            endpoints.map(|endpoint| scope.spawn(move || rank(args, endpoint))).collect();
        let results = ranks.into_iter().map(|rank| rank.join().expect("ranks do not panic"));
        results.collect::<Vec<_>>().into_iter().collect()
    })
}

/// One rank's part; rank 0 tells.
fn rank(args: &Args, endpoint: impl Into<Endpoint>) -> Result<(), RunError> {
    let default = CommConfig::default();
    let config = CommConfig {
        chunk_bytes: args.chunk_bytes.unwrap_or(default.chunk_bytes),
        window: args.window.unwrap_or(default.window),
        ..default
    };
    let comm = Communicator::start(endpoint, config)?;
    let tells = comm.rank() == 0;
    let mut rows: Vec<Row> = Vec::new();
    if tells {
        say!("{} ranks, {}", comm.n_ranks(), comm.library());
        say!("{}", Row::HEADER);
    }
    let sizes = std::iter::successors(Some(args.min_bytes), |bytes| bytes.checked_mul(4));
    for bytes in sizes.take_while(|&bytes| bytes <= args.max_bytes) {
        let of_size = measure(&comm, bytes, args.common.runs)?;
        if tells {
            of_size.iter().for_each(|row| say!("{}", row.line(args.link)));
        }
        rows.extend(of_size);
    }
    let urgent_us = urgency(&comm, args.common.runs)?;
    if tells {
        let ranks = comm.n_ranks();
        let link = fit(&rows, ranks);
        let [alone, beside] = urgent_us;
        say!(
            "urgent: a pair of {} KiB takes {alone:.0} us alone, {beside:.0} us while {} MiB are under way",
            URGENT_BYTES >> 10,
            BULK_BYTES >> 20
        );
        if let Some(link) = &link {
            say!(
                "link: latency {:.1} us, {:.1} MB/s, adding at {:.0} MB/s, congestion {:.3}",
                link.latency * 1e6,
                1e-6 / link.seconds_per_byte,
                1e-6 / link.seconds_per_added_byte,
                link.congestion
            );
            let picks = rows.iter().filter(|row| row.system == "direct").map(|row| {
                let pick = Algorithm::choose(row.bytes as u64, ranks, link);
                format!("{} {}", row.bytes, pick.name())
            });
            say!("chosen: {}", picks.collect::<Vec<_>>().join(", "));
        }
        let (library, chunk_bytes) = (comm.library().to_owned(), comm.chunk_bytes());
        let results = Results { library, ranks, chunk_bytes, rows, urgent_us, link };
        write(args.common.json.as_ref(), &results)?;
    }
    Ok(comm.shutdown()?)
}

/// Times tensors of one size by every algorithm that the number of ranks allows, and by MPI itself.
fn measure(comm: &Communicator, bytes: usize, runs: usize) -> Result<Vec<Row>, RunError> {
    let (len, ranks) = ((bytes / size_of::<f32>()).max(1), comm.n_ranks());
    let pairs = (BYTES_A_RUN / bytes).clamp(1, MOST_PAIRS);
    // Between two ranks all are the same.
    let differ = |algorithm: &Algorithm| *algorithm == Algorithm::Direct || ranks > 2;
    let algorithms = Algorithm::ALL.into_iter().filter(|a| a.among(ranks) == *a).filter(differ);
    let mut systems = Vec::new();
    for (id, algorithm) in (0..).step_by(2).zip(algorithms) {
        let pair = ExchangePair::new(comm, len, algorithm, (id, 1))?;
        systems.push((algorithm.name(), pair, Vec::new()));
    }
    let mut mpi = Vec::new();
    let mut sent = 0;
    // The first run of each, in which memory is touched for the first time, does not count.
    for run in 0..=runs {
        let counts = |times: &mut Vec<f64>, time: Duration| {
            if run > 0 {
                times.push(time.as_secs_f64() / pairs as f64);
            }
        };
        for (_, pair, times) in &mut systems {
            comm.barrier()?;
            counts(times, pair.run(comm, pairs)?);
            sent = pair.bytes_sent();
        }
        comm.barrier()?;
        if let Some(time) = comm.mpi_baseline(len, pairs)? {
            counts(&mut mpi, time);
        }
    }
    let mpi = slowest(comm, &mpi)?;
    let mpi_median = (!mpi.is_empty()).then(|| median(&mut mpi.clone()));
    let row = |system, mut seconds: Vec<f64>| {
        let middle = median(&mut seconds);
        Row {
            system,
            ranks,
            bytes,
            pair_us: middle * 1e6,
            pair_us_range: (seconds[0] * 1e6, seconds[seconds.len() - 1] * 1e6),
            mbytes_per_s: sent as f64 / middle * 1e-6,
            of_mpi: mpi_median.map(|mpi| middle / mpi),
        }
    };
    let mut rows = Vec::new();
    for (system, _, seconds) in systems {
        rows.push(row(system, slowest(comm, &seconds)?));
    }
    if !mpi.is_empty() {
        rows.push(row("mpi", mpi));
    }
    Ok(rows)
}

/// Of every run the time of the slowest rank.
fn slowest(comm: &Communicator, seconds: &[f64]) -> Result<Vec<f64>, RunError> {
    let bytes = seconds.iter().flat_map(|seconds| seconds.to_le_bytes()).collect();
    let mut slowest = vec![0.0_f64; seconds.len()];
    for rank in comm.all_gather(bytes)? {
        for (slowest, bytes) in slowest.iter_mut().zip(rank.as_chunks().0) {
            *slowest = slowest.max(f64::from_le_bytes(*bytes));
        }
    }
    Ok(slowest)
}

/// Microseconds of a small urgent pair alone, and while a large part-reduce is under way.
fn urgency(comm: &Communicator, runs: usize) -> Result<[f64; 2], RunError> {
    let pair = |bytes: usize, label| {
        ExchangePair::new(comm, bytes / size_of::<f32>(), Algorithm::Direct, label)
    };
    let (mut bulk, mut urgent) =
        (pair(BULK_BYTES, (BULK_ID, 9))?, pair(URGENT_BYTES, (URGENT_ID, 0))?);
    urgent.run(comm, 1)?;
    let mut alone = Vec::new();
    for _ in 0..runs {
        comm.barrier()?;
        alone.push(urgent.run(comm, 1)?.as_secs_f64());
    }
    comm.barrier()?;
    let beside = bulk.overtaken_by(comm, &mut urgent, runs)?;
    let beside: Vec<f64> = beside.iter().map(Duration::as_secs_f64).collect();
    let middle = |seconds: &[f64]| -> Result<f64, RunError> {
        Ok(median(&mut slowest(comm, seconds)?) * 1e6)
    };
    Ok([middle(&alone)?, middle(&beside)?])
}

/// The link as the direct exchanges show it: half a pair is a message to every other rank, one after another.
fn fit(rows: &[Row], ranks: usize) -> Option<LinkModel> {
    let of = |system: &'static str| rows.iter().filter(move |row| row.system == system);
    let message = |row: &Row| {
        let messages = 2.0 * (ranks - 1) as f64;
        ((row.bytes / ranks) as u64, row.pair_us * 1e-6 / messages)
    };
    if ranks < 2 {
        return None;
    }
    let (latency, seconds_per_byte) =
        LinkModel::fit(&of("direct").map(message).collect::<Vec<_>>())?;
    let largest = |system| of(system).next_back().map_or(1.0, |row| row.pair_us);
    let crowd = ranks.saturating_sub(2).max(1) as f64;
    let congestion = ((largest("direct") / largest("ring") - 1.0) / crowd).max(0.0);
    Some(LinkModel {
        latency,
        seconds_per_byte,
        seconds_per_added_byte: adding(),
        congestion: if ranks > 2 { congestion } else { 0.0 },
    })
}

/// Seconds that it takes to add a byte to a sum that is in no cache.
fn adding() -> f64 {
    let (mut sum, terms) = (vec![1.0_f32; 4 << 20], vec![2.0_f32; 4 << 20]);
    let mut seconds: Vec<f64> = (0..5)
        .map(|_| {
            let began = Instant::now();
            sum.iter_mut().zip(&terms).for_each(|(sum, term)| *sum += term);
            began.elapsed().as_secs_f64()
        })
        .collect();
    std::hint::black_box(&sum);
    median(&mut seconds) / (terms.len() * size_of::<f32>()) as f64
}

impl Row {
    const HEADER: &str =
        "    bytes  system      pair us  (min - max)                  MB/s   of MPI   of link";

    /// For people. `link`: Mbit/s.
    fn line(&self, link: Option<f64>) -> String {
        let range = format!("({:.1} - {:.1})", self.pair_us_range.0, self.pair_us_range.1);
        let part = |part: Option<f64>| part.map_or(String::new(), |part| format!("{part:.2}"));
        format!(
            "{:>9}  {:<8} {:>10.1}  {:<24} {:>8.1} {:>8} {:>9}",
            self.bytes,
            self.system,
            self.pair_us,
            range,
            self.mbytes_per_s,
            part(self.of_mpi),
            part(link.map(|mbit| self.mbytes_per_s * 8.0 / mbit))
        )
    }
}

fn write(path: Option<&PathBuf>, results: &Results) -> Result<(), RunError> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(results).expect("results hold numbers and names");
    fs::write(path, text).map_err(|source| RunError::File {
        action: "write",
        path: path.clone(),
        source,
    })
}
