//! The communication thread's work: takes commands, moves chunks in order of urgency, reports completions.
//!
//! One turn: take commands, poll the wire, advance every exchange from the most to the least urgent, report what is over, wait if
//! nothing happened. All state is plain and owned by the thread. `README.md` beside this file has the protocol between ranks.

mod active;
mod backoff;
mod clock;
mod cut;
mod pool;
mod sum;
mod window;
mod wire;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crate::config::{CommConfig, Completion, ServiceOrder};
use crate::error::CommError;
use crate::exchange::{Exchange, MAX_EXCHANGE_ID};
use crate::ring::Consumer;
use crate::submission::{Command, Notify, Reply, Shared};
use crate::workers::Rests;

use active::{Active, Ahead};
use backoff::{Backoff, Waiting};
use clock::ClockMeasurement;
use wire::{Event, Slot, Wire};

pub(crate) use cut::clamp_chunk_bytes;

/// Chunk length of the crate's own exchanges, which must work before ranks have agreed on anything.
const OWN_CHUNK_BYTES: usize = 60 << 10;

/// Exchanges, the most urgent first, that may have a whole window of chunks staged for each peer. The others have two chunks, so
/// that memory does not grow with the number of exchanges in flight.
const FULLY_STAGED: usize = 2;

/// Chunks that other exchanges may have staged: one is received while another waits to be added.
const STAGED: usize = 2;

/// Chunks that may be posted ahead where they are stored in place, if the window is smaller.
const STORED: usize = 8;

/// Exit code of a job that a failure ends.
const FAILURE_CODE: i32 = 1;

/// All that the communication thread works on.
pub(crate) struct Engine {
    shared: Arc<Shared>,
    commands: Consumer<Command>,
    config: CommConfig,
    wire: Wire,
    /// Whether the transport rings the doorbell.
    rings: bool,
    slots: Vec<Option<Active>>,
    /// Occupied slots, most urgent first.
    order: Vec<Slot>,
    /// Whether an exchange was taken in that has not been advanced yet.
    begun: bool,
    /// Chunks in a window.
    window: usize,
    clock: Option<ClockMeasurement>,
    clocks_waiting: VecDeque<Reply<i64>>,
    leaving: Option<Reply<()>>,
    /// The code and the answer of an abort on request.
    aborting: Option<(i32, Reply<()>)>,
    backoff: Backoff,
    /// How often workers had begun to rest when an exchange was completed last.
    released: Rests,
    events: Vec<Event>,
    busy_since: Option<Instant>,
}

impl Engine {
    pub(crate) fn new(
        shared: Arc<Shared>,
        commands: Consumer<Command>,
        config: CommConfig,
        wire: EngineWire,
    ) -> Engine {
        let (backoff, released) = (Backoff::new(config.patience), shared.workers.rests());
        Engine {
            shared,
            commands,
            window: config.window.max(STAGED),
            config,
            wire: wire.wire,
            rings: wire.rings,
            slots: Vec::new(),
            order: Vec::new(),
            begun: false,
            clock: None,
            clocks_waiting: VecDeque::new(),
            leaving: None,
            aborting: None,
            backoff,
            released,
            events: Vec::new(),
            busy_since: None,
        }
    }

    /// Serves until a shutdown is carried out.
    pub(crate) fn run(&mut self) -> Result<(), CommError> {
        loop {
            let mut progress = self.take_commands()?;
            progress |= self.poll()? | std::mem::take(&mut self.begun);
            if progress {
                self.advance()?;
            }
            let copying = self.slots.iter().flatten().any(Active::has_work);
            if self.may_leave() && self.commands.is_empty() && self.shared.overflow().is_empty() {
                self.wire.transport.finish()?;
                if let Some(reply) = self.leaving.take() {
                    answer(&reply, Ok(()));
                }
                return Ok(());
            }
            if progress || copying {
                self.backoff.reset();
            }
            if copying && !progress {
                self.advance()?;
            } else if !progress {
                self.wait();
            }
        }
    }

    fn next_command(&mut self) -> Option<Command> {
        self.commands.take().or_else(|| self.shared.overflow().pop_front())
    }

    fn take_commands(&mut self) -> Result<bool, CommError> {
        let mut any = false;
        while let Some(command) = self.next_command() {
            any = true;
            match command {
                Command::Serve { exchange, step, notify } => self.begin(exchange, step, notify)?,
                Command::MeasureClock(reply) => self.clocks_waiting.push_back(reply),
                Command::Baseline { len, times, reply } => {
                    answer(&reply, Ok(self.wire.transport.baseline(len, times)?));
                }
                Command::Abort { code, message, reply } => {
                    self.aborting = Some((code, reply));
                    return Err(CommError::Aborted { rank: self.shared.rank, message });
                }
                Command::Shutdown(reply) => self.leaving = Some(reply),
            }
        }
        if self.clock.is_none()
            && let Some(reply) = self.clocks_waiting.pop_front()
        {
            self.clock = Some(ClockMeasurement::start(reply, &mut self.wire)?);
            self.finish_clock();
        }
        Ok(any)
    }

    /// Takes an exchange in, behind those that are as urgent; behind all if they are served first come, first served.
    fn begin(
        &mut self,
        exchange: Arc<Exchange>,
        step: u64,
        notify: Notify,
    ) -> Result<(), CommError> {
        if let (Some(on_step), Notify::Token(_)) = (&mut self.config.on_step, &notify) {
            on_step(step);
        }
        self.check(&exchange)?;
        let own = exchange.label.id > MAX_EXCHANGE_ID;
        let chunk_bytes = if own { OWN_CHUNK_BYTES } else { self.shared.chunk_bytes };
        let priority = exchange.label.priority;
        let slot = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        let active = Active::new(exchange, notify, slot, chunk_bytes);
        match self.slots.get_mut(slot) {
            Some(free) => *free = Some(active),
            None => self.slots.push(Some(active)),
        }
        let fifo = self.config.order == ServiceOrder::Fifo;
        let urgent = |&other: &Slot| {
            self.slots[other]
                .as_ref()
                .is_some_and(|other| fifo || other.exchange.label.priority <= priority)
        };
        let at = self.order.partition_point(urgent);
        self.order.insert(at, slot);
        self.begun = true;
        self.busy_since.get_or_insert_with(Instant::now);
        Ok(())
    }

    /// Checks what only the communicator knows.
    fn check(&self, exchange: &Exchange) -> Result<(), CommError> {
        let (id, described) = (exchange.label.id, exchange.label.rank);
        let Shared { rank, n_ranks, .. } = *self.shared;
        if described != rank {
            return Err(CommError::WrongRank { id, described, rank });
        }
        let peers = exchange
            .outgoing
            .iter()
            .chain(exchange.incoming.iter().map(|incoming| &incoming.route));
        if let Some(stranger) = peers.map(|route| route.peer).find(|&peer| peer >= n_ranks) {
            return Err(CommError::NoSuchRank { id, rank: stranger, n_ranks });
        }
        let in_flight = self.slots.iter().flatten().any(|active| active.exchange.label.id == id);
        if in_flight { Err(CommError::StillInFlight { id }) } else { Ok(()) }
    }

    fn poll(&mut self) -> Result<bool, CommError> {
        let mut events = std::mem::take(&mut self.events);
        self.wire.poll(&mut events)?;
        let any = !events.is_empty();
        for event in events.drain(..) {
            self.take_event(event)?;
        }
        self.events = events;
        Ok(any)
    }

    fn take_event(&mut self, event: Event) -> Result<(), CommError> {
        let Engine { slots, wire, shared, clock, .. } = self;
        match event {
            Event::Sent { slot, flow } => {
                let active = slots[slot].as_mut().expect("events name occupied slots");
                let bytes = active.chunk_sent(flow);
                if matches!(active.notify, Notify::Token(_)) {
                    shared.counters.sent(bytes);
                }
            }
            Event::Received { slot, flow, chunk, buffer } => {
                let active = slots[slot].as_mut().expect("events name occupied slots");
                let bytes = active.chunk_received(flow, chunk, buffer, wire);
                if matches!(active.notify, Notify::Token(_)) {
                    shared.counters.received(bytes);
                }
            }
            Event::Credit => (),
            Event::Note { peer, value } => {
                let clock = clock.as_mut().expect("notes are expected during a measurement alone");
                clock.note(peer, value, wire)?;
                self.finish_clock();
            }
        }
        Ok(())
    }

    fn finish_clock(&mut self) {
        if let Some(offset) = self.clock.as_ref().and_then(ClockMeasurement::result)
            && let Some(clock) = self.clock.take()
        {
            answer(&clock.reply, Ok(offset));
        }
    }

    /// Moves every exchange on, the most urgent first: it takes what it needs of the window.
    fn advance(&mut self) -> Result<(), CommError> {
        let mut at = 0;
        while at < self.order.len() {
            let slot = self.order[at];
            let active = self.slots[slot].as_mut().expect("`order` names occupied slots");
            let ahead = if at < FULLY_STAGED { self.window } else { STAGED };
            active.advance(
                &mut self.wire,
                Ahead { staged: ahead, stored: self.window.max(STORED) },
            )?;
            if active.is_done() {
                self.order.remove(at);
                self.complete(slot)?;
            } else {
                at += 1;
            }
        }
        self.wire.acknowledge()
    }

    fn complete(&mut self, slot: Slot) -> Result<(), CommError> {
        let done = self.slots[slot].take().expect("`order` names occupied slots");
        if self.order.is_empty()
            && let Some(since) = self.busy_since.take()
        {
            self.shared.counters.busy(since.elapsed());
        }
        match done.notify {
            Notify::Token(token) => {
                self.released = self.shared.workers.rests();
                done.exchange.tally.add(done.began.elapsed());
                (self.config.on_complete)(Completion { token });
            }
            Notify::Caller(reply) => answer(&reply, Ok(())),
            Notify::Series(series) if series.left == 0 => answer(&series.reply, Ok(())),
            Notify::Series(mut series) => {
                series.exchanges.rotate_left(1);
                series.left -= 1;
                let next = Arc::clone(&series.exchanges[0]);
                self.begin(next, 0, Notify::Series(series))?;
            }
        }
        Ok(())
    }

    fn may_leave(&self) -> bool {
        self.leaving.is_some() && self.is_idle() && self.clocks_waiting.is_empty()
    }

    fn is_idle(&self) -> bool {
        self.order.is_empty() && self.clock.is_none() && self.wire.is_quiet()
    }

    fn wait(&mut self) {
        let waiting = match (&self.clock, self.is_idle()) {
            (Some(_), _) => Waiting::Urgent,
            (None, true) => Waiting::Idle,
            (None, false) => Waiting::InFlight,
        };
        let Engine { backoff, shared, commands, wire, rings, released, .. } = self;
        let computing = || shared.workers.all_compute(*released);
        let news = || !commands.is_empty() || (*rings && wire.transport.has_news());
        backoff.wait(waiting, *rings, &shared.doorbell, computing, news);
    }

    /// Ends the job after a failure, then answers everybody with it until the communicator is given up.
    ///
    /// Order: take the memory back; publish the failure; tell `on_failure`; end the job for the others; answer.
    pub(crate) fn fail(&mut self, error: &CommError) {
        tracing::error!(rank = self.shared.rank, %error, "communication failed");
        self.wire.transport.revoke();
        // An error here would mean an earlier failure; there is one failure per engine.
        let first = self.shared.failure.set(error.clone());
        debug_assert!(first.is_ok(), "an engine fails once");
        // A panic in `on_failure` must not keep the job from ending; the failure that led here is the one to report.
        let _: std::thread::Result<()> =
            catch_unwind(AssertUnwindSafe(|| (self.config.on_failure)(error)));
        let code = self.aborting.as_ref().map_or(FAILURE_CODE, |(code, _)| *code);
        self.wire.transport.abort(code, error);
        self.answer_pending(error);
        while !self.refuse_commands(error) {
            self.shared.doorbell.sleep(None, || !self.commands.is_empty());
        }
    }

    fn answer_pending(&mut self, error: &CommError) {
        let callers = self.slots.iter().flatten().filter_map(|active| active.notify.caller());
        callers.for_each(|reply| answer(reply, Err(error.clone())));
        let clocks = self.clock.take().map(|clock| clock.reply);
        clocks
            .into_iter()
            .chain(self.clocks_waiting.drain(..))
            .for_each(|reply| answer(&reply, Err(error.clone())));
        if let Some((_, reply)) = self.aborting.take() {
            answer(&reply, Ok(()));
        }
    }

    /// Answers commands with the failure. True once a shutdown was among them.
    fn refuse_commands(&mut self, error: &CommError) -> bool {
        let mut shutdown = self.leaving.take();
        while let Some(command) = self.next_command() {
            match command {
                Command::Serve { notify, .. } => {
                    notify.caller().into_iter().for_each(|reply| answer(reply, Err(error.clone())));
                }
                Command::MeasureClock(reply) => answer(&reply, Err(error.clone())),
                Command::Baseline { reply, .. } => answer(&reply, Err(error.clone())),
                Command::Abort { reply, .. } => answer(&reply, Ok(())),
                Command::Shutdown(reply) => shutdown = Some(reply),
            }
        }
        shutdown.map(|reply| answer(&reply, Err(error.clone()))).is_some()
    }
}

/// A transport set up for an engine.
pub(crate) struct EngineWire {
    wire: Wire,
    rings: bool,
}

impl EngineWire {
    pub(crate) fn new(
        mut transport: Box<dyn crate::transport::Transport>,
        doorbell: &Arc<crate::doorbell::Doorbell>,
        window_bytes: usize,
    ) -> Result<EngineWire, CommError> {
        let rings = transport.take_doorbell(doorbell);
        Ok(EngineWire { wire: Wire::new(transport, window_bytes)?, rings })
    }
}

/// Answers a caller; one that has given up waiting is no fault.
fn answer<T>(reply: &Reply<T>, result: Result<T, CommError>) {
    let _: Result<(), _> = reply.send(result);
}
