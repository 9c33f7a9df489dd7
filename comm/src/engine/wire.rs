//! Messages in flight: tickets, buffers, and the notes by which receivers give credit and say what has come.
//!
//! **Credit.** A long stream's chunk is sent only when its receiver has posted the receive for it and said so in a small message.
//! Hence every chunk in the send window is certain to be received, whatever the two ranks' exchanges wait for, and a bounded window
//! cannot deadlock although each rank serves its exchanges in an order of its own (`engine/README.md` has the argument).
//! `window.rs` has the window.

use std::collections::HashMap;
use std::ops::Range;

use crate::error::CommError;
use crate::exchange::Stream;
use crate::region::{Region, Span};
use crate::transport::{Address, STANDING_TAG, Ticket, Transport};

use super::pool::Pool;
use super::window::Window;

/// Identifies an exchange in flight within the engine.
pub(super) type Slot = usize;

/// A small message, on the heap so that it stays where it is.
type Note = Vec<u64>;

/// Words of a credit note: the exchange's id and the number of chunks; bytes of chunks received so far, of all exchanges.
const CREDIT_WORDS: usize = 2;

/// Receives of credit notes that stand for each peer: so many can be taken in one turn.
const STANDING_CREDIT: usize = 4;

/// What one ticket stands for, with the buffers that its message uses.
#[derive(Debug)]
enum InFlight {
    Send { slot: Slot, flow: usize, buffer: Option<Vec<f32>> },
    Receive { slot: Slot, flow: usize, chunk: usize, buffer: Option<Vec<f32>> },
    CreditOut { _note: Note },
    CreditIn { peer: usize, note: Note },
    NoteOut { _note: Note },
    NoteIn { peer: usize, note: Note },
}

/// What happened on the wire.
#[derive(Debug)]
pub(super) enum Event {
    /// A chunk of an outgoing flow has left.
    Sent { slot: Slot, flow: usize },
    /// A chunk of an incoming flow is in place, or in the buffer.
    Received { slot: Slot, flow: usize, chunk: usize, buffer: Option<Vec<f32>> },
    /// Credit came: sends may be possible.
    Credit,
    /// A note of the engine's own came.
    Note { peer: usize, value: u64 },
}

/// The transport with everything that is in flight on it.
pub(super) struct Wire {
    pub(super) transport: Box<dyn Transport>,
    pub(super) pool: Pool,
    in_flight: Vec<Option<InFlight>>,
    free: Vec<Ticket>,
    /// Chunks that receivers are ready for, by exchange and peer.
    credit: HashMap<(u32, usize), u32>,
    window: Window,
    /// Own sends in flight.
    sends: usize,
    finished: Vec<Ticket>,
}

impl Wire {
    /// Takes a connected transport and posts the receives for credit.
    pub(super) fn new(
        transport: Box<dyn Transport>,
        window_bytes: usize,
    ) -> Result<Wire, CommError> {
        let n_ranks = transport.n_ranks();
        let mut wire = Wire {
            transport,
            pool: Pool::default(),
            in_flight: Vec::new(),
            free: Vec::new(),
            credit: HashMap::new(),
            window: Window::new(n_ranks, window_bytes),
            sends: 0,
            finished: Vec::new(),
        };
        let own = wire.transport.rank();
        for peer in (0..n_ranks).filter(|&peer| peer != own) {
            (0..STANDING_CREDIT).try_for_each(|_| wire.expect_credit(peer))?;
        }
        Ok(wire)
    }

    /// Whether all own sends have left, and all peers have said that they have the chunks.
    pub(super) fn is_quiet(&self) -> bool {
        self.sends == 0 && self.window.is_empty()
    }

    /// Whether a chunk of a long stream may be sent now.
    pub(super) fn may_send(&self, to: Address) -> bool {
        self.window.has_room(to.peer) && self.credit.contains_key(&(to.tag, to.peer))
    }

    /// A chunk of a long stream has come from `peer`, which will be told.
    pub(super) fn chunk_received(&mut self, peer: usize, bytes: usize) {
        self.window.received(peer, bytes as u64);
    }

    /// Tells peers of the chunks of theirs that have come, where no credit has told them already.
    pub(super) fn acknowledge(&mut self) -> Result<(), CommError> {
        while let Some(peer) = self.window.owes() {
            self.give_credit(Address { peer, tag: STANDING_TAG }, 0)?;
        }
        Ok(())
    }

    /// Sends a chunk of `stream`, in place if it is contiguous. `windowed`: it uses up window and credit (see [`Wire::may_send`]).
    pub(super) fn send_chunk(
        &mut self,
        (slot, flow): (Slot, usize),
        to: Address,
        (src, stream, chunk): (Region, &Stream, Range<usize>),
        windowed: bool,
    ) -> Result<(), CommError> {
        if windowed {
            self.window.sent(to.peer, (chunk.len() * size_of::<f32>()) as u64);
            self.use_credit(to);
        }
        self.sends += 1;
        if let Some(range) = stream.contiguous(chunk.clone()) {
            let ticket = self.ticket(InFlight::Send { slot, flow, buffer: None });
            return self.transport.send(to, src.span(&range), ticket);
        }
        let mut buffer = self.pool.take(chunk.len());
        let len = chunk.len();
        for (range, at) in stream.pieces(chunk) {
            let part = &mut buffer[at..at + range.len()];
            Span::of_buffer(part, range.len()).copy_from(src.span(&range));
        }
        let bytes = Span::of_buffer(&mut buffer, len);
        let ticket = self.ticket(InFlight::Send { slot, flow, buffer: Some(buffer) });
        self.transport.send(to, bytes, ticket)
    }

    /// Posts the receive of a chunk, in place.
    pub(super) fn receive_in_place(
        &mut self,
        (slot, flow, chunk): (Slot, usize, usize),
        from: Address,
        bytes: Span,
    ) -> Result<(), CommError> {
        let ticket = self.ticket(InFlight::Receive { slot, flow, chunk, buffer: None });
        self.transport.receive(from, bytes, ticket)
    }

    /// Posts the receive of a chunk of `len` elements into a buffer, which comes with [`Event::Received`].
    pub(super) fn receive_staged(
        &mut self,
        (slot, flow, chunk): (Slot, usize, usize),
        from: Address,
        len: usize,
    ) -> Result<(), CommError> {
        let mut buffer = self.pool.take(len);
        let bytes = Span::of_buffer(&mut buffer, len);
        let ticket = self.ticket(InFlight::Receive { slot, flow, chunk, buffer: Some(buffer) });
        self.transport.receive(from, bytes, ticket)
    }

    /// Tells a sender that `chunks` more receives of its exchange `from.tag` are posted, and which of its chunks have come.
    pub(super) fn give_credit(&mut self, from: Address, chunks: u32) -> Result<(), CommError> {
        let received = self.window.acknowledged(from.peer);
        let mut note: Note = vec![u64::from(from.tag) << 32 | u64::from(chunks), received];
        let bytes = Span::of_buffer(&mut note, CREDIT_WORDS);
        self.sends += 1;
        let ticket = self.ticket(InFlight::CreditOut { _note: note });
        self.transport.send(Address { peer: from.peer, tag: STANDING_TAG }, bytes, ticket)
    }

    /// Sends 8 bytes of the engine's own.
    pub(super) fn send_note(&mut self, to: Address, value: u64) -> Result<(), CommError> {
        let mut note: Note = vec![value];
        let bytes = Span::of_buffer(&mut note, 1);
        self.sends += 1;
        let ticket = self.ticket(InFlight::NoteOut { _note: note });
        self.transport.send(to, bytes, ticket)
    }

    /// Posts the receive of 8 bytes of the engine's own.
    pub(super) fn receive_note(&mut self, from: Address) -> Result<(), CommError> {
        let mut note: Note = vec![0];
        let bytes = Span::of_buffer(&mut note, 1);
        let ticket = self.ticket(InFlight::NoteIn { peer: from.peer, note });
        self.transport.receive(from, bytes, ticket)
    }

    /// Makes progress and appends what happened.
    pub(super) fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), CommError> {
        let mut finished = std::mem::take(&mut self.finished);
        self.transport.poll(&mut finished)?;
        for ticket in finished.drain(..) {
            let done = self.in_flight[ticket].take().expect("a ticket is finished once");
            self.free.push(ticket);
            self.finish(done, events)?;
        }
        self.finished = finished;
        Ok(())
    }

    fn finish(&mut self, done: InFlight, events: &mut Vec<Event>) -> Result<(), CommError> {
        match done {
            InFlight::Send { slot, flow, buffer } => {
                self.sends -= 1;
                buffer.into_iter().for_each(|buffer| self.pool.give(buffer));
                events.push(Event::Sent { slot, flow });
            }
            InFlight::Receive { slot, flow, chunk, buffer } => {
                events.push(Event::Received { slot, flow, chunk, buffer });
            }
            InFlight::CreditOut { .. } | InFlight::NoteOut { .. } => self.sends -= 1,
            InFlight::CreditIn { peer, note } => {
                let id = u32::try_from(note[0] >> 32).expect("32 bits are left");
                let chunks =
                    u32::try_from(note[0] & u64::from(u32::MAX)).expect("32 bits are left");
                if chunks > 0 {
                    *self.credit.entry((id, peer)).or_insert(0) += chunks;
                }
                self.window.arrived(peer, note[1]);
                events.push(Event::Credit);
                self.expect_credit(peer)?;
            }
            InFlight::NoteIn { peer, note } => events.push(Event::Note { peer, value: note[0] }),
        }
        Ok(())
    }

    /// Posts the receive of a peer's next credit note. The order in which notes are read does not matter.
    fn expect_credit(&mut self, peer: usize) -> Result<(), CommError> {
        let mut note: Note = vec![0; CREDIT_WORDS];
        let bytes = Span::of_buffer(&mut note, CREDIT_WORDS);
        let ticket = self.ticket(InFlight::CreditIn { peer, note });
        self.transport.receive(Address { peer, tag: STANDING_TAG }, bytes, ticket)
    }

    fn use_credit(&mut self, to: Address) {
        let key = (to.tag, to.peer);
        let left = self.credit.get_mut(&key).expect("`may_send` found credit");
        *left -= 1;
        if *left == 0 {
            self.credit.remove(&key);
        }
    }

    fn ticket(&mut self, message: InFlight) -> Ticket {
        if let Some(ticket) = self.free.pop() {
            self.in_flight[ticket] = Some(message);
            return ticket;
        }
        self.in_flight.push(Some(message));
        self.in_flight.len() - 1
    }
}
