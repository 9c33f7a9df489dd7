//! Sessions without workers: a test runs the blocks, in any order that the board allows. Nothing is computed.
#![expect(clippy::unwrap_used, reason = "in tests, helpers included, a panic is the report")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crossbeam::channel::{Receiver, unbounded};
use lockstep_graph::{Mode, Network, Plan, PlanOptions, Platform, Strategy, TaskId, zoo};
use lockstep_ops::Isa;
use lockstep_ops::sgd::SgdHyper;
use lockstep_traces::Recorder;
use proptest::prelude::*;

use crate::board::{Claim, Place, SLOTS};
use crate::iteration::{Iteration, LocalSamples};
use crate::program::{BindOptions, ParameterStore, Program};
use crate::session::{Event, Session};

/// A network bound for training on one rank.
pub(crate) fn program(network: Network, minibatch: usize) -> Arc<Program> {
    let (network, isa) = (Arc::new(network), Isa::named("portable").unwrap());
    let options = PlanOptions {
        minibatch,
        ranks: 1,
        mode: Mode::Train { momentum: true },
        strategy: Strategy::Data,
        platform: Platform::default(),
        fuse: true,
    };
    let plan = Plan::compile(Arc::clone(&network), options).unwrap();
    let store = Arc::new(ParameterStore::new(&plan, 0, isa).unwrap());
    let bind = BindOptions { decay_all: true };
    Arc::new(Program::bind(vec![plan], &store, &bind).unwrap().pop().unwrap())
}

/// Data of iteration `index` with `n` samples, of which there are no values.
pub(crate) fn iteration(index: u64, n: usize) -> Iteration {
    let samples = LocalSamples { labels: vec![0; n], ..LocalSamples::default() };
    let ids = vec![0; n];
    let hyper = SgdHyper { lr: 0.1, momentum: 0.9, weight_decay: 0.0, nesterov: false };
    Iteration { step: index + 1, epoch: 1, minibatch: n, hyper, seed: 0, ids, samples }
}

/// A session whose blocks are "run" by the test, in any order that the board allows. Nothing is computed.
struct Rehearsal {
    session: Session,
    events: Receiver<Event>,
    fed: u64,
    complete: u64,
    /// Samples of the iterations.
    sizes: Vec<usize>,
    /// Task instances whose last block is done, by iteration.
    done: BTreeSet<(u64, usize)>,
    blocks_left: BTreeMap<(u64, usize), usize>,
}

impl Rehearsal {
    fn new(network: Network, sizes: Vec<usize>) -> Self {
        let capacity = sizes.iter().copied().max().unwrap().max(1);
        let program = program(network, capacity);
        let (sender, events) = unbounded();
        let session = Session::new(program, None, Recorder::off(), Arc::default(), sender);
        let (done, blocks_left) = (BTreeSet::new(), Default::default());
        Self { session, events, fed: 0, complete: 0, sizes, done, blocks_left }
    }

    /// What the feeder would do now.
    fn feed(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            assert!(matches!(event, Event::Complete), "nothing is computed, so nothing reported");
            assert!(self.session.take_back(self.complete).is_some(), "nobody holds the data");
            self.complete += 1;
        }
        while self.fed - self.complete < 2 && (self.fed as usize) < self.sizes.len() {
            self.session.feed(self.fed, self.iteration(self.fed));
            self.fed += 1;
        }
    }

    fn iteration(&self, index: u64) -> Iteration {
        iteration(index, self.sizes[index as usize])
    }

    fn blocks(&self, iteration: u64, task: TaskId) -> usize {
        self.session.program.blocks(task, &self.iteration(iteration))
    }

    /// Done, or without blocks and after everything that it waits for.
    fn is_finished(&mut self, iteration: u64, task: TaskId) -> bool {
        let known = self.done.contains(&(iteration, task.index()));
        if !known && self.blocks(iteration, task) == 0 && self.may_start(iteration, task) {
            return self.done.insert((iteration, task.index()));
        }
        known
    }

    fn may_start(&mut self, iteration: u64, task: TaskId) -> bool {
        let program = Arc::clone(&self.session.program);
        let waits = program.plan().tasks().predecessors(task).map(|(from, d)| (from, d.carried));
        waits.chain([(task, true)]).all(|(from, carried)| match (carried, iteration) {
            (true, 0) => true,
            (true, _) => self.is_finished(iteration - 1, from),
            (false, _) => self.is_finished(iteration, from),
        })
    }

    fn iteration_of(&self, place: Place) -> u64 {
        let mut running = self.complete..self.fed;
        running
            .find(|&i| i % SLOTS as u64 == place.slot as u64)
            .expect("only fed iterations are ready")
    }

    fn begin(&mut self) -> Option<Claim> {
        let claim = self.session.board.claim(self.session.oldest_slot())?;
        let (iteration, task) =
            (self.iteration_of(claim.place), self.session.program.task_at(claim.place.position));
        let name = self.session.program.task_name(task).to_owned();
        assert!(self.may_start(iteration, task), "{name} of {iteration} starts too early");
        Some(claim)
    }

    fn end(&mut self, claim: &Claim) {
        let iteration = self.iteration_of(claim.place);
        let task = self.session.program.task_at(claim.place.position);
        let blocks = self.blocks(iteration, task);
        let left = self.blocks_left.entry((iteration, task.index())).or_insert(blocks);
        *left -= 1;
        if *left == 0 {
            assert!(self.done.insert((iteration, task.index())), "an instance runs once");
        }
        self.session.blocks_done(claim.place, 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    /// Up to `workers` blocks are under way at once and end in any order, over iterations of any size.
    #[test]
    fn every_edge_is_respected_whoever_is_slow(
        workers in 1_usize..7,
        sizes in prop::collection::vec(0_usize..4, 4..6),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 64),
    ) {
        let iterations = sizes.len() as u64;
        let mut rehearsal = Rehearsal::new(zoo::golden::small_resnet().unwrap(), sizes);
        let (mut running, mut choices) = (Vec::new(), choices.iter().cycle());
        loop {
            rehearsal.feed();
            while running.len() < workers {
                let Some(claim) = rehearsal.begin() else { break };
                running.push(claim);
            }
            if running.is_empty() {
                break;
            }
            let choice = choices.next().expect("a cycle does not end").index(running.len());
            rehearsal.end(&running.swap_remove(choice));
        }
        prop_assert_eq!(rehearsal.complete, iterations, "all iterations end");
    }
}
