//! Why a run could not start or did not end well; each with the exit code that fits.

use std::path::PathBuf;

use lockstep_comm::CommError;
use lockstep_data::DataError;
use lockstep_graph::GraphError;
use lockstep_ops::IsaError;
use lockstep_scheduler::ScheduleError;
use lockstep_traces::TraceError;

/// Why a run could not start or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The network or the plan is wrong.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The data cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Ranks cannot talk to each other, or disagree.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// A task failed.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The trace cannot be written or read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// An instruction set was asked for that this CPU lacks.
    #[error(transparent)]
    Isa(#[from] IsaError),
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// `read`, `write` or `create`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file is not a checkpoint that this program can use.
    #[error("{} is not a usable checkpoint: {reason}", path.display())]
    BadCheckpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A parameter of the network is not in the checkpoint.
    #[error("{} has no tensor {name}: was it saved from another network?", path.display())]
    MissingTensor {
        /// The file.
        path: PathBuf,
        /// The parameter.
        name: String,
    },
    /// A parameter has another shape in the checkpoint than in the network.
    #[error("{}: {name} has shape {got:?}, the network needs {expected:?}", path.display())]
    TensorShape {
        /// The file.
        path: PathBuf,
        /// The parameter.
        name: String,
        /// The network's shape.
        expected: Vec<usize>,
        /// The file's shape.
        got: Vec<usize>,
    },
    /// A checkpoint has different values for parameters that the network has tied.
    #[error("{}: {first} and {second} differ, but they are tied in the network: leave one of them out", path.display())]
    TiedTensors {
        /// The file.
        path: PathBuf,
        /// One name.
        first: String,
        /// The other.
        second: String,
    },
    /// A learning-rate schedule that does not exist.
    #[error("unknown schedule {name:?}: use constant, cosine or step:EPOCHS:FACTOR")]
    UnknownSchedule {
        /// What was asked for.
        name: String,
    },
    /// A flag has a value that cannot work.
    #[error("{flag} {value}: {reason}")]
    Flag {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// Why not, and what to do.
        reason: String,
    },
    /// The network's input is not the shape of the data's samples.
    #[error("the network takes {network} but the samples of {data} are {samples}")]
    SampleShape {
        /// The network's input.
        network: String,
        /// The data set's name.
        data: String,
        /// Its samples' shape.
        samples: String,
    },
    /// The data has more classes than the network.
    #[error("the network has {network} classes but {data} has {classes}")]
    Classes {
        /// Classes of the network.
        network: usize,
        /// The data set's name.
        data: String,
        /// Classes of the data.
        classes: usize,
    },
    /// The loss is not a number any more. Nothing was saved after the step before.
    #[error("the loss is {loss} at step {step}: training diverged; try a smaller --lr")]
    Diverged {
        /// The step.
        step: u64,
        /// The loss.
        loss: f64,
    },
    /// Ranks that must have the same parameters do not: a defect of memory, of the network or of this program. Start again from the
    /// last checkpoint.
    #[error(
        "after step {step}, {parameter} of rank {rank} differs from that of rank {first}: memory or network are at fault, or this \
         program; start again from the last checkpoint"
    )]
    ReplicasDiffer {
        /// PyTorch-style name.
        parameter: String,
        /// The rank that differs.
        rank: usize,
        /// The rank that it is compared with.
        first: usize,
        /// The last step that was trained.
        step: u64,
    },
    /// A rank's thread panicked outside of a task.
    #[error("panicked: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
    },
    /// An error that happened on another rank of this process.
    #[error("[rank {rank}] {source}")]
    Rank {
        /// The rank.
        rank: usize,
        /// Its error.
        source: Box<RunError>,
    },
    /// A trace is damaged, or does not show what was asked for; the report above says what.
    #[error("{} does not pass the check", path.display())]
    TraceCheck {
        /// The trace.
        path: PathBuf,
    },
    /// The program was asked to stop and did, at a step boundary.
    #[error("stopped on request after step {step}")]
    Stopped {
        /// The last complete step.
        step: u64,
    },
}

impl RunError {
    /// True for an error that only says that another rank failed.
    #[must_use]
    pub fn is_consequence(&self) -> bool {
        matches!(
            self,
            Self::Comm(
                CommError::PeerFailed { .. } | CommError::Stopped | CommError::Aborted { .. }
            ) | Self::Schedule(ScheduleError::PeerFailed { .. })
                | Self::Stopped { .. }
        )
    }

    /// The program's exit code: 2 for a wrong request, 143 after SIGTERM or Ctrl-C, 1 for a failed run.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Graph(_)
            | Self::Schedule(ScheduleError::Plan(_))
            | Self::Isa(_)
            | Self::UnknownSchedule { .. }
            | Self::Flag { .. }
            | Self::SampleShape { .. }
            | Self::Classes { .. }
            | Self::MissingTensor { .. }
            | Self::TensorShape { .. }
            | Self::TiedTensors { .. } => 2,
            Self::Stopped { .. } => 143,
            Self::Rank { source, .. } => source.exit_code(),
            _ => 1,
        }
    }
}
