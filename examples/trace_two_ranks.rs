//! Two ranks in one process, two of their steps in one trace, and what the trace says about them.
//!
//! `cargo run --release --example trace_two_ranks`
#![expect(clippy::print_stdout, reason = "the report is what the example is for")]

use std::sync::Arc;

use lockstep::data::{SampleShape, Synthetic};
use lockstep::graph::{
    Conv2d, GraphError, Linear, Network, NetworkBuilder, Pool, SoftmaxCrossEntropy,
};
use lockstep::traces::check;
use lockstep::{Job, Length, Ranks, RunOptions, Silent, TraceOptions, train};

fn network() -> Result<Network, GraphError> {
    let mut net = NetworkBuilder::new("small");
    let x = net.input("image", (3, 16, 16))?;
    let x = net.conv2d("conv", x, Conv2d::new(16, 3).pad(1))?;
    let x = net.relu("relu", x)?;
    let x = net.max_pool("pool", x, Pool::new(2))?;
    let x = net.flatten("flatten", x)?;
    let x = net.linear("fc", x, Linear::new(10))?;
    net.softmax_cross_entropy("loss", x, SoftmaxCrossEntropy::default())?;
    net.build()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("trace.json");
    let job = Job {
        network: Arc::new(network()?),
        train: Arc::new(Synthetic::new(SampleShape { c: 3, h: 16, w: 16 }, 10, 256, 1)),
        test: None,
        initial: None,
        options: RunOptions {
            minibatch: 32,
            ranks: Ranks::InProcess(2),
            workers: Some(1),
            length: Length::Steps(6),
            trace: Some(TraceOptions { path: path.clone(), steps: 3..5 }),
            ..RunOptions::default()
        },
    };
    train(&job, &mut Silent)?;

    // Each rank has left a file; `train` has merged them on one clock. Open it at https://ui.perfetto.dev.
    assert!(folder.path().join("trace.rank0.json").exists());
    assert!(folder.path().join("trace.rank1.json").exists());
    let report = check(&path)?;
    println!("{report}");

    assert!(report.ok(), "{:?}", report.problems);
    assert_eq!(report.n_processes, 2);
    let steps: Vec<_> = report.steps.iter().map(|step| (step.rank, step.step)).collect();
    assert_eq!(steps, [(0, 3), (0, 4), (1, 3), (1, 4)]);
    // Two layers with parameters; a part-reduce and a part-broadcast of each on each rank in each step, at least.
    assert!(report.n_exchanges >= 2 * 2 * 2 * 2, "{}", report.n_exchanges);
    assert!(report.steps.iter().all(|step| step.reduce_lead_ns.is_some()));
    Ok(())
}
