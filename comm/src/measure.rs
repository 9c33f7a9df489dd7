//! Measuring exchanges: tensors of the crate's own that all ranks exchange again and again.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::communicator::Communicator;
use crate::error::CommError;
use crate::exchange::{Exchange, ExchangeLabel};
use crate::model::Algorithm;
use crate::region::Region;
use crate::submission::{Command, Notify, Series};

/// A tensor of every rank's, part-reduced and then part-broadcast among all ranks: what a data-parallel layer does once a step.
///
/// ```
/// use lockstep_comm::{Algorithm, CommConfig, Communicator, ExchangePair, LocalJob};
///
/// let rank = |endpoint| {
///     let comm = Communicator::start(endpoint, CommConfig::default())?;
///     let mut pair = ExchangePair::new(&comm, 1000, Algorithm::Ring, (0, 0))?;
///     let time = pair.run(&comm, 3)?;
///     assert!(!time.is_zero() && pair.bytes_sent() > 0);
///     comm.shutdown()
/// };
/// std::thread::scope(|scope| {
///     let ranks = LocalJob::endpoints(2).into_iter().map(|end| scope.spawn(move || rank(end)));
///     ranks.collect::<Vec<_>>().into_iter().try_for_each(|rank| rank.join().unwrap())
/// })?;
/// # Ok::<(), lockstep_comm::CommError>(())
/// ```
#[derive(Debug)]
pub struct ExchangePair {
    data: Vec<f32>,
    phases: [Arc<Exchange>; 2],
}

impl ExchangePair {
    /// A tensor of `len` elements in equal strips. Its exchanges have the ids `id` and `id + 1`.
    ///
    /// # Errors
    /// `id` too large.
    pub fn new(
        comm: &Communicator,
        len: usize,
        algorithm: Algorithm,
        (id, priority): (u32, u32),
    ) -> Result<ExchangePair, CommError> {
        let n = comm.n_ranks();
        let mut data = vec![0.0; len];
        let region = Region::owned_by_caller(&mut data);
        let members: Vec<usize> = (0..n).collect();
        let strip = |i: usize| -> Range<usize> { len * i / n..len * (i + 1) / n };
        let strips: Vec<_> = (0..n).map(|i| vec![strip(i)]).collect();
        let label = |phase: u32| ExchangeLabel { id: id + phase, priority, rank: comm.rank() };
        let reduce = Exchange::part_reduce(label(0), region, &members, &strips, algorithm)?;
        let broadcast = Exchange::part_broadcast(label(1), region, &members, &strips, algorithm)?;
        Ok(ExchangePair { data, phases: [Arc::new(reduce), Arc::new(broadcast)] })
    }

    /// Payload bytes that one pair sends from this rank.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.phases.iter().map(|exchange| exchange.bytes_sent()).sum()
    }

    /// Runs `times` pairs, each exchange after the one before with nobody in between, and returns the time of all on this rank.
    /// All ranks must call it.
    ///
    /// # Errors
    /// The communicator has failed or fails meanwhile.
    pub fn run(&mut self, comm: &Communicator, times: usize) -> Result<Duration, CommError> {
        let Some(left) = (2 * times).checked_sub(1) else { return Ok(Duration::ZERO) };
        let (reply, answer) = channel();
        let series = Series { exchanges: self.phases.to_vec(), left, reply };
        let began = Instant::now();
        comm.serve(Arc::clone(&self.phases[0]), 0, Notify::Series(Box::new(series)));
        self.finish(comm, &answer)?;
        Ok(began.elapsed())
    }

    /// Runs each of `urgent`'s exchanges `times` times while this pair's part-reduce is under way, and returns the times of the
    /// urgent ones. All ranks must call it.
    ///
    /// # Errors
    /// The communicator has failed or fails meanwhile.
    pub fn overtaken_by(
        &mut self,
        comm: &Communicator,
        urgent: &mut ExchangePair,
        times: usize,
    ) -> Result<Vec<Duration>, CommError> {
        let (reply, under_way) = channel();
        comm.serve(Arc::clone(&self.phases[0]), 0, Notify::Caller(reply));
        let mut run = || urgent.run(comm, 1);
        let seconds = (0..times).map(|_| run()).collect();
        self.finish(comm, &under_way)?;
        seconds
    }

    fn finish(
        &mut self,
        comm: &Communicator,
        answer: &Receiver<Result<(), CommError>>,
    ) -> Result<(), CommError> {
        let result = comm.wait_for(answer);
        if result.is_err() {
            // MPI may still write here until the job is aborted, which is about to happen.
            std::mem::forget(std::mem::take(&mut self.data));
        }
        result
    }
}

impl Communicator {
    /// Waits until all ranks have called it, each as often as the others.
    ///
    /// # Errors
    /// The communicator has failed or fails meanwhile.
    pub fn barrier(&self) -> Result<(), CommError> {
        self.all_gather(Vec::new()).map(drop)
    }

    /// Seconds of `times` pairs of `MPI_Ireduce_scatter_block` and `MPI_Iallgather` on tensors of about `len` elements, which the
    /// MPI library does by itself while the communication thread polls it: what there would be without this crate. `None` if the
    /// transport is not MPI. All ranks must call it, with nothing in flight.
    ///
    /// # Errors
    /// The communicator has failed or fails meanwhile.
    pub fn mpi_baseline(&self, len: usize, times: usize) -> Result<Option<Duration>, CommError> {
        self.ask(|reply| Command::Baseline { len, times, reply })
    }

    /// Runs each exchange alone, a barrier before each, and returns how long each took on this rank: the time of the network,
    /// against which a run's times ([`Exchange::served`]) tell how well they overlap. All ranks must call it with their
    /// descriptions of the same exchanges in the same order; a rank that takes no part in one leaves `None` in its place.
    ///
    /// Part-reduces sum in place, so call it before the tensors hold anything that counts. Not counted by
    /// [`Communicator::counters`] nor by `served`.
    ///
    /// # Errors
    /// The communicator has failed or fails meanwhile.
    ///
    /// # Safety
    /// The contract of [`Region::new`] holds for the exchanges' regions until this returns.
    #[expect(unsafe_code, reason = "hands memory to another thread; the contract is Region's")]
    pub unsafe fn isolate(
        &self,
        exchanges: &[Option<Arc<Exchange>>],
    ) -> Result<Vec<Duration>, CommError> {
        let alone = |exchange: &Option<Arc<Exchange>>| {
            self.barrier()?;
            let began = Instant::now();
            if let Some(exchange) = exchange {
                let (reply, answer) = channel();
                self.serve(Arc::clone(exchange), 0, Notify::Caller(reply));
                self.wait_for(&answer)?;
            }
            Ok(began.elapsed())
        };
        exchanges.iter().map(alone).collect()
    }
}
