//! The event loop: workers and link of one rank, side by side, from event to event.

use std::collections::BTreeMap;

use lockstep_graph::{LayerId, Platform, TaskGraph, TaskId};

use super::SimulatorOptions;
use super::counts::{Counts, Instance};
use super::link::Link;
use super::outcome::{LayerTimes, SimulatedStep};

/// Iterations that may be incomplete at once, as in a run.
const IN_FLIGHT: u64 = 2;

/// Iterations after which an average has to do.
const MOST_ITERATIONS: usize = 40;

/// Iterations are alike when their times differ by no more than this share.
const ALIKE: f64 = 1e-9;

/// Seconds since the beginning, by what went on.
#[derive(Debug, Clone)]
struct Clock {
    now: f64,
    compute: f64,
    exchange: f64,
    overlapped: f64,
    layers: Vec<Busy>,
}

/// A layer's.
#[derive(Debug, Clone, Copy, Default)]
struct Busy {
    compute: f64,
    exchange: f64,
    overlapped: f64,
    exposed: f64,
}

/// One rank in virtual time.
#[derive(Debug)]
pub(super) struct Machine<'a> {
    graph: &'a TaskGraph,
    platform: Platform,
    counts: Counts,
    link: Link,
    /// By task: its place in the order of service.
    position: Vec<usize>,
    /// Tasks from this position on wait for urgent ones of all iterations.
    urgent: usize,
    /// Ready compute tasks by whether they can wait, iteration and position, with the seconds that are left of each.
    ready: BTreeMap<(bool, u64, usize), (TaskId, f64)>,
    clock: Clock,
    /// Since when the workers wait, and the layer whose exchange was over last.
    idle: f64,
    last_exchange: usize,
    fed: u64,
    /// The clock when each iteration was complete.
    complete: Vec<Clock>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(graph: &'a TaskGraph, options: &SimulatorOptions) -> Self {
        let order = graph.service_order();
        let mut position = vec![0; order.tasks.len()];
        for (place, id) in order.tasks.iter().enumerate() {
            position[id.index()] = place;
        }
        let layers = graph.tasks().map(|task| task.layer.index() + 1).max().unwrap_or(0);
        Self {
            graph,
            platform: options.platform,
            counts: Counts::new(graph),
            link: Link::new(options),
            position,
            urgent: order.urgent,
            ready: BTreeMap::new(),
            clock: Clock::zero(layers),
            idle: 0.0,
            last_exchange: 0,
            fed: 0,
            complete: Vec::new(),
        }
    }

    pub(super) fn run(mut self) -> SimulatedStep {
        if self.graph.tasks().len() > 0 {
            (0..IN_FLIGHT).for_each(|_| self.feed());
            while !self.is_steady() && self.pass_to_next_event() {}
        }
        self.outcome()
    }

    fn feed(&mut self) {
        let mut ready = Vec::new();
        self.counts.feed(self.fed, &mut ready);
        self.fed += 1;
        self.make_ready(ready);
    }

    fn make_ready(&mut self, instances: Vec<Instance>) {
        for instance in instances {
            let task = self.graph.task(instance.task);
            if task.kind.is_communication() {
                self.link.submit(instance, task);
                continue;
            }
            if self.ready.is_empty() {
                // What the workers waited for: the exchange that was over last released this task.
                self.clock.layers[self.last_exchange].exposed += std::mem::take(&mut self.idle);
            }
            let position = self.position[instance.task.index()];
            let place = (position >= self.urgent, instance.iteration, position);
            self.ready.insert(place, (instance.task, self.platform.seconds(&task.price)));
        }
    }

    /// Lets time pass until a task or a chunk ends; false where nothing is under way.
    fn pass_to_next_event(&mut self) -> bool {
        let computing = self.ready.first_key_value().map(|(&place, &(id, left))| (place, id, left));
        let traveling = self.link.traveling();
        let compute_left = computing.map_or(f64::INFINITY, |(_, _, left)| left);
        let seconds = compute_left.min(traveling.map_or(f64::INFINITY, |(left, _)| left));
        if seconds.is_infinite() {
            return false;
        }
        self.clock.pass(
            seconds,
            computing.map(|(_, id, _)| self.graph.task(id).layer),
            traveling.map(|(_, layer)| layer),
        );
        if computing.is_none() {
            self.idle += seconds;
        }
        let mut done = Vec::new();
        if let Some((place, task, left)) = computing {
            if left <= seconds {
                self.ready.remove(&place);
                done.push(Instance { iteration: place.1, task });
            } else {
                self.ready.insert(place, (task, left - seconds));
            }
        }
        if let Some(ended) = self.link.pass(seconds) {
            self.last_exchange = self.graph.task(ended.task).layer.index();
            done.push(ended);
        }
        for instance in done {
            self.finish(instance);
        }
        true
    }

    fn finish(&mut self, instance: Instance) {
        let mut ready = Vec::new();
        let was_last = self.counts.finish(instance, &mut ready);
        self.make_ready(ready);
        if was_last {
            self.complete.push(self.clock.clone());
            self.feed();
        }
    }

    /// True where three iterations in a row took the same time, or there have been enough.
    fn is_steady(&self) -> bool {
        let ends: Vec<f64> = self.complete.iter().rev().take(4).map(|clock| clock.now).collect();
        let alike = |a: f64, b: f64| (a - b).abs() <= ALIKE * a.max(b);
        let &[last, third, second, first] = &ends[..] else { return false };
        let steady = alike(last - third, third - second) && alike(third - second, second - first);
        steady || self.complete.len() >= MOST_ITERATIONS
    }

    /// The last iteration where they are alike, else the mean of the later half.
    fn outcome(&self) -> SimulatedStep {
        let ends = &self.complete;
        let n = if ends.len() >= MOST_ITERATIONS { ends.len() / 2 } else { 1 };
        let zero = Clock::zero(self.clock.layers.len());
        let last = ends.last().unwrap_or(&zero);
        let first = ends.len().checked_sub(n + 1).map_or(&zero, |at| &ends[at]);
        let each = |value: fn(&Clock) -> f64| (value(last) - value(first)) / n as f64;
        let mut layers: Vec<_> = last
            .layers
            .iter()
            .zip(&first.layers)
            .enumerate()
            .map(|(index, (last, first))| {
                let each = |value: fn(&Busy) -> f64| (value(last) - value(first)) / n as f64;
                LayerTimes {
                    layer: LayerId::from_index(index),
                    compute_s: each(|busy| busy.compute),
                    exchange_s: each(|busy| busy.exchange),
                    overlapped_s: each(|busy| busy.overlapped),
                    exposed_s: each(|busy| busy.exposed),
                    bytes_sent: 0.0,
                }
            })
            .collect();
        for task in self.graph.tasks() {
            layers[task.layer.index()].bytes_sent += task.price.bytes_sent;
        }
        SimulatedStep {
            step_s: each(|clock| clock.now),
            compute_s: each(|clock| clock.compute),
            exchange_s: each(|clock| clock.exchange),
            overlapped_s: each(|clock| clock.overlapped),
            bytes_sent: self.graph.tasks().map(|task| task.price.bytes_sent).sum(),
            messages: self.graph.tasks().map(|task| task.price.messages).sum(),
            layers,
            iterations: ends.len(),
        }
    }
}

impl Clock {
    fn zero(layers: usize) -> Self {
        let layers = vec![Busy::default(); layers];
        Self { now: 0.0, compute: 0.0, exchange: 0.0, overlapped: 0.0, layers }
    }

    fn pass(&mut self, seconds: f64, computes: Option<LayerId>, carries: Option<usize>) {
        self.now += seconds;
        if let Some(layer) = computes {
            self.compute += seconds;
            self.layers[layer.index()].compute += seconds;
        }
        if let Some(layer) = carries {
            self.exchange += seconds;
            self.layers[layer].exchange += seconds;
            if computes.is_some() {
                self.overlapped += seconds;
                self.layers[layer].overlapped += seconds;
            }
        }
    }
}
