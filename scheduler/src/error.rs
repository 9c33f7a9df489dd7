//! Why a program could not be bound or a run did not end well.

use lockstep_comm::CommError;
use lockstep_graph::GraphError;
use lockstep_ops::ShapeError;

/// Why the scheduler gave up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// A layer's shape is one that no kernel can serve. Change the layer.
    #[error("layer {layer}: {source}")]
    Kernel {
        /// The layer.
        layer: String,
        /// What is wrong with its shape.
        source: ShapeError,
    },
    /// The network cannot be compiled as it was asked for.
    #[error(transparent)]
    Plan(#[from] GraphError),
    /// A task's code panicked. The message is the panic's; the run was stopped.
    #[error("task {task} of step {step} panicked: {message}")]
    TaskPanicked {
        /// Task name: layer and pass.
        task: String,
        /// Step number.
        step: u64,
        /// The panic's message.
        message: String,
    },
    /// The exchange with other ranks failed; the error names the peer or the call.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// Another rank failed while tasks were running here; its own message says why.
    #[error("{source}")]
    PeerFailed {
        /// The communication thread's error.
        source: CommError,
    },
    /// A thread could not be started. The system is out of threads or memory.
    #[error("cannot start thread {name}: {source}")]
    Thread {
        /// The thread's name.
        name: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A minibatch does not fit the plan it was given to.
    #[error("step {step} has {got} samples on this rank, the plan holds {capacity}")]
    MinibatchTooLarge {
        /// Step number.
        step: u64,
        /// Samples given.
        got: usize,
        /// Samples planned for.
        capacity: usize,
    },
    /// A program was given to an executor that is connected to another number of ranks; its exchanges would never complete.
    #[error(
        "the program was planned for {planned} ranks, the executor is connected to {connected}"
    )]
    Ranks {
        /// Ranks of the program's plan.
        planned: usize,
        /// Ranks of the executor's communicator; 1 without one.
        connected: usize,
    },
    /// A run failed while exchanges were under way, and they may still write to the parameters. Start the ranks again.
    #[error(
        "an earlier run failed in the midst of an exchange with other ranks: start the ranks again"
    )]
    Abandoned,
    /// A named parameter is missing from what was loaded, or has another shape.
    #[error("parameter {name}: expected {expected} values, got {got}")]
    Parameter {
        /// PyTorch-style name.
        name: String,
        /// Values the layer has.
        expected: usize,
        /// Values found.
        got: usize,
    },
}

/// The text of a panic's payload.
#[must_use]
pub fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic without a message".to_owned())
}
