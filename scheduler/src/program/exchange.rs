//! The exchanges of a program: which elements go from which rank to which.
#![expect(
    unsafe_code,
    reason = "tells the communication thread where tensors lie, and submits exchanges of them"
)]

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockstep_comm::{Algorithm, Communicator, Exchange, ExchangeLabel, Region};
use lockstep_graph::{Task, TaskKind, TensorRole, strips};

use super::bind::{Buffer, Program};
use super::redistribution::{Messages, gather, redistribute};
use super::store::ALIGN;
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
    /// The exchange of a communication task; `None` for others.
    pub(super) fn exchange_of(
        &self,
        task: &Task,
        id: u32,
    ) -> Result<Option<BoundExchange>, ScheduleError> {
        if !task.kind.is_communication() {
            return Ok(None);
        }
        let label = ExchangeLabel { id, priority: priority(task), rank: self.rank() };
        let mesh = self.plan.meshes().mesh(task.layer);
        let members: Vec<usize> = mesh.same_features(self.rank()).collect();
        let first = self.buffer(task.reads[0]);
        let exchange = match task.kind {
            TaskKind::PartReduce => {
                let strips = own_strips(&first, members.len());
                let (data, algorithm) = (self.region(&first), self.algorithm(&first, &members));
                Exchange::part_reduce(label, data, &members, &strips, algorithm)?
            }
            TaskKind::PartBroadcast => {
                let strips = own_strips(&first, members.len());
                let (data, algorithm) = (self.region(&first), self.algorithm(&first, &members));
                Exchange::part_broadcast(label, data, &members, &strips, algorithm)?
            }
            _ => {
                let role = self.plan.tasks().tensor(task.reads[0]).role;
                let peers: Vec<usize> = match role {
                    TensorRole::SliceStatistics
                    | TensorRole::SliceGradientSums
                    | TensorRole::LocalStatistics
                    | TensorRole::LocalGradientSums => members,
                    TensorRole::LossStatistics => mesh.group_of(self.rank()).collect(),
                    TensorRole::LocalMetrics | TensorRole::LocalSquares => {
                        (0..self.ranks()).collect()
                    }
                    _ => {
                        // Made now as well, so that what cannot be described is refused before the run starts.
                        let minibatch = self.plan.options().minibatch;
                        let exchange = self.redistribute(task, label, minibatch)?;
                        let known = Mutex::new(vec![(minibatch, exchange)]);
                        return Ok(Some(BoundExchange::BySamples { label, known }));
                    }
                };
                let messages = gather(self.rank(), &peers, first.range.len());
                self.exchange_messages(task, label, messages)?
            }
        };
        Ok(Some(BoundExchange::Fixed(Arc::new(exchange))))
    }

    /// The fastest algorithm for a tensor's exchange; a ring sums in an order of its own, which the reproducible mode rules out.
    fn algorithm(&self, tensor: &Buffer, members: &[usize]) -> Algorithm {
        let bytes = (tensor.range.len() * size_of::<f32>()) as u64;
        match Algorithm::choose(bytes, members.len(), &self.link) {
            Algorithm::Ring if self.plan.options().reproducible => Algorithm::Direct,
            fastest => fastest,
        }
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
        let exchange = self.redistribute(task, *label, minibatch);
        let exchange = exchange.expect("a part of what was described for the largest minibatch");
        known.push((minibatch, Arc::clone(&exchange)));
        exchange
    }

    /// The exchange that brings a tensor from one placement to another.
    fn redistribute(
        &self,
        task: &Task,
        label: ExchangeLabel,
        minibatch: usize,
    ) -> Result<Arc<Exchange>, ScheduleError> {
        let messages = redistribute(&self.plan, &self.store, task, minibatch);
        self.exchange_messages(task, label, messages).map(Arc::new)
    }

    fn exchange_messages(
        &self,
        task: &Task,
        label: ExchangeLabel,
        messages: Messages,
    ) -> Result<Exchange, ScheduleError> {
        let region = |tensor| self.region(&self.buffer(tensor));
        let (source, target) = (region(task.reads[0]), region(task.writes[0]));
        let Messages { sends, receives, copies } = messages;
        Ok(Exchange::redistribute(label, source, target, sends, receives, copies)?)
    }

    fn region(&self, buffer: &Buffer) -> Region {
        let arena = if buffer.lasts { self.store.arena() } else { &*self.arena };
        let pointer = arena.as_ptr(buffer.range.clone());
        // SAFETY: the arena lives as long as the program, which the session keeps until the communication thread is done with
        // it; that nobody else touches the elements meanwhile is the graph's doing: the exchange is a task that reads and
        // writes these tensors, it is submitted when the task is ready and the task is finished when it completes.
        unsafe { Region::new(pointer, buffer.range.len()) }
    }

    /// Runs every exchange of the program alone, for the largest minibatch, and says how long each took on this rank, in the order of
    /// the plan's tasks: the time of the network, against which those of a run tell whether they are slow or badly hidden
    /// ([`Program::exchanges`]). All ranks must call it, before the first run: tensors of the iteration are overwritten, while
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
        // SAFETY: `region` says how long the memory lives; whoever else touches it holds the lease.
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
    pub fn exchanges(&self) -> Vec<ServedExchange<'_>> {
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
        // SAFETY: see `region`: the task is ready, so its dependencies give it the tensors until it is finished.
        unsafe { comm.submit(exchange, step, token) }
    }
}

/// The strips of a tensor, one range each.
fn own_strips(tensor: &Buffer, members: usize) -> Vec<Vec<Range<usize>>> {
    strips(tensor.range.len(), members, ALIGN).into_iter().map(|strip| vec![strip]).collect()
}

/// Lower is more urgent: small statistics that a pass waits for, then parameters by their layer's place in the next
/// forward pass.
pub(crate) fn priority(task: &Task) -> u32 {
    match task.kind {
        // A pass waits for it.
        TaskKind::Redistribute => 0,
        _ => 1 + u32::try_from(task.layer.index()).expect("layer counts fit in 32 bits"),
    }
}
