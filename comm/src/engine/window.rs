//! How much may be on the way to each peer, so that little stands before an urgent chunk.
//!
//! A transport says that a message has left when the system has taken it, and a system takes megabytes. So what counts as on the
//! way is what the receiver has not confirmed: each rank counts the bytes of chunks that it has received from each peer and says
//! so with its credit notes.
//!
//! A peer always may have one chunk on the way. Beyond that each may have the window, and all together twice the window: a rank
//! that sends to many shares its link among them, and a peer that has stopped cannot use up all.

/// Bytes of chunks on the way, sent and received, by peer. Totals since the start.
#[derive(Debug)]
pub(super) struct Window {
    limit: u64,
    sent: Vec<u64>,
    confirmed: Vec<u64>,
    received: Vec<u64>,
    /// `sent - confirmed`, over all peers.
    on_the_way: u64,
    /// Peers that have not been told of all that came from them.
    owed: Vec<usize>,
}

impl Window {
    pub(super) fn new(n_ranks: usize, bytes: usize) -> Window {
        let zeros = || vec![0; n_ranks];
        Window {
            limit: bytes.max(1) as u64,
            sent: zeros(),
            confirmed: zeros(),
            received: zeros(),
            on_the_way: 0,
            owed: Vec::new(),
        }
    }

    /// Whether another chunk may be sent to `peer`.
    pub(super) fn has_room(&self, peer: usize) -> bool {
        let to_peer = self.sent[peer] - self.confirmed[peer];
        to_peer == 0 || (to_peer < self.limit && self.on_the_way < 2 * self.limit)
    }

    /// Whether every peer has confirmed all.
    pub(super) fn is_empty(&self) -> bool {
        self.on_the_way == 0
    }

    /// A chunk goes to `peer`.
    pub(super) fn sent(&mut self, peer: usize, bytes: u64) {
        self.sent[peer] += bytes;
        self.on_the_way += bytes;
    }

    /// `peer` says how much has arrived there since the start. Notes may be read out of order.
    pub(super) fn arrived(&mut self, peer: usize, total: u64) {
        let news = total.saturating_sub(self.confirmed[peer]);
        self.confirmed[peer] += news;
        self.on_the_way -= news;
    }

    /// A chunk came from `peer`.
    pub(super) fn received(&mut self, peer: usize, bytes: u64) {
        self.received[peer] += bytes;
        if !self.owed.contains(&peer) {
            self.owed.push(peer);
        }
    }

    /// What `peer` is to be told now.
    pub(super) fn acknowledged(&mut self, peer: usize) -> u64 {
        self.owed.retain(|&owed| owed != peer);
        self.received[peer]
    }

    /// A peer that has not been told of all that came from it.
    pub(super) fn owes(&self) -> Option<usize> {
        self.owed.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_has_a_window_and_all_together_two() {
        let mut window = Window::new(5, 100);
        for peer in 1..=2 {
            window.sent(peer, 60);
            assert!(window.has_room(peer), "60 of 100");
            window.sent(peer, 60);
            assert!(!window.has_room(peer), "120 of 100");
        }
        assert!(window.has_room(3), "every peer may have one chunk");
        window.sent(3, 60);
        assert!(!window.has_room(3), "60 of 100, but 300 in all");
        window.arrived(1, 120);
        assert!(window.has_room(3) && window.has_room(1));
        assert!(!window.has_room(2));
    }

    #[test]
    fn confirmations_may_overtake_one_another() {
        let mut window = Window::new(2, 10);
        window.sent(1, 25);
        window.arrived(1, 25);
        window.arrived(1, 10);
        assert!(window.is_empty());
    }

    #[test]
    fn peers_are_told_once() {
        let mut window = Window::new(3, 10);
        window.received(2, 7);
        window.received(2, 1);
        assert_eq!(window.owes(), Some(2));
        assert_eq!(window.acknowledged(2), 8);
        assert_eq!(window.owes(), None);
    }
}
