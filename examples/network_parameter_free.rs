//! A network without parameters: it scores, there is nothing to learn, and so nothing for ranks to exchange.
//!
//! Its three classes are the three color channels: the brightest wins.
//!
//! `cargo run --example network_parameter_free`
#![expect(clippy::print_stdout, reason = "the tasks are what the example is for")]

use std::sync::Arc;

use lockstep::graph::{
    AvgPool, GraphError, Lrn, Mode, NetworkBuilder, Plan, PlanOptions, Platform,
    SoftmaxCrossEntropy, Strategy, TaskKind,
};

fn main() -> Result<(), GraphError> {
    let mut net = NetworkBuilder::new("brightest-channel");
    let data = net.input("data", (3, 32, 32))?;
    let smooth = net.avg_pool("smooth", data, AvgPool::new(4))?;
    let normal = net.lrn("normal", smooth, Lrn::new(3))?;
    let mean = net.global_avg_pool("mean", normal)?;
    let logits = net.flatten("flatten", mean)?;
    net.softmax_cross_entropy("loss", logits, SoftmaxCrossEntropy::default())?;
    let net = Arc::new(net.build()?);
    assert_eq!(net.parameter_count(), 0);
    assert_eq!(net.classes(), 3);

    // Even a training plan for four ranks has no backward pass, no exchange of gradients and no update.
    let options = PlanOptions {
        minibatch: 64,
        ranks: 4,
        mode: Mode::Train { momentum: true },
        strategy: Strategy::Data,
        platform: Platform::default(),
        fuse: true,
        ..PlanOptions::default()
    };
    let plan = Plan::compile(net, options)?;
    print!("{}", plan.tasks().to_table());

    let count = |kind| plan.tasks().tasks().filter(|task| task.kind == kind).count();
    assert_eq!(count(TaskKind::Forward), 3);
    assert_eq!(count(TaskKind::Loss), 1);
    for kind in [TaskKind::BackwardData, TaskKind::PartReduce, TaskKind::Update] {
        assert_eq!(count(kind), 0);
    }
    Ok(())
}
