//! What a rank will send, told without memory and without other ranks: the exchanges of a plan are described as they are for a run,
//! but never submitted.

use lockstep_comm::{Exchange, ExchangeLabel, Region};
use lockstep_graph::{MemoryPlan, Plan, Price, Task, TaskId};
use lockstep_ops::Isa;

use super::description::{Exchanges, Regions};
use super::places::{Places, tensor_lens};
use super::store::{ALIGN, StoreLayout};
use crate::error::ScheduleError;

/// The exchanges of a plan as one rank would submit them. What they send is exactly what the communicator's counters will count.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use lockstep_graph::{Plan, PlanOptions, zoo};
/// use lockstep_ops::Isa;
/// use lockstep_scheduler::Traffic;
///
/// let network = Arc::new(zoo::by_name("lenet").unwrap());
/// let plan = Plan::compile(network, PlanOptions { minibatch: 64, ranks: 2, ..PlanOptions::default() }).unwrap();
/// let sent: u64 = (0..2)
///     .map(|rank| Traffic::new(&plan, rank, Isa::detect()).unwrap().bytes_sent(64).unwrap())
///     .sum();
/// // Between them the two ranks send every gradient once and every parameter once, their losses, and what pads 20 and 50 channels.
/// let parameters = 4 * plan.network().parameter_count() as u64;
/// assert!(sent > 2 * parameters && 2 * sent < 5 * parameters);
/// ```
#[derive(Debug)]
pub struct Traffic<'a> {
    plan: &'a Plan,
    store: StoreLayout,
    memory: MemoryPlan,
}

impl<'a> Traffic<'a> {
    /// That of one rank. All ranks send alike where minibatch and features divide evenly among them.
    ///
    /// # Errors
    /// A layer's shape is one that no kernel serves.
    pub fn new(plan: &'a Plan, rank: usize, isa: Isa) -> Result<Self, ScheduleError> {
        let store = StoreLayout::new(plan, rank, isa)?;
        let memory = MemoryPlan::apart(&tensor_lens(plan, &store), ALIGN);
        Ok(Self { plan, store, memory })
    }

    /// What a task sends for a minibatch of so many samples; nothing if it is no exchange.
    ///
    /// # Errors
    /// The exchange cannot be described to the communicator.
    pub fn of(&self, task: TaskId, minibatch: usize) -> Result<Price, ScheduleError> {
        let Self { plan, store, memory } = self;
        let regions = Regions {
            iteration: Region::described(memory.len()),
            parameters: Region::described(store.len()),
        };
        let task = plan.tasks().task(task);
        if !task.kind.is_communication() {
            return Ok(Price::default());
        }
        let exchanges = Exchanges { places: Places { plan, store, memory }, regions };
        let label = ExchangeLabel { id: 0, priority: 0, rank: store.rank() };
        Ok(price(task, &exchanges.describe(task, label, minibatch)?))
    }

    /// Payload bytes that the rank sends in a step with a minibatch of so many samples.
    ///
    /// # Errors
    /// An exchange cannot be described to the communicator.
    pub fn bytes_sent(&self, minibatch: usize) -> Result<u64, ScheduleError> {
        let ids = self.plan.tasks().tasks().map(|task| task.id);
        // Whole numbers, exact as far as 2^53.
        ids.map(|id| Ok(self.of(id, minibatch)?.bytes_sent as u64)).sum()
    }
}

/// Replaces the prices of a plan's exchanges, which count unpadded values, by what one rank sends for the largest minibatch.
///
/// # Errors
/// A layer's shape is one that no kernel serves, or an exchange cannot be described to the communicator.
pub fn price_exchanges(plan: &mut Plan, rank: usize, isa: Isa) -> Result<(), ScheduleError> {
    let minibatch = plan.options().minibatch;
    let traffic = Traffic::new(plan, rank, isa)?;
    let exchanges = plan.tasks().tasks().filter(|task| task.kind.is_communication());
    let price = |id| Ok((id, traffic.of(id, minibatch)?));
    let prices: Result<Vec<_>, ScheduleError> = exchanges.map(|task| price(task.id)).collect();
    for (id, price) in prices? {
        plan.tasks_mut().set_price(id, price);
    }
    Ok(())
}

/// The price of an exchange as it was described.
pub(super) fn price(task: &Task, exchange: &Exchange) -> Price {
    let (bytes_sent, messages) = (exchange.bytes_sent() as f64, exchange.messages_sent() as f64);
    Price { bytes_sent, messages, ..task.price }
}
