//! Every kind of exchange under `mpirun`, with every value checked; and, if asked, failures.
//!
//! ```text
//! cargo build -p lockstep-comm --features mpi --example mpi_exchange
//! mpirun -n 3 target/debug/examples/mpi_exchange            exits 0, prints one line per rank
//! mpirun -n 3 target/debug/examples/mpi_exchange late       rank 0 lets the others wait for 3 s: they must cost little
//! mpirun -n 3 target/debug/examples/mpi_exchange abort      the last rank aborts: exit code 7
//! mpirun -n 3 target/debug/examples/mpi_exchange panic      the last rank's communication thread panics: exit code 1
//! mpirun -n 3 target/debug/examples/mpi_exchange leave      the last rank drops its communicator: exit code 1
//! ```
#![expect(unsafe_code, reason = "submits memory of its own")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example tells what it did")]

use std::error::Error;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use lockstep_comm::{
    Algorithm, CommConfig, CommError, Communicator, Exchange, ExchangeLabel, Message, MpiEndpoint,
    Receive, Region, agree,
};

/// Tensor lengths: empty, tiny, eager, one chunk, odd, and 64 MB.
const LENGTHS: [usize; 8] = [0, 1, 250, 4097, 262_144, 1_000_003, 5_000_011, 16 << 20];

/// Rounds of the test with many exchanges in flight.
const ROUNDS: usize = 5;

struct Rank {
    comm: Communicator,
    completions: Receiver<u64>,
}

impl Rank {
    fn start(faulty: bool) -> Result<Rank, CommError> {
        let (complete, completions) = channel();
        let config = CommConfig {
            on_complete: Box::new(move |completion| {
                complete.send(completion.token).expect("main listens");
            }),
            on_failure: Box::new(|error| eprintln!("{error}")),
            on_step: Some(Box::new(move |step| {
                assert!(!(faulty && step == 3 && is_last()), "on purpose in step 3");
            })),
            ..CommConfig::default()
        };
        Ok(Rank { comm: Communicator::start(MpiEndpoint, config)?, completions })
    }

    fn label(&self, id: usize) -> ExchangeLabel {
        // Later exchanges are more urgent.
        ExchangeLabel { id: id as u32, priority: 1000 - id as u32, rank: self.comm.rank() }
    }

    fn submit(&self, exchange: &Arc<Exchange>, step: usize) {
        // SAFETY: each caller waits for all completions before it drops its buffers.
        unsafe { self.comm.submit(exchange, step as u64, 0) };
    }

    fn wait(&self, completions: usize) -> Result<(), CommError> {
        (0..completions)
            .try_for_each(|_| self.completions.recv().map(drop).map_err(|_| CommError::Stopped))
    }
}

/// Whether the launcher numbers this process last.
fn is_last() -> bool {
    lockstep_comm::launcher().is_none_or(|launcher| launcher.rank + 1 == launcher.n_ranks)
}

fn region(data: &mut [f32]) -> Region {
    // SAFETY: see `Rank::submit`.
    unsafe { Region::new(data.as_mut_ptr(), data.len()) }
}

/// Whole numbers, of which sums are exact.
fn whole(rank: usize, element: usize) -> f32 {
    ((rank * 7919 + element * 31) % 257) as f32 - 128.0
}

fn strips(len: usize, n_ranks: usize) -> Vec<Vec<Range<usize>>> {
    let strip = |rank: usize| len * rank / n_ranks..len * (rank + 1) / n_ranks;
    (0..n_ranks).map(|rank| vec![strip(rank)]).collect()
}

/// Part-reduce and part-broadcast of all lengths, by every algorithm, all in flight at once, several rounds.
fn sums(rank: &Rank) -> Result<(), CommError> {
    let (me, n_ranks) = (rank.comm.rank(), rank.comm.n_ranks());
    let members: Vec<_> = (0..n_ranks).collect();
    let mut tensors = LENGTHS.map(|len| vec![0.0; len]);
    let describe = |(i, tensor): (usize, &mut Vec<f32>)| {
        let (data, strips) = (region(tensor), strips(tensor.len(), n_ranks));
        let algorithm = Algorithm::ALL[i % Algorithm::ALL.len()];
        let label = |phase| rank.label(2 * i + phase);
        let reduce = Exchange::part_reduce(label(0), data, &members, &strips, algorithm)?;
        let broadcast = Exchange::part_broadcast(label(1), data, &members, &strips, algorithm)?;
        Ok([Arc::new(reduce), Arc::new(broadcast)])
    };
    let exchanges =
        tensors.iter_mut().enumerate().map(describe).collect::<Result<Vec<_>, CommError>>()?;
    for round in 1..=ROUNDS {
        for tensor in &mut tensors {
            tensor.iter_mut().enumerate().for_each(|(element, value)| *value = whole(me, element));
        }
        for phase in 0..2 {
            // Another order on every rank.
            for i in 0..LENGTHS.len() {
                rank.submit(&exchanges[(i * 3 + me) % LENGTHS.len()][phase], round);
            }
            rank.wait(LENGTHS.len())?;
        }
        for (element, &value) in tensors.iter().flat_map(|tensor| tensor.iter().enumerate()) {
            let expected: f32 = members.iter().map(|&member| whole(member, element)).sum();
            assert_eq!(value, expected, "rank {me}, round {round}, element {element}");
        }
    }
    let sent: u64 = exchanges.iter().flatten().map(|exchange| exchange.bytes_sent()).sum();
    assert_eq!(rank.comm.counters().bytes_sent, sent * ROUNDS as u64);
    Ok(())
}

/// Each rank sends strided pieces to all and adds what comes: an all-reduce whose messages are packed.
fn pieces(rank: &Rank) -> Result<(), CommError> {
    const LEN: usize = 1_000_000;
    let (me, n_ranks) = (rank.comm.rank(), rank.comm.n_ranks());
    let mut src: Vec<f32> = (0..LEN).map(|element| whole(me, element)).collect();
    let mut dst = vec![0.0; LEN];
    let ranges: Vec<_> = (0..LEN / 1000).map(|piece| piece * 1000..piece * 1000 + 500).collect();
    let peers = || (0..n_ranks).filter(|&peer| peer != me);
    let with_peers =
        || peers().flat_map(|peer| ranges.iter().map(move |range| (peer, range.clone())));
    let exchange = Exchange::redistribute(
        rank.label(100),
        region(&mut src),
        region(&mut dst),
        with_peers().map(|(peer, range)| Message { peer, range }).collect(),
        with_peers().map(|(peer, range)| Receive { peer, range, add: true }).collect(),
        ranges.iter().map(|range| (range.clone(), range.clone())).collect(),
    )?;
    rank.submit(&Arc::new(exchange), 0);
    rank.wait(1)?;
    for (element, &value) in dst.iter().enumerate() {
        let sum = || (0..n_ranks).map(|rank| whole(rank, element)).sum();
        assert_eq!(
            value,
            if element % 1000 < 500 { sum() } else { 0.0 },
            "rank {me}, element {element}"
        );
    }
    Ok(())
}

fn run() -> Result<(), Box<dyn Error>> {
    let mode = std::env::args().nth(1).unwrap_or_default();
    let rank = Rank::start(mode == "panic")?;
    let (me, n_ranks) = (rank.comm.rank(), rank.comm.n_ranks());
    agree(&rank.comm, &[("mode".to_owned(), mode.clone())])?;
    let gathered = rank.comm.all_gather(vec![me as u8; me * 1_000_000])?;
    assert!(
        gathered
            .iter()
            .enumerate()
            .all(|(rank, bytes)| *bytes == vec![rank as u8; rank * 1_000_000])
    );
    let offset = rank.comm.clock_offset()?;
    match mode.as_str() {
        "abort" if is_last() => rank.comm.abort(7, "on purpose"),
        "late" if me == 0 => std::thread::sleep(Duration::from_secs(3)),
        "leave" if is_last() => return Err("left on purpose".into()),
        _ => (),
    }
    sums(&rank)?;
    pieces(&rank)?;
    println!(
        "rank {me} of {n_ranks}: all sums right; clock offset {offset} ns; {}",
        rank.comm.library()
    );
    rank.comm.shutdown()?;
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
