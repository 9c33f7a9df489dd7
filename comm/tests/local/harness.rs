//! Runs the same function on every rank of a local job.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use lockstep_comm::{
    CommConfig, CommError, Communicator, Exchange, ExchangeLabel, LocalJob, Region,
};

/// Longest wait of any test for anything; only reached when something hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Chunking of a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunking {
    pub(crate) chunk_bytes: usize,
    pub(crate) window: usize,
}

/// Small chunks and a narrow window, so that small tensors take every path.
pub(crate) const TIGHT: Chunking = Chunking { chunk_bytes: 64, window: 1 };

/// The defaults.
pub(crate) const ROOMY: Chunking = Chunking { chunk_bytes: 128 << 10, window: 4 };

/// One rank of a test.
pub(crate) struct Rank {
    pub(crate) comm: Communicator,
    pub(crate) completions: Receiver<u64>,
    pub(crate) failures: Receiver<CommError>,
}

impl Rank {
    pub(crate) fn label(&self, id: u32, priority: u32) -> ExchangeLabel {
        ExchangeLabel { id, priority, rank: self.comm.rank() }
    }

    /// Submits an exchange whose memory outlives the test.
    pub(crate) fn submit(&self, exchange: &Arc<Exchange>, step: u64, token: u64) {
        // SAFETY: tests keep their buffers until they have seen the completion, or the failure.
        unsafe { self.comm.submit(exchange, step, token) };
    }

    /// Waits for the next completion.
    pub(crate) fn completed(&self) -> u64 {
        self.completions.recv_timeout(PATIENCE).expect("a completion comes")
    }

    /// Waits for the failure.
    pub(crate) fn failed(&self) -> CommError {
        self.failures.recv_timeout(PATIENCE).expect("the failure comes")
    }

    /// Runs one exchange to its end.
    pub(crate) fn run(&self, exchange: Result<Exchange, CommError>) {
        self.submit(&Arc::new(exchange.expect("a valid description")), 0, 77);
        assert_eq!(self.completed(), 77);
    }
}

pub(crate) fn region(data: &mut [f32]) -> Region {
    // SAFETY: see `Rank::submit`.
    unsafe { Region::new(data.as_mut_ptr(), data.len()) }
}

/// Starts a rank whose callbacks report to its channels.
pub(crate) fn start(endpoint: lockstep_comm::LocalEndpoint, config: CommConfig) -> Rank {
    let (complete, completions) = channel();
    let (fail, failures) = channel();
    let config = CommConfig {
        // A test that has seen enough may have dropped the receiver.
        on_complete: Box::new(move |completion| {
            let _ = complete.send(completion.token);
        }),
        on_failure: Box::new(move |error| {
            let _ = fail.send(error.clone());
        }),
        ..config
    };
    let comm = Communicator::start(endpoint, config).expect("a local rank starts");
    Rank { comm, completions, failures }
}

/// Runs `body` on `n_ranks` ranks, shuts them down and returns what it gave, by rank.
pub(crate) fn on_ranks<R: Send>(
    n_ranks: usize,
    chunking: Chunking,
    body: impl Fn(&Rank) -> R + Sync,
) -> Vec<R> {
    let body = &body;
    let run = move |endpoint| {
        let Chunking { chunk_bytes, window } = chunking;
        let rank = start(endpoint, CommConfig { chunk_bytes, window, ..CommConfig::default() });
        let result = body(&rank);
        rank.comm.shutdown().expect("nothing failed");
        result
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = LocalJob::endpoints(n_ranks)
            .into_iter()
            .map(|endpoint| scope.spawn(move || run(endpoint)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    })
}

/// The ranges of elements that make up each member's strip.
pub(crate) type Strips = Vec<Vec<Range<usize>>>;

/// `len` elements in `n` strips of one range each, whose lengths differ by one at most.
pub(crate) fn even_strips(len: usize, n: usize) -> Strips {
    let strip = |i: usize| len * i / n..len * (i + 1) / n;
    (0..n).map(|i| vec![strip(i)]).collect()
}

/// A small whole number, different for most (rank, element) pairs: sums of these are exact in any order.
pub(crate) fn whole(rank: usize, element: usize) -> f32 {
    ((rank * 7919 + element * 31) % 257) as f32 - 128.0
}
