//! Tasks, dependencies and the graph of both.

use std::ops::Range;

use petgraph::Direction;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;
use serde::Serialize;

use super::access::{Tensor, TensorId, TensorRole};
use crate::cost::Price;
use crate::layer::LayerId;
use crate::placement::{Placement, share};

/// Index of a [`Task`] in its graph; also its place in the sequential order of one iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct TaskId(u32);

impl TaskId {
    /// The task at a position of [`TaskGraph::tasks`].
    ///
    /// # Panics
    /// The position is 2^32 or more.
    #[must_use]
    pub fn from_index(index: usize) -> Self {
        Self(u32::try_from(index).expect("a task graph holds fewer than 2^32 tasks"))
    }

    /// Position in [`TaskGraph::tasks`].
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a task does. Operands are listed in the order in which [`Task::reads`] and [`Task::writes`] hold them;
/// `?` marks one that is there only where it applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub enum TaskKind {
    /// Brings this rank's samples of the minibatch into the input tensor. Writes: activation, labels? (where other ranks need
    /// them).
    Load,
    /// A layer's output. Reads: one activation an input, parameters?, forward weights? (a convolution that prepares them),
    /// statistics? (batch normalization: slices or gathered when training, running when scoring). Writes: activation, then batch statistics and running statistics (batch
    /// normalization) or slice statistics (a convolution before one).
    Forward,
    /// Batch normalization: statistics of slices of this rank's samples, where the layer before does not compute them along.
    /// Reads: activation. Writes: slice statistics.
    Statistics,
    /// Batch normalization over several ranks: this rank's statistics. Reads: slice statistics. Writes: local statistics.
    MergeStatistics,
    /// Where classes are split over the members of a group: each sample's sums over this member's classes. Reads: logits,
    /// labels. Writes: loss statistics.
    LossStatistics,
    /// Loss of every sample and, when training, its gradient. Reads: logits, and where classes are split: labels, gathered loss
    /// statistics. Writes: sample losses, activation gradient?.
    Loss,
    /// Sums the samples' losses and hits. Reads: sample losses. Writes: local metrics.
    Metrics,
    /// Hands the iteration's result to the caller. Reads: gathered metrics.
    Report,
    /// The gradient at a fan-out: the sum of the consumers' terms in layer order. Reads: terms. Writes: activation gradient.
    AccumulateGradient,
    /// A convolution's weights transformed for its forward pass. Reads: parameters. Writes: forward weights.
    PrepareWeights,
    /// A convolution's weights rearranged for its data gradient. Reads: parameters. Writes: backward weights.
    PackWeights,
    /// Batch normalization: gradient sums of slices of this rank's samples. Reads: activation, gradient, batch statistics.
    /// Writes: slice gradient sums.
    GradientStatistics,
    /// Batch normalization over several ranks: this rank's gradient sums. Reads: slice gradient sums. Writes: local gradient
    /// sums.
    MergeGradientStatistics,
    /// A layer's gradient with respect to its inputs. Reads: gradient of the output, then what the layer needs (see the
    /// compiler). Writes: one gradient an input that needs one.
    BackwardData,
    /// A layer's gradient with respect to its parameters; in the reproducible mode, summed slice by slice of this rank's samples.
    /// Reads: activation, gradient (batch normalization: slice or local gradient sums). Writes: parameter gradient; or, where the step is
    /// made along, parameters, velocity?.
    BackwardWeights,
    /// Adds one term of a parameter gradient to another: of another use of tied parameters, or of another slice of the samples. Reads:
    /// parameter gradient. Writes: parameter
    /// gradient (also read).
    SumGradients,
    /// The sum of squares of the owned strip of a gradient. Reads: parameter gradient. Writes: gradient squares.
    GradientSquares,
    /// The sum of squares of all owned strips. Reads: gradient squares of every layer. Writes: local squares.
    MergeSquares,
    /// Communication: each rank ends owning its strip of the summed gradient. Reads and writes: parameter gradient.
    PartReduce,
    /// The optimizer's step on the owned strip. Reads: parameter gradient, gathered squares? (where gradients are clipped). Writes: parameters, velocity?.
    Update,
    /// Communication: each owner sends its strip of new parameters to all. Reads and writes: parameters.
    PartBroadcast,
    /// Communication: a tensor changes its placement. Reads: source. Writes: destination.
    Redistribute,
}

impl TaskKind {
    /// True where the communication thread does the work.
    #[must_use]
    pub fn is_communication(self) -> bool {
        matches!(self, Self::PartReduce | Self::PartBroadcast | Self::Redistribute)
    }

    /// The pass's name in traces and tables.
    #[must_use]
    pub fn pass(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Forward => "forward",
            Self::Statistics => "statistics",
            Self::MergeStatistics => "merge_statistics",
            Self::LossStatistics => "loss_statistics",
            Self::Loss => "loss",
            Self::Metrics => "metrics",
            Self::Report => "report",
            Self::AccumulateGradient => "accumulate_gradient",
            Self::PrepareWeights => "prepare_weights",
            Self::PackWeights => "pack_weights",
            Self::GradientStatistics => "gradient_statistics",
            Self::MergeGradientStatistics => "merge_gradient_statistics",
            Self::BackwardData => "backward_data",
            Self::BackwardWeights => "backward_weights",
            Self::SumGradients => "sum_gradients",
            Self::GradientSquares => "gradient_squares",
            Self::MergeSquares => "merge_squares",
            Self::PartReduce => "part_reduce",
            Self::Update => "update",
            Self::PartBroadcast => "part_broadcast",
            Self::Redistribute => "redistribute",
        }
    }
}

/// One piece of an iteration's work.
#[derive(Debug, Clone, Serialize)]
pub struct Task {
    /// Its index.
    pub id: TaskId,
    /// What it does.
    pub kind: TaskKind,
    /// The layer it belongs to.
    pub layer: LayerId,
    /// Readable name: layer and pass, `conv1.forward`.
    pub name: String,
    /// Tensors read, in the order that [`TaskKind`] gives.
    pub reads: Vec<TensorId>,
    /// Tensors written (some also read), in the order that [`TaskKind`] gives.
    pub writes: Vec<TensorId>,
    /// The part of its group's samples that it works on; `None` for all of them, and where samples play no role.
    pub part: Option<SamplePart>,
    /// A written tensor that may live in a read tensor's memory, because the computation can be done in place.
    pub in_place: Option<InPlace>,
    /// What it costs one rank.
    pub price: Price,
    /// Seconds, by price, from this task's start to the end of the longest chain that hangs on it, the next
    /// iteration's forward pass included. Ready tasks are served longest chain first, but for those that
    /// [can wait](TaskGraph::service_order).
    pub critical_path: f64,
}

/// The `index`-th of `of` parts of the samples of each of `groups` groups. Parts are [shares](crate::share) of the whole minibatch,
/// so that those of layers with different groups nest, or overlap in a way that does not depend on the minibatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SamplePart {
    /// Which.
    pub index: usize,
    /// Of how many.
    pub of: usize,
    /// Groups that share the minibatch.
    pub groups: usize,
}

impl SamplePart {
    /// True where both parts may have samples in common, whatever the minibatch.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.shares().any(|(start, end)| {
            other.shares().any(|(first, last)| {
                start * other.all() < last * self.all() && first * self.all() < end * other.all()
            })
        })
    }

    /// True where every sample of the other part is in this one.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        other.shares().all(|(first, last)| {
            self.shares().any(|(start, end)| {
                start * other.all() <= first * self.all() && last * self.all() <= end * other.all()
            })
        })
    }

    /// Which samples of a minibatch these are for one of the groups.
    #[must_use]
    pub fn samples(self, minibatch: usize, group: usize) -> Range<usize> {
        share(minibatch, self.all(), group * self.of + self.index)
    }

    /// Parts of all groups.
    fn all(self) -> usize {
        self.groups * self.of
    }

    /// First and end, counted in parts of all groups. All of a group's samples meet the next group's, and are one run with them.
    fn shares(self) -> impl Iterator<Item = (usize, usize)> {
        let (runs, len) = if self.of == 1 { (1, self.groups) } else { (self.groups, 1) };
        (0..runs).map(move |group| {
            let start = group * self.of + self.index;
            (start, start + len)
        })
    }
}

/// A computation that can be done in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct InPlace {
    /// The operand that is overwritten.
    pub source: TensorId,
    /// The result.
    pub result: TensorId,
}

/// Why one task must wait for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Hazard {
    /// The later task reads what the earlier one wrote.
    ReadAfterWrite,
    /// The later task overwrites what the earlier one read.
    WriteAfterRead,
    /// The later task overwrites what the earlier one wrote.
    WriteAfterWrite,
    /// The later task writes memory that held the earlier one's tensor (see [`MemoryPlan`](crate::MemoryPlan)).
    MemoryReuse,
}

/// An edge of the task graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Dependency {
    /// The tensor it is about.
    pub tensor: TensorId,
    /// Why.
    pub hazard: Hazard,
    /// False: within the iteration. True: from this iteration into the next.
    pub carried: bool,
}

/// All tasks of one iteration with their dependencies.
///
/// # Examples
/// See [`Plan`](crate::Plan).
#[derive(Debug, Clone)]
pub struct TaskGraph {
    pub(super) graph: DiGraph<Task, Dependency>,
    pub(super) tensors: Vec<Tensor>,
}

impl TaskGraph {
    /// Tasks in a valid sequential order of one iteration.
    pub fn tasks(&self) -> impl ExactSizeIterator<Item = &Task> {
        self.graph.raw_nodes().iter().map(|node| &node.weight)
    }

    /// One task.
    #[must_use]
    pub fn task(&self, id: TaskId) -> &Task {
        &self.graph[NodeIndex::new(id.index())]
    }

    /// Replaces what a task costs, by one who knows more than the compiler. Priorities stay as they are.
    pub fn set_price(&mut self, id: TaskId, price: Price) {
        self.graph[NodeIndex::new(id.index())].price = price;
    }

    /// All tensors.
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// One tensor.
    #[must_use]
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.index()]
    }

    /// The tasks that wait for `id`, each with the reason; one row a (task, carried) pair.
    pub fn successors(&self, id: TaskId) -> impl Iterator<Item = (TaskId, Dependency)> + '_ {
        self.graph
            .edges_directed(NodeIndex::new(id.index()), Direction::Outgoing)
            .map(|e| (TaskId::from_index(e.target().index()), *e.weight()))
    }

    /// The tasks that `id` waits for, each with the reason.
    pub fn predecessors(&self, id: TaskId) -> impl Iterator<Item = (TaskId, Dependency)> + '_ {
        self.graph
            .edges_directed(NodeIndex::new(id.index()), Direction::Incoming)
            .map(|e| (TaskId::from_index(e.source().index()), *e.weight()))
    }

    /// All edges: from, to, why.
    pub fn dependencies(&self) -> impl Iterator<Item = (TaskId, TaskId, Dependency)> + '_ {
        self.graph.edge_references().map(|e| {
            (
                TaskId::from_index(e.source().index()),
                TaskId::from_index(e.target().index()),
                *e.weight(),
            )
        })
    }
}

/// Collects tasks in their sequential order; [`finish`](Self::finish) adds everything that can be derived from it.
#[derive(Debug, Default)]
pub(crate) struct TaskGraphBuilder {
    pub(super) tasks: Vec<Task>,
    pub(super) tensors: Vec<Tensor>,
}

/// A task before it has an index.
#[derive(Debug)]
pub(crate) struct NewTask {
    pub(crate) kind: TaskKind,
    pub(crate) layer: LayerId,
    pub(crate) name: String,
    pub(crate) reads: Vec<TensorId>,
    pub(crate) writes: Vec<TensorId>,
    pub(crate) part: Option<SamplePart>,
    pub(crate) in_place: Option<InPlace>,
    pub(crate) price: Price,
}

impl TaskGraphBuilder {
    pub(crate) fn tensor(
        &mut self,
        layer: LayerId,
        role: TensorRole,
        name: String,
        placement: Placement,
    ) -> TensorId {
        let id = TensorId::new(self.tensors.len());
        self.tensors.push(Tensor { id, name, role, layer, placement });
        id
    }

    /// A tensor that was made before.
    pub(crate) fn get(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.index()]
    }

    pub(crate) fn task(&mut self, task: NewTask) -> TaskId {
        let id = TaskId::from_index(self.tasks.len());
        let NewTask { kind, layer, name, reads, writes, part, in_place, price } = task;
        self.tasks.push(Task {
            id,
            kind,
            layer,
            name,
            reads,
            writes,
            part,
            in_place,
            price,
            critical_path: 0.0,
        });
        id
    }
}
