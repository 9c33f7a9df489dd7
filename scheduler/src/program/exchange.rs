//! The exchanges of a program: which elements go from which rank to which.
#![expect(
    unsafe_code,
    reason = "tells the communication thread where tensors lie, and submits exchanges of them"
)]

use std::sync::Arc;

use lockstep_comm::{Communicator, Exchange, ExchangeLabel, Message, Receive, Region};
use lockstep_graph::{Task, TaskKind, strips};

use super::bind::{Buffer, Program};
use super::store::ALIGN;
use crate::error::ScheduleError;

impl Program {
    /// The exchange of a communication task; `None` for others.
    pub(super) fn exchange_of(
        &self,
        task: &Task,
        rank: usize,
        id: u32,
    ) -> Result<Option<Arc<Exchange>>, ScheduleError> {
        if !task.kind.is_communication() {
            return Ok(None);
        }
        let label = ExchangeLabel { id, priority: priority(task), rank };
        let mesh = self.plan.options().strategy.mesh(task.layer, self.ranks());
        let members: Vec<usize> = mesh.same_features(rank).collect();
        let first = self.buffer(task.reads[0]);
        let exchange = match task.kind {
            TaskKind::PartReduce => {
                let strips = strips(first.range.len(), members.len(), ALIGN);
                Exchange::part_reduce(label, self.region(&first), &members, &strips)?
            }
            TaskKind::PartBroadcast => {
                let strips = strips(first.range.len(), members.len(), ALIGN);
                Exchange::part_broadcast(label, self.region(&first), &members, &strips)?
            }
            _ => self.gather(label, &first, &self.buffer(task.writes[0]))?,
        };
        Ok(Some(Arc::new(exchange)))
    }

    /// Every rank's small tensor to every rank, in rank order.
    fn gather(
        &self,
        label: ExchangeLabel,
        source: &Buffer,
        destination: &Buffer,
    ) -> Result<Exchange, ScheduleError> {
        let len = source.range.len();
        let others = || (0..self.ranks()).filter(|&peer| peer != label.rank);
        let place = |peer: usize| peer * len..(peer + 1) * len;
        let sends: Vec<_> = others().map(|peer| Message { peer, range: 0..len }).collect();
        let receives: Vec<_> =
            others().map(|peer| Receive { peer, range: place(peer), add: false }).collect();
        Ok(Exchange::redistribute(
            label,
            self.region(source),
            self.region(destination),
            sends,
            receives,
            vec![(0..len, place(label.rank))],
        )?)
    }

    fn region(&self, buffer: &Buffer) -> Region {
        let arena = if buffer.lasts { self.store.arena() } else { &*self.arena };
        let pointer = arena.as_ptr(buffer.range.clone());
        // SAFETY: the arena lives as long as the program, which the session keeps until the communication thread is done with
        // it; that nobody else touches the elements meanwhile is the graph's doing: the exchange is a task that reads and
        // writes these tensors, it is submitted when the task is ready and the task is finished when it completes.
        unsafe { Region::new(pointer, buffer.range.len()) }
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

/// Lower is more urgent: small statistics that a pass waits for, then parameters by their layer's place in the next
/// forward pass.
pub(crate) fn priority(task: &Task) -> u32 {
    match task.kind {
        TaskKind::Redistribute => 0,
        _ => 1 + u32::try_from(task.layer.index()).expect("layer counts fit in 32 bits"),
    }
}
