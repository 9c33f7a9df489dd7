//! What a training run is asked to do.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lockstep_comm::{LinkModel, ServiceOrder, launcher};
use lockstep_data::Dataset;
use lockstep_graph::{Network, Strategy, WinogradTile};
use lockstep_ops::Isa;

use super::finishers::Finishers;
use super::reproducible::Reproducible;
use crate::checkpoint::NamedTensor;
use crate::schedule::LrSchedule;

/// How long to train.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Whole passes over the training data.
    Epochs(u64),
    /// Steps, through as many epochs as they take.
    Steps(u64),
}

/// Which parameters weight decay pulls towards zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Decay {
    /// All, as PyTorch's optimizer does when it is given all parameters in one group.
    #[default]
    All,
    /// Weights only: no biases, no scales and shifts of batch normalization.
    WeightsOnly,
}

/// The optimizer: SGD by PyTorch's rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Sgd {
    /// Learning rate of the first step.
    pub lr: f32,
    /// How the rate changes.
    pub schedule: LrSchedule,
    /// Momentum; zero for none.
    pub momentum: f32,
    /// Weight decay (L2).
    pub weight_decay: f32,
    /// What is decayed.
    pub decay: Decay,
    /// Nesterov's form of momentum.
    pub nesterov: bool,
    /// The largest norm of all gradients together, to which they are shortened; `None` leaves them as they are.
    pub clip_norm: Option<f32>,
}

impl Default for Sgd {
    fn default() -> Self {
        Self {
            lr: 0.02,
            schedule: LrSchedule::Cosine,
            momentum: 0.9,
            weight_decay: 5e-4,
            decay: Decay::All,
            nesterov: false,
            clip_norm: None,
        }
    }
}

/// Where the ranks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ranks {
    /// Threads of this process.
    InProcess(usize),
    /// This process is one rank of an MPI job (feature `mpi`).
    Mpi,
}

impl Ranks {
    /// Ranks of the job; of an MPI job what its launcher says, and one where there is no launcher.
    #[must_use]
    pub fn count(self) -> usize {
        match self {
            Self::InProcess(ranks) => ranks,
            Self::Mpi => launcher().map_or(1, |launcher| launcher.n_ranks),
        }
    }
}

/// What to trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceOptions {
    /// The merged file; ranks write theirs beside it.
    pub path: PathBuf,
    /// Steps to record, counted from 1.
    pub steps: Range<u64>,
}

/// Everything about a run but the network and the data.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Samples of a minibatch over all ranks.
    pub minibatch: usize,
    /// How long.
    pub length: Length,
    /// The optimizer.
    pub sgd: Sgd,
    /// Seed of initial parameters, sample order and dropout.
    pub seed: u64,
    /// Where the ranks are.
    pub ranks: Ranks,
    /// Compute threads a rank; `None` chooses by cores.
    pub workers: Option<usize>,
    /// Threads a rank that prepare minibatches.
    pub loader_threads: usize,
    /// How the ranks share the work.
    pub strategy: Strategy,
    /// Whether the bits are to be the same on 1, 2, 4 and 8 ranks.
    pub reproducible: Reproducible,
    /// Whether small gradients and parameters of several layers travel in one exchange
    /// ([`PlanOptions::bundle`](lockstep_graph::PlanOptions)).
    pub bundle: bool,
    /// Whether large 3x3 convolutions are computed by Winograd's minimal filtering
    /// ([`PlanOptions::winograd`](lockstep_graph::PlanOptions)).
    pub winograd: Option<WinogradTile>,
    /// Which of several exchanges goes first.
    pub exchange_order: ServiceOrder,
    /// The link between ranks, by which algorithms and the strategy `auto` are chosen; the same on all ranks.
    pub link: LinkModel,
    /// Compare the parameters of ranks that must have the same ones after so many steps, again and again; `None` never does.
    pub check_replicas: Option<u64>,
    /// Instruction set.
    pub isa: Isa,
    /// Directory to save weights in after every epoch.
    pub checkpoint: Option<PathBuf>,
    /// Timeline.
    pub trace: Option<TraceOptions>,
    /// Set from outside to end the run at a step boundary, on all ranks.
    pub stop: Arc<AtomicBool>,
    /// Score the test data after every epoch.
    pub evaluate: bool,
    /// The run's recordings, for a signal handler to end.
    pub finishers: Arc<Finishers>,
    /// Failures on purpose (feature `faults`).
    #[cfg(feature = "faults")]
    pub fault: Option<crate::fault::Fault>,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            minibatch: 64,
            length: Length::Epochs(3),
            sgd: Sgd::default(),
            seed: 1,
            ranks: Ranks::InProcess(1),
            workers: None,
            loader_threads: 1,
            strategy: Strategy::Data,
            reproducible: Reproducible::default(),
            bundle: true,
            winograd: None,
            exchange_order: ServiceOrder::default(),
            link: LinkModel::default(),
            check_replicas: None,
            isa: Isa::detect(),
            checkpoint: None,
            trace: None,
            stop: Arc::default(),
            evaluate: true,
            finishers: Arc::default(),
            #[cfg(feature = "faults")]
            fault: None,
        }
    }
}

/// What to train, on what.
#[derive(Clone)]
pub struct Job {
    /// The network, with a loss.
    pub network: Arc<Network>,
    /// Training data.
    pub train: Arc<dyn Dataset>,
    /// Test data, where there is some.
    pub test: Option<Arc<dyn Dataset>>,
    /// Initial parameters by PyTorch name; what is missing is drawn from the seed.
    pub initial: Option<Arc<BTreeMap<String, NamedTensor>>>,
    /// How.
    pub options: RunOptions,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("network", &self.network.name())
            .field("train", &self.train.name())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
