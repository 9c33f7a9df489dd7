//! How a communicator is set up: its thread, its callbacks, its chunks.

use std::fmt;
use std::time::Duration;

use crate::error::CommError;

/// An exchange is over: what was received is in place, what was sent may be overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The token given to [`crate::Communicator::submit`].
    pub token: u64,
}

/// Settings of a communicator. Start from `CommConfig::default()` and set what differs.
///
/// Callbacks run on the communication thread, so they must be short: nothing moves meanwhile. A callback may submit.
pub struct CommConfig {
    /// The communication thread's name (the operating system shows the first 15 bytes).
    pub thread_name: String,
    /// Called first thing on the communication thread: pinning, floating-point mode, trace dispatcher.
    pub on_thread_start: Box<dyn FnOnce() + Send>,
    /// Called once for each completed exchange.
    pub on_complete: Box<dyn FnMut(Completion) + Send>,
    /// Called at most once, when the communicator fails; afterwards nothing completes, and with MPI the job is aborted
    /// as soon as this returns.
    pub on_failure: Box<dyn FnMut(&CommError) + Send>,
    /// Called with a submission's step before it is served: a place for faults on purpose.
    pub on_step: Option<Box<dyn FnMut(u64) + Send>>,
    /// Longest message; larger transfers are cut. All ranks must agree (see [`crate::agree`]). From 4 bytes to 1 GiB;
    /// other values are moved to the nearest of these. Rounded down to whole elements.
    pub chunk_bytes: usize,
    /// Chunks' worth of bytes that may be on the way to one peer at once, sent and not yet received; to all peers together twice
    /// that, but always a chunk to each. More hide latency; fewer let an urgent exchange overtake sooner. A part-reduce stages as
    /// much for each peer, if it is one of the two most urgent exchanges, and two chunks otherwise.
    pub window: usize,
    /// Which exchange is served first.
    pub order: ServiceOrder,
    /// How the thread waits.
    pub patience: Patience,
}

/// How the communication thread waits when nothing happens: it polls without pause at first, then gives its core away between
/// polls, then sleeps between them, an eighth of the time waited so far. Whatever happens starts this anew.
///
/// Where a transport rings a bell (`local`) the thread sleeps until it is rung. MPI has to be polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Time without news during which the thread polls without pause.
    pub spin: Duration,
    /// Time after that during which it gives its core away between polls. Where somebody computes on the same core, which a yield
    /// that comes back late tells, it sleeps at once instead: a worker that got the core keeps it longer than a sleep lasts.
    pub yielding: Duration,
    /// The shortest sleep.
    pub first_sleep: Duration,
    /// While all workers of the rank compute, on whose core the thread is ([`crate::Communicator::worker_joins`]): it neither polls on nor
    /// yields, but sleeps so long at least. `None`: it has a core of its own, and what they do does not matter.
    pub while_computing: Option<Duration>,
    /// The longest sleep while exchanges are in flight.
    pub longest_sleep: Duration,
    /// The longest sleep while none is. MPI must be polled even then: it may still hold a message that it reported as sent.
    pub longest_idle_sleep: Duration,
}

impl Patience {
    /// For a thread that shares its core with workers: the default.
    ///
    /// Measured between two hosts, nobody else computing: 1.2 GB/s of 1.25 on a link of 10 Gbit/s, and 0.3 without yields.
    ///
    /// While workers compute, each time that the thread wakes takes 20 us of their core and more of their caches: at 1 Gbit/s,
    /// waking after 150 us instead of 600 costs CD-DNN 7 % and LeNet 6 % of their speed. After 1 ms CD-DNN would gain another 2 %, and LeNet nothing.
    #[must_use]
    pub fn shared_core() -> Patience {
        Patience {
            spin: Duration::from_micros(5),
            yielding: Duration::from_millis(1),
            first_sleep: Duration::from_micros(50),
            while_computing: Some(Duration::from_micros(600)),
            longest_sleep: Duration::from_millis(1),
            longest_idle_sleep: Duration::from_millis(10),
        }
    }

    /// For a thread with a core of its own: it polls as long as an answer may come soon.
    #[must_use]
    pub fn own_core() -> Patience {
        let yielding = Duration::from_millis(2);
        Patience { yielding, while_computing: None, ..Patience::shared_core() }
    }
}

impl Default for Patience {
    fn default() -> Patience {
        Patience::shared_core()
    }
}

/// Which of the exchanges in flight is served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ServiceOrder {
    /// The most urgent, by [`crate::ExchangeLabel::priority`]; it overtakes others between two of their chunks.
    #[default]
    Priority,
    /// The one submitted first.
    Fifo,
}

impl Default for CommConfig {
    /// Thread `comm`, no callbacks, chunks of 60 KiB, 8 of them on the way to a peer: 4 ms at 1 Gbit/s. With 4 of them a link of
    /// 1 Gbit/s rests while the thread sleeps ([`Patience::while_computing`]): CD-DNN's workers waited twice as long.
    ///
    /// Open MPI sends messages below 64 KiB, its header included, over TCP without asking. Longer ones cost a round trip each,
    /// which waits behind the chunks that go the other way: 128 KiB reached 80 % of a link of 1 Gbit/s where 60 KiB reach 95 %.
    fn default() -> CommConfig {
        CommConfig {
            thread_name: "comm".to_owned(),
            on_thread_start: Box::new(|| ()),
            on_complete: Box::new(|_| ()),
            on_failure: Box::new(|_| ()),
            on_step: None,
            chunk_bytes: 60 << 10,
            window: 8,
            order: ServiceOrder::Priority,
            patience: Patience::default(),
        }
    }
}

impl fmt::Debug for CommConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommConfig")
            .field("thread_name", &self.thread_name)
            .field("chunk_bytes", &self.chunk_bytes)
            .field("window", &self.window)
            .field("order", &self.order)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}
