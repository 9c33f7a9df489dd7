//! Binding: a plan gets memory, kernels and exchanges, and becomes a program that an executor can run.

use std::ops::Range;
use std::sync::Arc;

use lockstep_comm::Exchange;
use lockstep_graph::{
    MemoryPlan, Mesh, Plan, Price, SamplePart, ServiceOrder, TaskId, TaskKind, TensorId, TensorRole,
};
use lockstep_ops::Arena;

use super::exchange::BoundExchange;
use super::kernel::LayerKernel;
use super::links::{Links, links};
use super::places::{Buffer, Places, tensor_lens};
use super::store::{ALIGN, ParameterStore};
use super::update::Update;
use crate::error::ScheduleError;
#[cfg(debug_assertions)]
use crate::ledger::{Access, ArenaId};

/// What a program is bound for.
#[derive(Debug, Clone, Copy, Default)]
pub struct BindOptions {
    /// Weight decay pulls at all parameters; otherwise at weights only, not at biases, scales and shifts.
    pub decay_all: bool,
    /// The largest norm of all gradients together, to which they are shortened; needs a plan that clips
    /// ([`PlanOptions::clip`](lockstep_graph::PlanOptions)).
    pub clip_norm: Option<f32>,
}

/// A task with its operands found.
#[derive(Debug)]
pub(crate) struct BoundTask {
    pub(crate) kind: TaskKind,
    pub(crate) layer: lockstep_graph::LayerId,
    pub(crate) reads: Vec<Buffer>,
    pub(crate) writes: Vec<Buffer>,
    /// The first result lies in the memory of an operand, which the task does not read apart from it.
    pub(crate) in_place: bool,
    pub(crate) exchange: Option<BoundExchange>,
    /// The part of its group's samples that it works on.
    pub(crate) part: Option<SamplePart>,
    /// The ranks that share the task's layer.
    pub(crate) mesh: Mesh,
    pub(crate) update: Option<Update>,
    /// Of a convolution's forward pass: the batch normalization whose statistics it computes along.
    pub(crate) statistics_along: Option<lockstep_graph::LayerId>,
    /// Of a batch normalization: its statistics or sums are those of all ranks, not of this rank's slices.
    pub(crate) gathered: bool,
    /// Of a batch normalization: the sums that it reads are those of this rank, not of its slices.
    pub(crate) merged: bool,
    /// The layer input that each written gradient belongs to; the backward pass of a concatenation needs it.
    pub(crate) inputs: Vec<usize>,
}

/// What traces say of a task.
#[derive(Debug)]
pub(crate) struct TaskDescription<'a> {
    pub(crate) name: &'a str,
    pub(crate) layer: &'a str,
    pub(crate) layer_index: usize,
    pub(crate) pass: &'static str,
    pub(crate) price: Price,
}

/// A plan bound to kernels, buffers and exchanges on one rank.
#[derive(Debug)]
pub struct Program {
    pub(super) plan: Plan,
    pub(super) store: Arc<ParameterStore>,
    pub(super) arena: Arc<Arena>,
    pub(super) tasks: Vec<BoundTask>,
    links: Vec<Links>,
    sources: Vec<TaskId>,
    /// Tasks in order of service, how many of them are urgent, and the inverse.
    by_priority: Vec<TaskId>,
    urgent: usize,
    position: Vec<usize>,
    scratch_len: usize,
    memory: MemoryPlan,
    pub(super) clip_norm: Option<f32>,
}

impl Program {
    /// Binds plans of the same network to one store. They share one memory, so only one of the programs may run at a time
    /// (an executor runs one at a time).
    ///
    /// # Errors
    /// An exchange cannot be described to the communicator.
    ///
    /// # Panics
    /// The plans have 2^32 tasks or more, or not the meshes and the fusion of the plan that the store was made for.
    pub fn bind(
        plans: Vec<Plan>,
        store: &Arc<ParameterStore>,
        options: &BindOptions,
    ) -> Result<Vec<Self>, ScheduleError> {
        let mut planned = Vec::new();
        let mut arena_len = 0;
        for mut plan in plans {
            assert_eq!(plan.fusion(), store.fusion(), "plan and kernels agree on fusion");
            assert_eq!(plan.winograd(), store.winograd(), "plan and kernels agree on methods");
            assert_eq!(plan.meshes(), store.meshes(), "plan and kernels agree on who has what");
            let lens = tensor_lens(&plan, store.layout());
            let memory = MemoryPlan::new(plan.tasks_mut(), &lens, ALIGN);
            arena_len = arena_len.max(memory.len());
            planned.push((plan, memory));
        }
        let arena = Arc::new(Arena::new(arena_len));
        let mut first_id = 0;
        let mut programs = Vec::new();
        for (plan, memory) in planned {
            let n = plan.tasks().tasks().len();
            programs.push(Self::new(plan, memory, store, &arena, options, first_id)?);
            // Programs run one after another, but an exchange of the one may still be on its way when the next begins.
            first_id += u32::try_from(n).expect("task counts fit in 32 bits");
        }
        Ok(programs)
    }

    fn new(
        plan: Plan,
        memory: MemoryPlan,
        store: &Arc<ParameterStore>,
        arena: &Arc<Arena>,
        options: &BindOptions,
        first_id: u32,
    ) -> Result<Self, ScheduleError> {
        let (links, sources) = links(plan.tasks());
        let ServiceOrder { tasks: by_priority, urgent } = plan.tasks().service_order();
        let mut position = vec![0; by_priority.len()];
        for (p, id) in by_priority.iter().enumerate() {
            position[id.index()] = p;
        }
        let mut program = Self {
            store: Arc::clone(store),
            arena: Arc::clone(arena),
            tasks: Vec::new(),
            links,
            sources,
            by_priority,
            urgent,
            position,
            scratch_len: 0,
            memory,
            clip_norm: options.clip_norm,
            plan,
        };
        let ids: Vec<TaskId> = program.plan.tasks().tasks().map(|t| t.id).collect();
        for id in ids {
            let (task, price) = program.bind_task(id, options, first_id)?;
            program.tasks.push(task);
            if let Some(price) = price {
                program.plan.tasks_mut().set_price(id, price);
            }
        }
        let scratch = program.tasks.iter().map(|task| program.task_scratch_len(task));
        program.scratch_len = scratch.max().unwrap_or(0);
        Ok(program)
    }

    /// Finds a task's operands; of an exchange, also what it sends, which the plan knows without padding only.
    fn bind_task(
        &self,
        id: TaskId,
        options: &BindOptions,
        first_id: u32,
    ) -> Result<(BoundTask, Option<Price>), ScheduleError> {
        let task = self.plan.tasks().task(id);
        let buffers = |ids: &[TensorId]| ids.iter().map(|&t| self.buffer(t)).collect::<Vec<_>>();
        let (reads, writes) = (buffers(&task.reads), buffers(&task.writes));
        let steps_along = task.kind == TaskKind::BackwardWeights
            && task
                .writes
                .iter()
                .any(|t| self.plan.tasks().tensor(*t).role == TensorRole::Parameters);
        let strip = matches!(task.kind, TaskKind::Update | TaskKind::GradientSquares);
        let update = (strip || steps_along).then(|| {
            let parts = self.kernel(task.layer).parts();
            Update::new(&parts, self.store.strip(task.layer), options.decay_all)
        });
        let layer = self.plan.network().layer(task.layer);
        let inputs = task
            .writes
            .iter()
            .map(|&t| {
                let of = self.plan.tasks().tensor(t).layer;
                layer.inputs.iter().position(|&input| input == of).unwrap_or(0)
            })
            .collect();
        let tensor = |t: &TensorId| self.plan.tasks().tensor(*t);
        let reads_role =
            |roles: &[TensorRole]| task.reads.iter().any(|t| roles.contains(&tensor(t).role));
        let statistics_along = (task.writes.iter().map(tensor))
            .find(|t| t.role == TensorRole::SliceStatistics && t.layer != task.layer)
            .map(|t| t.layer);
        let exchange_id = first_id + u32::try_from(id.index()).expect("task counts fit in 32 bits");
        let (exchange, price) = self.exchange_of(task, exchange_id)?.unzip();
        let bound = BoundTask {
            kind: task.kind,
            layer: task.layer,
            in_place: self.memory.is_in_place(task),
            exchange,
            part: task.part,
            mesh: self.plan.meshes().mesh(task.layer),
            update,
            statistics_along,
            gathered: reads_role(&[
                TensorRole::GatheredStatistics,
                TensorRole::GatheredGradientSums,
            ]),
            merged: reads_role(&[TensorRole::LocalGradientSums]),
            inputs,
            reads,
            writes,
        };
        Ok((bound, price))
    }

    pub(super) fn buffer(&self, id: TensorId) -> Buffer {
        self.places().buffer(id)
    }

    /// Where the plan's tensors lie.
    pub(super) fn places(&self) -> Places<'_> {
        Places { plan: &self.plan, store: self.store.layout(), memory: &self.memory }
    }

    pub(crate) fn kernel(&self, layer: lockstep_graph::LayerId) -> &LayerKernel {
        self.store.kernels().get(layer)
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The parameters.
    #[must_use]
    pub fn store(&self) -> &Arc<ParameterStore> {
        &self.store
    }

    /// Bytes of the memory that lasts for an iteration; programs bound together share it.
    #[must_use]
    pub fn arena_bytes(&self) -> usize {
        self.arena.len() * size_of::<f32>()
    }

    /// Bytes of scratch of one worker.
    #[must_use]
    pub fn scratch_bytes(&self) -> usize {
        self.scratch_len * size_of::<f32>()
    }

    /// Samples that this rank can load in one iteration.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.plan.local_minibatch()
    }

    pub(crate) fn ranks(&self) -> usize {
        self.plan.options().ranks
    }

    pub(crate) fn n_tasks(&self) -> usize {
        self.tasks.len()
    }

    pub(crate) fn links(&self, id: TaskId) -> &Links {
        &self.links[id.index()]
    }

    pub(crate) fn sources(&self) -> &[TaskId] {
        &self.sources
    }

    pub(crate) fn task_at(&self, position: usize) -> TaskId {
        self.by_priority[position]
    }

    /// How many positions are of urgent tasks.
    pub(crate) fn urgent(&self) -> usize {
        self.urgent
    }

    pub(crate) fn position(&self, id: TaskId) -> usize {
        self.position[id.index()]
    }

    pub(crate) fn task_name(&self, id: TaskId) -> &str {
        &self.plan.tasks().task(id).name
    }

    /// The exchange of a communication task for a minibatch of so many samples; `None` for other tasks.
    pub(crate) fn exchange(&self, id: TaskId, minibatch: usize) -> Option<Arc<Exchange>> {
        let bound = self.tasks[id.index()].exchange.as_ref()?;
        Some(self.exchange_for(bound, self.plan.tasks().task(id), minibatch))
    }

    /// Samples of an iteration that a task computes on this rank, as positions within the minibatch.
    pub(crate) fn samples(&self, task: &BoundTask, minibatch: usize) -> Range<usize> {
        task.part.map_or_else(
            || self.group(task, minibatch),
            |part| self.part_samples(task, part, minibatch),
        )
    }

    /// A part of the samples that this rank computes of a task's layer.
    pub(super) fn part_samples(
        &self,
        task: &BoundTask,
        part: SamplePart,
        minibatch: usize,
    ) -> Range<usize> {
        part.samples(minibatch, self.rank() / task.mesh.members())
    }

    /// All samples of an iteration that this rank computes of a task's layer.
    pub(super) fn group(&self, task: &BoundTask, minibatch: usize) -> Range<usize> {
        self.plan.meshes().samples(task.layer, self.rank(), minibatch)
    }

    /// This rank.
    pub(crate) fn rank(&self) -> usize {
        self.store.rank()
    }

    pub(crate) fn scratch_len(&self) -> usize {
        self.scratch_len
    }

    pub(crate) fn describe(&self, id: TaskId) -> TaskDescription<'_> {
        let task = self.plan.tasks().task(id);
        TaskDescription {
            name: &task.name,
            layer: &self.plan.network().layer(task.layer).name,
            layer_index: task.layer.index(),
            pass: task.kind.pass(),
            price: task.price,
        }
    }

    /// What an instance of a task touches, for a minibatch of so many samples.
    #[cfg(debug_assertions)]
    pub(crate) fn accesses(&self, id: TaskId, minibatch: usize) -> Vec<Access> {
        let (bound, task) = (&self.tasks[id.index()], self.plan.tasks().task(id));
        let reads =
            task.reads.iter().zip(&bound.reads).map(|(&tensor, buffer)| (tensor, buffer, false));
        let writes =
            task.writes.iter().zip(&bound.writes).map(|(&tensor, buffer)| (tensor, buffer, true));
        let touch = |(tensor, buffer, writes): (TensorId, &Buffer, bool)| {
            let arena = if buffer.lasts { ArenaId::Parameters } else { ArenaId::Iteration };
            let ranges = self.touched(tensor, buffer, task.part, minibatch);
            ranges.into_iter().map(move |range| Access { arena, range, writes })
        };
        reads.chain(writes).flat_map(touch).collect()
    }

    /// The elements of a buffer that belong to a part of the samples.
    #[cfg(debug_assertions)]
    fn touched(
        &self,
        tensor: TensorId,
        buffer: &Buffer,
        part: Option<SamplePart>,
        minibatch: usize,
    ) -> Vec<Range<usize>> {
        let Some(part) = part.filter(|_| buffer.sample_len > 0) else {
            return vec![buffer.range.clone()];
        };
        let placement = self.plan.tasks().tensor(tensor).placement;
        let extent = lockstep_graph::Extent { samples: minibatch, features: 1 };
        let held = placement.region(self.rank(), extent).samples;
        let common = (0..part.groups).filter_map(|group| {
            let samples = part.samples(minibatch, group);
            let (first, end) = (samples.start.max(held.start), samples.end.min(held.end));
            (first < end).then(|| buffer.samples(&(first - held.start..end - held.start)).range)
        });
        common.collect()
    }
}
