//! The exchanges of a program: its communication tasks, described to the communicator and submitted to it.
#![expect(
    unsafe_code,
    reason = "tells the communication thread where tensors lie, and submits exchanges of them"
)]

use std::sync::{Arc, Mutex, PoisonError};

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
