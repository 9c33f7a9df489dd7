//! The exchanges of a program: its communication tasks, described to the communicator and submitted to it.
#![expect(
    unsafe_code,
    reason = "tells the communication thread where tensors lie, and submits exchanges of them"
)]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockstep_comm::{Communicator, Exchange, ExchangeLabel, Region};
use lockstep_graph::{Price, Task};
use lockstep_ops::Arena;

use super::bind::Program;
use super::description::{Exchanges, Regions, depends_on_samples, priority};
use crate::error::ScheduleError;

/// The exchange of a communication task.
#[derive(Debug)]
pub(crate) enum BoundExchange {
    /// The same for every minibatch.
    Fixed(Arc<Exchange>),
    /// What travels depends on the number of samples. Those seen so far; there are two in an epoch, the last minibatch being
    /// shorter.
    BySamples { label: ExchangeLabel, known: Mutex<Vec<(usize, Arc<Exchange>)>> },
}

/// What an exchange sends, and how it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServedExchange<'a> {
    /// Of its task.
    pub name: &'a str,
    /// Payload bytes that it sends from this rank each time.
    pub bytes_sent: u64,
    /// How often it was completed.
    pub times: u64,
    /// From each start on the communication thread to the completion, added up.
    pub time: Duration,
}

impl Program {
    /// The exchange of a communication task, and its price; `None` for others.
    pub(super) fn exchange_of(
        &self,
        task: &Task,
        id: u32,
    ) -> Result<Option<(BoundExchange, Price)>, ScheduleError> {
        if !task.kind.is_communication() {
            return Ok(None);
        }
        let label = ExchangeLabel { id, priority: priority(task), rank: self.rank() };
        // Made now even where it depends on the minibatch, so that what cannot be described is refused before the run starts.
        let minibatch = self.plan.options().minibatch;
        let exchange = Arc::new(self.exchanges().describe(task, label, minibatch)?);
        let price = super::traffic::price(task, &exchange);
        let bound = if depends_on_samples(self.plan.tasks(), task) {
            BoundExchange::BySamples { label, known: Mutex::new(vec![(minibatch, exchange)]) }
        } else {
            BoundExchange::Fixed(exchange)
        };
        Ok(Some((bound, price)))
    }

    /// The exchange for a minibatch of so many samples.
    pub(super) fn exchange_for(
        &self,
        bound: &BoundExchange,
        task: &Task,
        minibatch: usize,
    ) -> Arc<Exchange> {
        let (label, known) = match bound {
            BoundExchange::Fixed(exchange) => return Arc::clone(exchange),
            BoundExchange::BySamples { label, known } => (label, known),
        };
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, exchange)) = known.iter().find(|(samples, _)| *samples == minibatch) {
            return Arc::clone(exchange);
        }
        let exchange = self.exchanges().describe(task, *label, minibatch);
        let exchange = exchange.expect("a part of what was described for the largest minibatch");
        let exchange = Arc::new(exchange);
        known.push((minibatch, Arc::clone(&exchange)));
        exchange
    }

    fn exchanges(&self) -> Exchanges<'_> {
        let regions =
            Regions { iteration: whole(&self.arena), parameters: whole(self.store.arena()) };
        Exchanges { places: self.places(), regions }
    }

    /// Runs every exchange of the program alone, for the largest minibatch, and says how long each took on this rank, in the order of
    /// the plan's tasks: the time of the network, against which those of a run tell whether they are slow or badly hidden
    /// ([`Program::served`]). All ranks must call it, before the first run: tensors of the iteration are overwritten, while
    /// parameters stay as they are where all ranks began with the same.
    ///
    /// # Errors
    /// The communicator has failed or fails meanwhile, or a run on the same store has.
    pub fn isolate(self: &Arc<Self>, comm: &Communicator) -> Result<Vec<Duration>, ScheduleError> {
        let mut lease = self.store.lease()?;
        let minibatch = self.plan.options().minibatch;
        let tasks = self.plan.tasks().tasks();
        let exchanges: Vec<_> = tasks
            .filter(|task| task.kind.is_communication())
            .map(|task| self.exchange(task.id, minibatch))
            .collect();
        // SAFETY: `whole` says how long the memory lives; whoever else touches it holds the lease.
        let alone = unsafe { comm.isolate(&exchanges) };
        if alone.is_err() {
            // Exchanges may still be under way: nobody may use the memory any more, nor give it back.
            lease.abandon();
            std::mem::forget(Arc::clone(self));
        }
        Ok(alone?)
    }

    /// The exchanges for the largest minibatch with what was counted of them so far, in the order of the plan's tasks.
    #[must_use]
    pub fn served(&self) -> Vec<ServedExchange<'_>> {
        let minibatch = self.plan.options().minibatch;
        let tasks = self.plan.tasks().tasks();
        tasks
            .filter_map(|task| {
                let exchange = self.exchange(task.id, minibatch)?;
                let (times, time) = exchange.served();
                Some(ServedExchange {
                    name: &task.name,
                    bytes_sent: exchange.bytes_sent(),
                    times,
                    time,
                })
            })
            .collect()
    }

    /// Hands a ready communication task's exchange to the communication thread.
    pub(crate) fn submit(
        &self,
        comm: &Communicator,
        exchange: &Arc<Exchange>,
        step: u64,
        token: u64,
    ) {
        // SAFETY: see `whole`: the task is ready, so its dependencies give it the tensors until it is finished.
        unsafe { comm.submit(exchange, step, token) }
    }
}

/// An arena of a program as the communication thread sees it.
fn whole(arena: &Arena) -> Region {
    // SAFETY: the arena lives as long as the program, which the session keeps until the communication thread is done with
    // it; that nobody else touches the elements of an exchange meanwhile is the graph's doing: the exchange is a task that reads
    // and writes these tensors, it is submitted when the task is ready and the task is finished when it completes.
    unsafe { Region::new(arena.as_ptr(0..arena.len()), arena.len()) }
}
