//! What a network is compiled into: tasks, what each waits for, and why communication overlaps computation by itself.
//!
//! `cargo run --example task_graph`, or with the name of a file that the graph is to be written to for Graphviz.
#![expect(clippy::print_stdout, reason = "the tasks are what the example is for")]

use std::sync::Arc;

use lockstep::graph::{Mode, Plan, PlanOptions, Platform, Strategy, zoo};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = PlanOptions {
        minibatch: 64,
        ranks: 2,
        mode: Mode::Train { momentum: true },
        strategy: Strategy::Data,
        platform: Platform::default(),
        fuse: true,
        ..PlanOptions::default()
    };
    let plan = Plan::compile(Arc::new(zoo::lenet()?), options)?;
    let graph = plan.tasks();

    for task in graph.tasks() {
        println!("{} ({} flop, {} bytes sent)", task.name, task.price.flops, task.price.bytes_sent);
        for (earlier, why) in graph.predecessors(task.id) {
            let when = if why.carried { ", of the iteration before" } else { "" };
            let tensor = &graph.tensor(why.tensor).name;
            println!("    after {}{when}: {:?} of {tensor}", graph.task(earlier).name, why.hazard);
        }
    }
    if let Some(file) = std::env::args_os().nth(1) {
        std::fs::write(file, graph.to_dot())?;
    }

    // The names of the tasks that a task waits for, in this iteration or in the one before.
    let waits_for = |name: &str, carried: bool| {
        let task = graph.tasks().find(|task| task.name == name).expect("LeNet has this task");
        let mut names: Vec<_> = graph
            .predecessors(task.id)
            .filter(|(_, why)| why.carried == carried)
            .map(|(earlier, _)| graph.task(earlier).name.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    };

    // A part-reduce waits for its own layer's gradient only: it starts while earlier layers are still in the backward pass.
    assert_eq!(waits_for("fc2.part_reduce", false), ["fc2.backward_weights"]);
    // Of the iteration before, a forward pass waits for its own layer's new parameters, and for no other layer's.
    let before = waits_for("conv1+relu1.forward", true);
    assert!(before.contains(&"conv1.part_broadcast"), "{before:?}");
    assert!(!before.iter().any(|name| name.starts_with("fc")), "{before:?}");
    // Within an iteration, tasks stand in an order that would be right one after another.
    let within = graph.dependencies().filter(|(_, _, why)| !why.carried);
    assert!(within.into_iter().all(|(earlier, later, _)| earlier < later));
    Ok(())
}
