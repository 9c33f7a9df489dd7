//! The communication thread from start to end: callbacks, transport, engine, and what becomes of a panic.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{Builder, JoinHandle};

use crate::config::CommConfig;
use crate::counters::CounterCells;
use crate::doorbell::Doorbell;
use crate::engine::{Engine, EngineWire, clamp_chunk_bytes};
use crate::error::CommError;
use crate::ring::ring;
use crate::submission::{QUEUE_LENGTH, Shared};
use crate::transport::Endpoint;
use crate::workers::Workers;

/// Starts the thread and waits until it has connected.
pub(crate) fn start(
    endpoint: Endpoint,
    config: CommConfig,
) -> Result<(Arc<Shared>, JoinHandle<()>), CommError> {
    let (ready, started) = channel();
    let thread = Builder::new()
        .name(config.thread_name.clone())
        .spawn(move || run(endpoint, config, &ready))
        .map_err(|error| CommError::ThreadStart { message: error.to_string() })?;
    // The thread catches panics, so it always says how it started.
    let started = started.recv().unwrap_or(Err(CommError::Stopped));
    started.map(|shared| (shared, thread))
}

fn run(endpoint: Endpoint, mut config: CommConfig, ready: &Sender<Result<Arc<Shared>, CommError>>) {
    let on_start = std::mem::replace(&mut config.on_thread_start, Box::new(|| ()));
    let connected = catch_unwind(AssertUnwindSafe(|| {
        on_start();
        connect(endpoint, config)
    }));
    let started = connected.unwrap_or_else(|panic| {
        Err(CommError::ThreadStart {
            message: format!("it panicked: {}", message_of(panic.as_ref())),
        })
    });
    match started {
        Ok((shared, mut engine)) => {
            let rank = shared.rank;
            // Whoever started the thread may have given up; then the engine finds its shutdown in the queue, or nobody cares.
            let _: Result<(), _> = ready.send(Ok(shared));
            // The engine outlives the panic, so that pending callers are answered with the failure and not before it is known.
            let ended = catch_unwind(AssertUnwindSafe(|| engine.run()));
            let panicked = |message| Err(CommError::ThreadPanicked { rank, message });
            if let Err(error) = ended.unwrap_or_else(|panic| panicked(message_of(panic.as_ref()))) {
                engine.fail(&error);
            }
        }
        Err(error) => {
            let _: Result<(), _> = ready.send(Err(error));
        }
    }
}

fn connect(endpoint: Endpoint, config: CommConfig) -> Result<(Arc<Shared>, Engine), CommError> {
    let transport = endpoint.connect()?;
    let doorbell = Arc::new(Doorbell::for_this_thread());
    let (queue, commands) = ring(QUEUE_LENGTH);
    let shared = Arc::new(Shared {
        rank: transport.rank(),
        n_ranks: transport.n_ranks(),
        library: transport.library(),
        chunk_bytes: clamp_chunk_bytes(config.chunk_bytes),
        queue,
        overflow: Mutex::default(),
        doorbell: Arc::clone(&doorbell),
        counters: CounterCells::default(),
        workers: Workers::default(),
        failure: OnceLock::new(),
    });
    let window_bytes = shared.chunk_bytes.saturating_mul(config.window.max(1));
    let wire = EngineWire::new(transport, &doorbell, window_bytes)?;
    Ok((Arc::clone(&shared), Engine::new(shared, commands, config, wire)))
}

/// The message of a panic, whose payload is a string unless somebody chose otherwise.
fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without message".to_owned())
}
