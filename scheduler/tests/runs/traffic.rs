//! Contract 5: what a plan says of bytes sent is what the transports counted, rank by rank, to the byte.

use lockstep_graph::{Network, zoo};
use lockstep_ops::Isa;
use lockstep_scheduler::{Program, Traffic};

use super::harness::Run;

/// The last minibatch is shorter, and none divides evenly.
const SIZES: [usize; 3] = [13, 13, 6];

/// Trains some steps and compares.
#[track_caller]
fn counts(run: &Run, what: &str) {
    let plan = run.plan();
    for (rank, outcome) in run.outcomes().into_iter().enumerate() {
        let traffic = Traffic::new(&plan, rank, Isa::detect()).unwrap();
        let steps = run.sizes.iter().map(|&minibatch| traffic.bytes_sent(minibatch).unwrap());
        assert_eq!(outcome.unwrap().bytes_sent, steps.sum::<u64>(), "{what}, rank {rank}");
    }
}

#[track_caller]
fn counts_on(network: &Network, ranks: usize) {
    for strategy in ["data", "model", "G=2", "auto"] {
        for (bundle, clip_norm) in [(true, None), (false, None), (true, Some(0.5))] {
            let run = Run::new(network.clone(), &SIZES).on(ranks, 1);
            let strategy = strategy.parse().unwrap();
            let run = Run { strategy, bundle, clip_norm, ..run };
            let what = format!("{} on {ranks}: {:?}, {bundle}", network.name(), run.strategy);
            counts(&run, &what);
        }
    }
}

#[test]
fn convolutions_send_what_was_said() {
    (2..=5).for_each(|ranks| counts_on(&zoo::lenet().unwrap(), ranks));
}

#[test]
fn normalizations_send_what_was_said() {
    (2..=5).for_each(|ranks| counts_on(&zoo::golden::small_resnet().unwrap(), ranks));
}

#[test]
fn linear_layers_send_what_was_said() {
    (2..=5).for_each(|ranks| counts_on(&zoo::golden::mlp().unwrap(), ranks));
}

#[test]
fn parts_of_the_samples_send_what_was_said() {
    for ranks in [2, 4] {
        let run = Run::new(zoo::golden::mlp().unwrap(), &[140, 65]).on(ranks, 1);
        counts(&Run { strategy: "model".parse().unwrap(), ..run }, "parts");
    }
}

#[test]
fn the_reproducible_mode_sends_what_was_said() {
    let run = Run::new(zoo::golden::small_resnet().unwrap(), &SIZES).on(4, 1);
    counts(&Run { reproducible: true, ..run }, "reproducible");
}

#[test]
fn a_bound_plan_knows_what_its_tasks_send() {
    let run = Run::new(zoo::lenet().unwrap(), &SIZES).on(3, 1);
    for rank in 0..3 {
        let bound = run.bind(rank, None);
        let program: &Program = &bound.program;
        let traffic = Traffic::new(program.plan(), rank, Isa::detect()).unwrap();
        for task in program.plan().tasks().tasks() {
            let sent = traffic.of(task.id, SIZES[0]).unwrap();
            let price = (task.price.bytes_sent, task.price.messages);
            assert_eq!((sent.bytes_sent, sent.messages), price, "{}, rank {rank}", task.name);
        }
    }
}
