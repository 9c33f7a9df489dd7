//! Binding: a plan gets memory, kernels and exchanges, and becomes a program that an executor can run.

use std::ops::Range;
use std::sync::Arc;

use lockstep_comm::Exchange;
use lockstep_graph::{
    Extent, MemoryPlan, Mesh, Plan, Price, REPRODUCIBLE_SLICES, SampleAxis, SamplePart, TaskId,
    TaskKind, Tensor, TensorId, TensorRole,
};
use lockstep_ops::gradient::SquareSum;
use lockstep_ops::{Arena, Maps, TensorLayout};

use super::exchange::BoundExchange;
use super::kernel::{LayerKernel, Op, layout};
use super::links::{Links, links};
use super::slices::Slices;
use super::store::{ALIGN, ParameterStore};
use super::update::{self, Update};
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

/// Where a tensor lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Buffer {
    /// In the parameter store's arena, not in the iteration's.
    pub(crate) lasts: bool,
    pub(crate) range: Range<usize>,
    /// Elements of one sample, where tasks may work on a part of the samples; 0 elsewhere.
    pub(crate) sample_len: usize,
}

impl Buffer {
    /// What comes after so many samples.
    pub(super) fn after_samples(&self, first: usize) -> Self {
        let start = self.range.start + first * self.sample_len;
        Self { range: start..self.range.end, ..*self }
    }

    /// Some of its samples; all of it where it has none.
    #[cfg(debug_assertions)]
    fn samples(&self, samples: &Range<usize>) -> Self {
        if self.sample_len == 0 {
            return self.clone();
        }
        let at = |sample: usize| self.range.start + sample * self.sample_len;
        Self { range: at(samples.start)..at(samples.end), ..*self }
    }
}

/// A task with its operands found.
#[derive(Debug)]
pub(crate) struct BoundTask {
    pub(crate) kind: TaskKind,
    pub(crate) layer: lockstep_graph::LayerId,
    pub(crate) reads: Vec<Buffer>,
    pub(crate) writes: Vec<Buffer>,
    /// The first result lies in the first operand's memory.
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
    /// Tasks in order of priority, and the inverse.
    by_priority: Vec<TaskId>,
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
            assert_eq!(plan.meshes(), store.meshes(), "plan and kernels agree on who has what");
            let lens = tensor_lens(&plan, store);
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
        let mut by_priority: Vec<TaskId> = plan.tasks().tasks().map(|t| t.id).collect();
        let path = |id: &TaskId| plan.tasks().task(*id).critical_path;
        // Stable: tasks of equal path keep the order of the plan.
        by_priority.sort_by(|a, b| path(b).total_cmp(&path(a)));
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
            position,
            scratch_len: 0,
            memory,
            clip_norm: options.clip_norm,
            plan,
        };
        let ids: Vec<TaskId> = program.plan.tasks().tasks().map(|t| t.id).collect();
        for id in ids {
            let task = program.bind_task(id, options, first_id)?;
            program.tasks.push(task);
        }
        let scratch = program.tasks.iter().map(|task| program.task_scratch_len(task));
        program.scratch_len = scratch.max().unwrap_or(0);
        Ok(program)
    }

    fn bind_task(
        &self,
        id: TaskId,
        options: &BindOptions,
        first_id: u32,
    ) -> Result<BoundTask, ScheduleError> {
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
        Ok(BoundTask {
            kind: task.kind,
            layer: task.layer,
            in_place: self.memory.is_in_place(task),
            exchange: self.exchange_of(task, exchange_id)?,
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
        })
    }

    pub(super) fn buffer(&self, id: TensorId) -> Buffer {
        let tensor = self.plan.tasks().tensor(id);
        if let Some(range) = self.store.range(tensor.layer, tensor.role) {
            return Buffer { lasts: true, range, sample_len: 0 };
        }
        let range = self.memory.range(id).expect("what does not last has a place in the arena");
        let samples = tensor.role.has_samples();
        let layout = samples.then(|| held_layout(&self.plan, &self.store, tensor));
        let sample_len = layout.map_or(0, |layout| layout.sample_len());
        Buffer { lasts: false, range, sample_len }
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
        let mesh = task.mesh;
        part.samples(minibatch, mesh.groups(), self.rank() / mesh.members())
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
        let task = &self.tasks[id.index()];
        let touch = |buffer: &Buffer, writes| {
            let held = self.group(task, minibatch).start;
            let samples = self.samples(task, minibatch);
            let samples = samples.start - held..samples.end - held;
            let part = task.part.map(|_| buffer.samples(&samples));
            let Buffer { lasts, range, .. } = part.unwrap_or_else(|| buffer.clone());
            let arena = if lasts { ArenaId::Parameters } else { ArenaId::Iteration };
            Access { arena, range, writes }
        };
        let reads = task.reads.iter().map(|buffer| touch(buffer, false));
        reads.chain(task.writes.iter().map(|buffer| touch(buffer, true))).collect()
    }
}

/// Values of one rank's metrics: loss in two parts, hits, the request to stop.
pub(crate) const METRICS: usize = 4;

/// Elements of every tensor of a plan on one rank, padding included; a multiple of nothing.
fn tensor_lens(plan: &Plan, store: &ParameterStore) -> Vec<usize> {
    plan.tasks().tensors().iter().map(|tensor| tensor_len(plan, store, tensor)).collect()
}

fn tensor_len(plan: &Plan, store: &ParameterStore, tensor: &Tensor) -> usize {
    let kernel = store.kernels().get(tensor.layer);
    let mesh = tensor.placement.mesh;
    let mb = capacity(plan, tensor);
    match tensor.role {
        TensorRole::Activation | TensorRole::ActivationGradient => {
            held_layout(plan, store, tensor).len(mb)
        }
        TensorRole::ParameterGradient => kernel.parameters_len(),
        TensorRole::BackwardWeights => kernel.backward_weights_len(),
        TensorRole::SliceStatistics | TensorRole::SliceGradientSums
            if plan.options().reproducible =>
        {
            slices(plan) * kernel.statistics_len()
        }
        TensorRole::GatheredStatistics | TensorRole::GatheredGradientSums
            if plan.options().reproducible =>
        {
            REPRODUCIBLE_SLICES * kernel.statistics_len()
        }
        TensorRole::SliceStatistics => {
            let slices = Slices::of_statistics(store.kernels(), tensor.layer);
            slices.most(mb) * kernel.statistics_len()
        }
        TensorRole::SliceGradientSums => match &kernel.op {
            Op::BatchNorm(norm) => norm.stats_slices(mb) * norm.stats_len(),
            _ => 0,
        },
        TensorRole::LocalStatistics
        | TensorRole::BatchStatistics
        | TensorRole::LocalGradientSums => kernel.statistics_len(),
        TensorRole::GatheredStatistics | TensorRole::GatheredGradientSums => {
            mesh.groups() * kernel.statistics_len()
        }
        TensorRole::Labels => mb,
        TensorRole::LossStatistics => mb * loss_statistics_len(kernel),
        TensorRole::GatheredLossStatistics => mesh.members() * mb * loss_statistics_len(kernel),
        TensorRole::SampleLosses => 2 * mb,
        TensorRole::LocalMetrics => slices(plan) * METRICS,
        TensorRole::GatheredMetrics => plan.options().ranks * slices(plan) * METRICS,
        TensorRole::GradientSquares => {
            let strip = store.strip(tensor.layer).len();
            strip.div_ceil(update::SQUARES_CHUNK) * SquareSum::LEN
        }
        TensorRole::LocalSquares => SquareSum::LEN,
        TensorRole::GatheredSquares => plan.options().ranks * SquareSum::LEN,
        // What lasts is in the store; a role added later must be given a length here.
        _ => 0,
    }
}

/// The most samples that a rank holds of a tensor, whatever the minibatch: the same on all ranks.
fn capacity(plan: &Plan, tensor: &Tensor) -> usize {
    let minibatch = plan.options().minibatch;
    match tensor.placement.samples {
        SampleAxis::Split => minibatch.div_ceil(tensor.placement.mesh.groups()),
        _ => minibatch,
    }
}

/// The layout of the features that a store's rank holds of an activation or its gradient.
pub(super) fn held_layout(plan: &Plan, store: &ParameterStore, tensor: &Tensor) -> TensorLayout {
    let layer = plan.network().layer(tensor.layer);
    let (c, h, w) = layer.shape.maps();
    let extent = Extent { samples: plan.options().minibatch, features: c };
    let features = tensor.placement.region(store.rank(), extent).features;
    let isa = store.kernels().get(tensor.layer).isa();
    let maps = Maps { c: features.len(), h, w };
    TensorLayout { maps, layout: layout(plan.network(), layer, isa) }
}

/// Slices of one rank's samples: more than one in the reproducible mode alone.
pub(super) fn slices(plan: &Plan) -> usize {
    if plan.options().reproducible { REPRODUCIBLE_SLICES / plan.options().ranks } else { 1 }
}

fn loss_statistics_len(kernel: &LayerKernel) -> usize {
    match &kernel.op {
        Op::SplitLoss(loss) => loss.statistics_len(1),
        _ => 0,
    }
}
