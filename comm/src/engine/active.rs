//! One exchange in flight: what of it has been sent, received, copied and added.

use std::ops::Range;
use std::sync::Arc;

use crate::error::CommError;
use crate::exchange::{Exchange, Route};
use crate::submission::Notify;
use crate::transport::Address;

use super::cut::Cut;
use super::sum::add_in_order;
use super::wire::{Slot, Wire};

/// Chunks of a summed flow that may be posted ahead: one is received while another waits to be added.
const STAGED_AHEAD: usize = 2;

/// Chunks of a stored flow that may be posted ahead. They cost no memory; more only lengthens what a transport has to search.
const STORED_AHEAD: usize = 8;

/// Elements copied locally before the engine looks at the wire again (256 KiB).
const COPY_STEP: usize = 64 << 10;

/// Progress of an outgoing route.
#[derive(Debug)]
struct OutFlow {
    cut: Cut,
    /// The next chunk to send, and how many have left.
    next: usize,
    sent: usize,
}

/// Progress of an incoming route.
#[derive(Debug)]
struct InFlow {
    cut: Cut,
    /// The next chunk to post, and how many are in place (stored or added).
    next: usize,
    done: usize,
    /// Chunks that wait to be added.
    arrived: Vec<(usize, Vec<f32>)>,
}

impl InFlow {
    fn is_done(&self) -> bool {
        self.done == self.cut.n_chunks()
    }
}

/// An exchange in flight.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) exchange: Arc<Exchange>,
    pub(super) notify: Notify,
    slot: Slot,
    outgoing: Vec<OutFlow>,
    incoming: Vec<InFlow>,
    /// The next local copy, and how much of it is done.
    copy: (usize, usize),
}

impl Active {
    pub(super) fn new(
        exchange: Arc<Exchange>,
        notify: Notify,
        slot: Slot,
        chunk_bytes: usize,
    ) -> Active {
        let cut = |route: &Route| Cut::new(route.stream.len(), chunk_bytes);
        let out = |route: &Route| OutFlow { cut: cut(route), next: 0, sent: 0 };
        let inc = |route: &Route| InFlow { cut: cut(route), next: 0, done: 0, arrived: Vec::new() };
        let outgoing = exchange.outgoing.iter().map(out).collect();
        let incoming = exchange.incoming.iter().map(|incoming| inc(&incoming.route)).collect();
        Active { exchange, notify, slot, outgoing, incoming, copy: (0, 0) }
    }

    /// Whether everything has been sent, received, copied and added.
    pub(super) fn is_done(&self) -> bool {
        self.copied()
            && self.outgoing.iter().all(|flow| flow.sent == flow.cut.n_chunks())
            && self.incoming.iter().all(InFlow::is_done)
    }

    fn copied(&self) -> bool {
        self.copy.0 == self.exchange.copies.len()
    }

    /// Whether a local copy remains, so that the engine must come back without waiting for the wire.
    pub(super) fn has_work(&self) -> bool {
        !self.copied()
    }

    /// Does all that can be done now: copies a step, adds what is complete, posts receives, sends.
    ///
    /// In this order, because copies permit adding, and adding permits to post more receives: nothing that can be done is left
    /// when the engine goes to sleep.
    pub(super) fn advance(&mut self, wire: &mut Wire) -> Result<(), CommError> {
        if self.has_work() {
            self.copy_step();
        }
        self.add_arrived(wire);
        self.post_receives(wire)?;
        self.send(wire)
    }

    fn address(&self, route: &Route) -> Address {
        Address { peer: route.peer, tag: self.exchange.label.id }
    }

    fn post_receives(&mut self, wire: &mut Wire) -> Result<(), CommError> {
        for (at, incoming) in self.exchange.incoming.iter().enumerate() {
            let from = self.address(&incoming.route);
            let ahead = if incoming.sum.is_some() { STAGED_AHEAD } else { STORED_AHEAD };
            let flow = &mut self.incoming[at];
            let mut posted = 0;
            while flow.next < flow.cut.n_chunks() && flow.next - flow.done < ahead {
                let chunk = flow.cut.chunk(flow.next);
                let key = (self.slot, at, flow.next);
                let in_place = if incoming.sum.is_some() {
                    None
                } else {
                    incoming.route.stream.contiguous(chunk.clone())
                };
                match in_place {
                    Some(range) => {
                        wire.receive_in_place(key, from, self.exchange.dst.span(&range))?;
                    }
                    None => wire.receive_staged(key, from, chunk.len())?,
                }
                flow.next += 1;
                posted += 1;
            }
            if posted > 0 && !flow.cut.is_eager() {
                wire.give_credit(from, posted)?;
            }
        }
        Ok(())
    }

    /// Sends one chunk to each peer in turn until the window is used up or no peer is ready.
    fn send(&mut self, wire: &mut Wire) -> Result<(), CommError> {
        loop {
            let mut sent = false;
            for (at, route) in self.exchange.outgoing.iter().enumerate() {
                let to = self.address(route);
                let flow = &mut self.outgoing[at];
                let eager = flow.cut.is_eager();
                if flow.next == flow.cut.n_chunks() || !(eager || wire.may_send(to)) {
                    continue;
                }
                let what = (self.exchange.src, &route.stream, flow.cut.chunk(flow.next));
                wire.send_chunk((self.slot, at), to, what, !eager)?;
                flow.next += 1;
                sent = true;
            }
            if !sent {
                return Ok(());
            }
        }
    }

    fn copy_step(&mut self) {
        let (at, done) = self.copy;
        let (from, to) = &self.exchange.copies[at];
        let len = COPY_STEP.min(from.len() - done);
        let step = |range: &Range<usize>| range.start + done..range.start + done + len;
        self.exchange.dst.span(&step(to)).copy_from(self.exchange.src.span(&step(from)));
        self.copy = if done + len == from.len() { (at + 1, 0) } else { (at, done + len) };
    }

    /// A chunk of an outgoing flow has left. Returns its payload bytes.
    pub(super) fn chunk_sent(&mut self, flow: usize) -> usize {
        // Chunks may leave out of order; only the total counts, and all but the last are equally long.
        let flow = &mut self.outgoing[flow];
        flow.sent += 1;
        flow.cut.chunk(flow.sent - 1).len() * size_of::<f32>()
    }

    /// A chunk of an incoming flow has come. Returns its payload bytes.
    pub(super) fn chunk_received(
        &mut self,
        at: usize,
        chunk: usize,
        buffer: Option<Vec<f32>>,
        wire: &mut Wire,
    ) -> usize {
        let incoming = &self.exchange.incoming[at];
        let flow = &mut self.incoming[at];
        let range = flow.cut.chunk(chunk);
        let bytes = range.len() * size_of::<f32>();
        match buffer {
            Some(buffer) if incoming.sum.is_some() => flow.arrived.push((chunk, buffer)),
            Some(buffer) => {
                for (range, from) in incoming.route.stream.pieces(range) {
                    let part = &buffer[from..from + range.len()];
                    self.exchange.dst.change(&range, |dst| dst.copy_from_slice(part));
                }
                wire.pool.give(buffer);
                flow.done += 1;
            }
            None => flow.done += 1,
        }
        bytes
    }

    /// Adds every chunk that all contributors of a sum have delivered, in order, once what they add to is in place.
    fn add_arrived(&mut self, wire: &mut Wire) {
        if !self.copied() {
            return;
        }
        let exchange = Arc::clone(&self.exchange);
        for sum in &exchange.sums {
            if !sum.after.iter().all(|&at| self.incoming[at].is_done()) {
                continue;
            }
            // All routes of a sum have the same stream and advance together.
            let first = sum.routes[0];
            let stream = &exchange.incoming[first].route.stream;
            loop {
                let chunk = self.incoming[first].done;
                let has_come = |&at: &usize| {
                    self.incoming[at].arrived.iter().any(|(index, _)| *index == chunk)
                };
                if !sum.routes.iter().all(has_come) {
                    break;
                }
                let buffers: Vec<_> =
                    sum.routes.iter().map(|&at| self.take_arrived(at, chunk)).collect();
                let (before, after) = buffers.split_at(sum.before);
                for (range, at) in stream.pieces(self.incoming[first].cut.chunk(chunk)) {
                    let part = |buffer: &'_ Vec<f32>| at..(at + range.len()).min(buffer.len());
                    let before: Vec<_> =
                        before.iter().map(|buffer| &buffer[part(buffer)]).collect();
                    let after: Vec<_> = after.iter().map(|buffer| &buffer[part(buffer)]).collect();
                    exchange.dst.change(&range, |dst| add_in_order(dst, &before, &after));
                }
                buffers.into_iter().for_each(|buffer| wire.pool.give(buffer));
                sum.routes.iter().for_each(|&at| self.incoming[at].done += 1);
            }
        }
    }

    fn take_arrived(&mut self, at: usize, chunk: usize) -> Vec<f32> {
        let arrived = &mut self.incoming[at].arrived;
        let position = arrived.iter().position(|(index, _)| *index == chunk);
        arrived.swap_remove(position.expect("every contributor has delivered the chunk")).1
    }
}
