//! One full-duplex link in virtual time: exchanges in order of urgency, the more urgent one interrupting.

/// Exchanges that wait or travel, and when those before them were over.
#[derive(Debug)]
pub(super) struct Link {
    now: f64,
    submitted: u64,
    queue: Vec<Job>,
    /// By exchange: when it was last over.
    over: Vec<f64>,
    /// Seconds in which something travelled.
    pub(super) busy: f64,
}

#[derive(Debug)]
struct Job {
    exchange: usize,
    /// Lower goes first; of equals, the one submitted first.
    urgency: (usize, u64),
    seconds_left: f64,
}

impl Link {
    pub(super) fn new(exchanges: usize) -> Self {
        Self { now: 0.0, submitted: 0, queue: Vec::new(), over: vec![0.0; exchanges], busy: 0.0 }
    }

    /// Hands in an exchange at a time no earlier than any told before.
    pub(super) fn submit(&mut self, at: f64, exchange: usize, urgency: usize, seconds: f64) {
        self.run_until(at);
        self.submitted += 1;
        self.over[exchange] = f64::INFINITY;
        let urgency = (urgency, self.submitted);
        self.queue.push(Job { exchange, urgency, seconds_left: seconds });
    }

    /// When an exchange that was submitted is over, or `at` if that is later.
    pub(super) fn wait(&mut self, at: f64, exchange: usize) -> f64 {
        self.run_until(at);
        while self.over[exchange].is_infinite() && self.serve(f64::INFINITY) {}
        at.max(self.over[exchange])
    }

    fn run_until(&mut self, at: f64) {
        while self.now < at && self.serve(at) {}
        self.now = self.now.max(at);
    }

    /// Serves the most urgent exchange, but not beyond `until`; false when there is none.
    fn serve(&mut self, until: f64) -> bool {
        let most_urgent = (0..self.queue.len()).min_by_key(|&i| self.queue[i].urgency);
        let Some(index) = most_urgent else { return false };
        let job = &mut self.queue[index];
        if self.now + job.seconds_left <= until {
            self.busy += job.seconds_left;
            self.now += job.seconds_left;
            self.over[job.exchange] = self.now;
            self.queue.swap_remove(index);
        } else {
            self.busy += until - self.now;
            job.seconds_left -= until - self.now;
            self.now = until;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "halves and wholes are exact")]
    fn the_urgent_one_interrupts_and_equals_keep_their_order() {
        let mut link = Link::new(4);
        link.submit(1.0, 0, 9, 4.0);
        link.submit(2.0, 1, 1, 2.0);
        link.submit(2.5, 2, 1, 0.5);
        assert_eq!(link.wait(2.5, 2), 4.5);
        assert_eq!(link.wait(2.5, 1), 4.0);
        assert_eq!(link.wait(2.5, 0), 7.5);
        assert_eq!(link.wait(9.0, 3), 9.0);
        assert_eq!(link.busy, 6.5);
    }
}
