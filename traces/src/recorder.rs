//! What threads record with: a cheap handle that knows which steps to record.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tracing::span::EnteredSpan;
use tracing::{Dispatch, Level, dispatcher};

use crate::backlog::Backlog;
use crate::clock;
use crate::event::{Event, Exchange, Task};
use crate::tally::{Counts, Running};

/// A rank's recording as its threads see it. Cheap to clone; off, it costs one branch a call.
///
/// Events go to this crate's own subscriber, whatever the thread's default subscriber is, so a
/// recording thread can go on logging through `tracing` as before.
#[derive(Debug, Clone)]
pub struct Recorder {
    tap: Option<Arc<Tap>>,
    tally: Option<Arc<Counts>>,
}

/// What all recorders of one recording share.
pub(crate) struct Tap {
    pub(crate) recording: u64,
    pub(crate) steps: Range<u64>,
    /// Cleared when the recording ends. Relaxed everywhere: it spares work, but orders nothing; an
    /// event that slips through afterward is dropped by the sink.
    pub(crate) open: AtomicBool,
    pub(crate) dispatch: Dispatch,
    pub(crate) backlog: Arc<Backlog>,
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap")
            .field("recording", &self.recording)
            .field("steps", &self.steps)
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

/// What a thread is about to do: some blocks of one task.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskSlice<'a> {
    /// What the viewer writes on the slice, such as `conv1 forward`.
    pub name: &'a str,
    /// The layer's name.
    pub layer: &'a str,
    /// The layer's place in the order of the forward pass; 0 is the first.
    pub layer_index: usize,
    /// The pass; the names that the checks know are in [`pass`](crate::pass).
    pub pass: &'a str,
    /// The step (iteration) of the run.
    pub step: u64,
    /// Floating-point operations of these blocks; 0 where there is nothing to count.
    pub flops: f64,
    /// Bytes that these blocks read and write.
    pub bytes: f64,
    /// Which of the task's blocks.
    pub blocks: Range<usize>,
}

/// An exchange between ranks that has completed.
#[derive(Debug, Clone, PartialEq)]
pub struct ExchangeSpan<'a> {
    /// What the viewer writes on it, such as `part-reduce conv1`.
    pub name: &'a str,
    /// The layer's name.
    pub layer: &'a str,
    /// The layer's place in the order of the forward pass; 0 is the first.
    pub layer_index: usize,
    /// The kind; those that the checks know are in [`exchange`](crate::exchange).
    pub kind: &'a str,
    /// The step whose tensor is exchanged.
    pub step: u64,
    /// Bytes that this rank sends.
    pub bytes: u64,
    /// Tells this exchange from all others of this rank and kind in the program's own terms; shown,
    /// not relied on.
    pub id: u64,
    /// When the exchange was handed to the communication thread.
    pub submitted: Instant,
    /// When it had completed on this rank.
    pub completed: Instant,
}

/// A slice under way: it lasts until this is dropped. Must stay on its thread.
#[derive(Debug)]
#[must_use = "the slice ends when this is dropped"]
pub struct TaskGuard {
    _span: Option<EnteredSpan>,
    _counted: Option<Running>,
}

/// A thread's part in a recording: it lasts until this is dropped. Must stay on its thread.
#[derive(Debug)]
#[must_use = "the thread's part ends when this is dropped"]
pub struct ThreadGuard {
    recorder: Recorder,
    /// Keeps the guard on its thread: leaving is recorded for the thread that drops it.
    _on_its_thread: std::marker::PhantomData<*const ()>,
}

impl Recorder {
    /// A recorder that records nothing.
    #[must_use]
    pub fn off() -> Recorder {
        Recorder { tap: None, tally: None }
    }

    pub(crate) fn new(tap: Arc<Tap>) -> Recorder {
        Recorder { tap: Some(tap), tally: None }
    }

    /// A recorder that counts into a tally, whatever the step.
    pub(crate) fn tallying(tally: Arc<Counts>) -> Recorder {
        Recorder { tap: None, tally: Some(tally) }
    }

    /// Makes this thread a named row of the trace, for as long as the guard lives.
    ///
    /// Call it once at the start of each thread that records. A thread that takes over the name of
    /// one that has left continues its row. Names that start with `worker` are counted as compute
    /// threads by the checks. A thread that records without it gets a row with a made-up name.
    pub fn enter_thread(&self, name: &str) -> ThreadGuard {
        if let Some(tap) = &self.tap {
            tap.emit(&Event::Enter { name: name.into() });
        }
        ThreadGuard { recorder: self.clone(), _on_its_thread: std::marker::PhantomData }
    }

    /// Whether this step is being recorded. Ask it before preparing what is only for recording.
    #[inline]
    #[must_use]
    pub fn records(&self, step: u64) -> bool {
        self.tap(step).is_some() || self.tallies()
    }

    /// Whether time is being counted into a [`Tally`](crate::Tally), which takes scoring as well as training; a trace is of
    /// training.
    #[inline]
    #[must_use]
    pub fn tallies(&self) -> bool {
        self.tally.as_ref().is_some_and(|tally| tally.is_open())
    }

    /// Records a slice on this thread, from now until the guard is dropped.
    pub fn task(&self, slice: &TaskSlice<'_>) -> TaskGuard {
        let counted = self.tally.as_ref().filter(|tally| tally.is_open());
        let counted = counted.map(|tally| tally.begin(slice));
        let Some(tap) = self.tap(slice.step) else {
            return TaskGuard { _span: None, _counted: counted };
        };
        // One line for the begin, one for the end.
        if !tap.backlog.admit(2) {
            return TaskGuard { _span: None, _counted: counted };
        }
        let event = Event::Task(Task {
            name: slice.name.into(),
            layer: slice.layer.into(),
            layer_index: slice.layer_index,
            pass: slice.pass.into(),
            step: slice.step,
            flops: finite(slice.flops),
            bytes: finite(slice.bytes),
            blocks: slice.blocks.clone(),
        });
        let span = dispatcher::with_default(&tap.dispatch, || {
            // A root of its own: the registry would hand a parent's closing to whatever subscriber
            // is the thread's default at that time.
            tracing::span!(
                target: "lockstep",
                parent: None,
                Level::INFO,
                "task",
                recording = tap.recording,
                event = %event
            )
        });
        TaskGuard { _span: Some(span.entered()), _counted: counted }
    }

    /// Records an exchange, on any thread of the rank, once it has completed.
    pub fn exchange(&self, span: &ExchangeSpan<'_>) {
        if let Some(tally) = self.tally.as_ref().filter(|tally| tally.is_open()) {
            tally.exchange(span);
        }
        let Some(tap) = self.tap(span.step) else { return };
        tap.emit(&Event::Exchange(Exchange {
            name: span.name.into(),
            layer: span.layer.into(),
            layer_index: span.layer_index,
            kind: span.kind.into(),
            step: span.step,
            bytes: span.bytes,
            id: span.id,
            submitted_ns: clock::since_origin(span.submitted),
            completed_ns: clock::since_origin(span.completed),
        }));
    }

    /// Records a moment on this thread, such as the start of a step.
    pub fn instant(&self, name: &str, step: u64) {
        let Some(tap) = self.tap(step) else { return };
        tap.emit(&Event::Instant { name: name.into(), step });
    }

    #[inline]
    fn tap(&self, step: u64) -> Option<&Tap> {
        let tap = self.tap.as_deref()?;
        (tap.steps.contains(&step) && tap.open.load(Ordering::Relaxed)).then_some(tap)
    }
}

impl Tap {
    pub(crate) fn emit(&self, event: &Event<'_>) {
        if !self.backlog.admit(1) {
            return;
        }
        dispatcher::with_default(&self.dispatch, || {
            tracing::event!(
                target: "lockstep",
                parent: None,
                Level::INFO,
                recording = self.recording,
                event = %event
            );
        });
    }
}

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        if let Some(tap) = &self.recorder.tap {
            tap.emit(&Event::Leave);
        }
    }
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}
