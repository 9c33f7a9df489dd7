//! The link of a rank in virtual time: exchanges wait in order and travel chunk by chunk.

use std::collections::BTreeMap;

use lockstep_graph::{Platform, Task};

use super::counts::Instance;
use super::{ServiceOrder, SimulatorOptions};
use crate::program::priority;

/// Lower goes first: urgency, then when it was submitted.
type Turn = (u32, u64);

/// An exchange that has not ended.
#[derive(Debug)]
struct Job {
    instance: Instance,
    layer: usize,
    chunks_left: u64,
    chunk_s: f64,
}

/// Exchanges that wait, and the chunk that travels.
#[derive(Debug)]
pub(super) struct Link {
    platform: Platform,
    order: ServiceOrder,
    chunk_bytes: f64,
    submitted: u64,
    waiting: BTreeMap<Turn, Job>,
    travels: Option<Travels>,
}

/// A chunk on the way: whose, and for how long yet.
#[derive(Debug, Clone, Copy)]
struct Travels {
    turn: Turn,
    seconds_left: f64,
}

impl Link {
    pub(super) fn new(options: &SimulatorOptions) -> Self {
        Self {
            platform: options.platform,
            order: options.order,
            chunk_bytes: options.chunk_bytes.max(1.0),
            submitted: 0,
            waiting: BTreeMap::new(),
            travels: None,
        }
    }

    /// Takes an exchange in.
    pub(super) fn submit(&mut self, instance: Instance, task: &Task) {
        let (urgency, chunks) = match self.order {
            ServiceOrder::Fifo => (0, 1.0),
            ServiceOrder::Priority => {
                (priority(task), (task.price.bytes_sent / self.chunk_bytes).ceil().max(1.0))
            }
        };
        let job = Job {
            instance,
            layer: task.layer.index(),
            chunks_left: chunks as u64,
            chunk_s: self.platform.seconds(&task.price) / chunks,
        };
        self.waiting.insert((urgency, self.submitted), job);
        self.submitted += 1;
        self.next_chunk();
    }

    /// Seconds until the chunk that travels has arrived, and the layer it belongs to.
    pub(super) fn traveling(&self) -> Option<(f64, usize)> {
        let Travels { turn, seconds_left } = self.travels?;
        Some((seconds_left, self.waiting[&turn].layer))
    }

    /// Lets time pass, no more than is left of the chunk; returns an exchange that ends with it.
    pub(super) fn pass(&mut self, seconds: f64) -> Option<Instance> {
        let travels = self.travels.as_mut()?;
        if seconds < travels.seconds_left {
            travels.seconds_left -= seconds;
            return None;
        }
        let turn = travels.turn;
        self.travels = None;
        let job = self.waiting.get_mut(&turn).expect("what travels has not ended");
        job.chunks_left -= 1;
        let ended = (job.chunks_left == 0).then_some(job.instance);
        if ended.is_some() {
            self.waiting.remove(&turn);
        }
        self.next_chunk();
        ended
    }

    fn next_chunk(&mut self) {
        if self.travels.is_none()
            && let Some((&turn, job)) = self.waiting.first_key_value()
        {
            self.travels = Some(Travels { turn, seconds_left: job.chunk_s });
        }
    }
}
