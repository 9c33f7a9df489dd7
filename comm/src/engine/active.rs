//! One exchange in flight: what of it has been sent, received, copied and added.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::error::CommError;
use crate::exchange::{Exchange, Route, Sum};
use crate::submission::Notify;
use crate::transport::Address;

use super::cut::Cut;
use super::sum::add_in_tree;
use super::wire::{Slot, Wire};

/// Elements copied locally before the engine looks at the wire again (256 KiB).
const COPY_STEP: usize = 64 << 10;

/// Stages whose receives are posted before the stage's turn comes, so that its sender need not wait for credit.
const STAGES_AHEAD: usize = 1;

/// Chunks of a route that may be posted ahead of what is in place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ahead {
    /// Where chunks are staged to be added: each costs its memory.
    pub(super) staged: usize,
    /// Where chunks are stored in place; more only lengthens what a transport has to search.
    pub(super) stored: usize,
}

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
    pub(super) began: Instant,
    slot: Slot,
    outgoing: Vec<OutFlow>,
    incoming: Vec<InFlow>,
    /// The first stage of which something to be received is not in place yet; the last one if there is none.
    stage: usize,
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
        let began = Instant::now();
        Active { exchange, notify, began, slot, outgoing, incoming, stage: 0, copy: (0, 0) }
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
    /// In this order, because copies permit adding, adding ends stages and permits to post more receives, and the end of a stage
    /// permits to send: nothing that can be done is left when the engine goes to sleep.
    pub(super) fn advance(&mut self, wire: &mut Wire, ahead: Ahead) -> Result<(), CommError> {
        if self.has_work() {
            self.copy_step();
        }
        loop {
            self.add_arrived(wire);
            if !self.end_stage() {
                break;
            }
        }
        self.post_receives(wire, ahead)?;
        self.send(wire)
    }

    /// Goes on to the next stage, if all of this one is in place and there is another.
    fn end_stage(&mut self) -> bool {
        let stage = self.stage;
        let missing = self.exchange.incoming.iter().zip(&self.incoming);
        let mut missing = missing.filter(|(incoming, _)| incoming.route.stage == stage);
        let ends = stage + 1 < self.exchange.n_stages && missing.all(|(_, flow)| flow.is_done());
        self.stage += usize::from(ends);
        ends
    }

    fn address(&self, route: &Route) -> Address {
        Address { peer: route.peer, tag: self.exchange.label.id }
    }

    fn post_receives(&mut self, wire: &mut Wire, ahead: Ahead) -> Result<(), CommError> {
        for (at, incoming) in self.exchange.incoming.iter().enumerate() {
            let route = &incoming.route;
            if route.stage > self.stage + STAGES_AHEAD {
                break;
            }
            // Messages of one peer with one tag come in order, so they are to be expected in order.
            let posted = |&at: &usize| self.incoming[at].next == self.incoming[at].cut.n_chunks();
            if !route.follows.as_ref().is_none_or(posted) {
                continue;
            }
            let from = self.address(route);
            let ahead = if incoming.sum.is_some() { ahead.staged } else { ahead.stored };
            let flow = &mut self.incoming[at];
            let mut posted = 0;
            while flow.next < flow.cut.n_chunks() && flow.next - flow.done < ahead {
                let chunk = flow.cut.chunk(flow.next);
                let key = (self.slot, at, flow.next);
                let in_place = if incoming.sum.is_some() {
                    None
                } else {
                    route.stream.contiguous(chunk.clone())
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
                if route.stage > self.stage {
                    break;
                }
                let gone = |&at: &usize| self.outgoing[at].next == self.outgoing[at].cut.n_chunks();
                if !route.follows.as_ref().is_none_or(gone) {
                    continue;
                }
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
        let mut left = COPY_STEP;
        // Of a redistribution there may be a short range for every sample.
        while left > 0 && !self.copied() {
            let (at, done) = self.copy;
            let (from, to) = &self.exchange.copies[at];
            let len = left.min(from.len() - done);
            let step = |range: &Range<usize>| range.start + done..range.start + done + len;
            self.exchange.dst.span(&step(to)).copy_from(self.exchange.src.span(&step(from)));
            self.copy = if done + len == from.len() { (at + 1, 0) } else { (at, done + len) };
            left -= len;
        }
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
        if !flow.cut.is_eager() {
            wire.chunk_received(incoming.route.peer, bytes);
        }
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

    /// Adds every chunk of this stage that all contributors of a sum have delivered, once what they add to is in place.
    fn add_arrived(&mut self, wire: &mut Wire) {
        if !self.copied() {
            return;
        }
        let exchange = Arc::clone(&self.exchange);
        for sum in &exchange.sums {
            // All routes of a sum have the same stage and stream, and advance together.
            let in_turn = exchange.incoming[sum.routes[0]].route.stage <= self.stage;
            if in_turn && sum.after.iter().all(|&at| self.incoming[at].is_done()) {
                self.add_chunks(&exchange, sum, wire);
            }
        }
    }

    fn add_chunks(&mut self, exchange: &Exchange, sum: &Sum, wire: &mut Wire) {
        let first = sum.routes[0];
        let stream = &exchange.incoming[first].route.stream;
        loop {
            let chunk = self.incoming[first].done;
            let has_come =
                |&at: &usize| self.incoming[at].arrived.iter().any(|(index, _)| *index == chunk);
            if !sum.routes.iter().all(has_come) {
                return;
            }
            let mut buffers: Vec<_> =
                sum.routes.iter().map(|&at| self.take_arrived(at, chunk)).collect();
            for (range, at) in stream.pieces(self.incoming[first].cut.chunk(chunk)) {
                exchange.dst.change(&range, |dst| {
                    let parts = buffers.iter_mut().map(|buffer| &mut buffer[at..at + range.len()]);
                    let mut terms: Vec<&mut [f32]> = parts.collect();
                    terms.insert(sum.before, dst);
                    add_in_tree(&mut terms, sum.before);
                });
            }
            buffers.into_iter().for_each(|buffer| wire.pool.give(buffer));
            sum.routes.iter().for_each(|&at| self.incoming[at].done += 1);
        }
    }

    fn take_arrived(&mut self, at: usize, chunk: usize) -> Vec<f32> {
        let arrived = &mut self.incoming[at].arrived;
        let position = arrived.iter().position(|(index, _)| *index == chunk);
        arrived.swap_remove(position.expect("every contributor has delivered the chunk")).1
    }
}
