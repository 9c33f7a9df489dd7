//! What communication tasks send: which elements go from which rank to which.

use std::ops::Range;

use lockstep_comm::{Algorithm, Exchange, ExchangeLabel, LinkModel, Region};
use lockstep_graph::{Task, TaskGraph, TaskKind, TensorId, TensorRole, strips};

use super::places::{Buffer, Places};
use super::redistribution::{Messages, gather, redistribute};
use super::store::ALIGN;
use crate::error::ScheduleError;

/// The memories of a program, or descriptions of such.
#[derive(Debug, Clone, Copy)]
pub(super) struct Regions {
    /// What lasts for one iteration.
    pub(super) iteration: Region,
    /// What outlives it.
    pub(super) parameters: Region,
}

/// Describes the exchanges of a plan on one rank: the one place that knows what they send.
#[derive(Debug)]
pub(super) struct Exchanges<'a> {
    pub(super) places: Places<'a>,
    pub(super) regions: Regions,
}

impl Exchanges<'_> {
    /// The exchange of a communication task for a minibatch of so many samples.
    pub(super) fn describe(
        &self,
        task: &Task,
        label: ExchangeLabel,
        minibatch: usize,
    ) -> Result<Exchange, ScheduleError> {
        let Places { plan, store, .. } = self.places;
        let mesh = plan.meshes().mesh(task.layer);
        let members: Vec<usize> = mesh.same_features(label.rank).collect();
        if task.kind != TaskKind::Redistribute {
            let tensors: Vec<Buffer> = task.reads.iter().map(|&t| self.places.buffer(t)).collect();
            let strips = owned_strips(&tensors, members.len());
            let algorithm = self.algorithm(&tensors, members.len());
            let data = self.memory(&tensors[0]);
            let make = match task.kind {
                TaskKind::PartReduce => Exchange::part_reduce,
                _ => Exchange::part_broadcast,
            };
            return Ok(make(label, data, &members, &strips, algorithm)?);
        }
        let peers = match plan.tasks().tensor(task.reads[0]).role {
            TensorRole::LossStatistics => mesh.group_of(label.rank).collect(),
            TensorRole::LocalMetrics | TensorRole::LocalSquares => {
                (0..plan.options().ranks).collect()
            }
            _ => members,
        };
        let messages = if depends_on_samples(plan.tasks(), task) {
            redistribute(plan, store, task, minibatch)
        } else {
            gather(label.rank, &peers, self.places.buffer(task.reads[0]).range.len())
        };
        let (source, target) = (self.region(task.reads[0]), self.region(task.writes[0]));
        let Messages { sends, receives, copies } = messages;
        Ok(Exchange::redistribute(label, source, target, sends, receives, copies)?)
    }

    /// The fastest algorithm for an exchange of some tensors; a ring sums in an order of its own, which the reproducible mode rules
    /// out.
    fn algorithm(&self, tensors: &[Buffer], members: usize) -> Algorithm {
        let elements: usize = tensors.iter().map(|tensor| tensor.range.len()).sum();
        let bytes = (elements * size_of::<f32>()) as u64;
        let platform = self.places.plan.options().platform;
        let link = LinkModel {
            latency: platform.link_latency_s,
            seconds_per_byte: 1.0 / platform.link_bytes_per_s,
            congestion: platform.link_congestion,
            ..LinkModel::default()
        };
        match Algorithm::choose(bytes, members, &link) {
            Algorithm::Ring if self.places.plan.options().reproducible => Algorithm::Direct,
            fastest => fastest,
        }
    }

    /// The memory that a tensor lies in.
    fn memory(&self, tensor: &Buffer) -> Region {
        if tensor.lasts { self.regions.parameters } else { self.regions.iteration }
    }

    fn region(&self, tensor: TensorId) -> Region {
        let buffer = self.places.buffer(tensor);
        self.memory(&buffer).part(buffer.range)
    }
}

/// True for changes of placement of samples; what else is exchanged is the same for every minibatch.
pub(super) fn depends_on_samples(graph: &TaskGraph, task: &Task) -> bool {
    let role = graph.tensor(task.reads[0]).role;
    task.kind == TaskKind::Redistribute && (role.has_samples() || role == TensorRole::Labels)
}

/// What each member owns of some tensors that lie anywhere in one memory: its strip of each, so that a layer's strips are the same
/// whoever shares its exchange.
fn owned_strips(tensors: &[Buffer], members: usize) -> Vec<Vec<Range<usize>>> {
    let mut owned = vec![Vec::new(); members];
    for Buffer { range, .. } in tensors {
        let strips = strips(range.len(), members, ALIGN);
        for (owned, strip) in owned.iter_mut().zip(strips) {
            owned.push(range.start + strip.start..range.start + strip.end);
        }
    }
    owned
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
