//! The simulation against the closed overlap model, and what must hold for any network on any machine.

use std::sync::Arc;

use lockstep_graph::{
    Linear, Mode, Network, NetworkBuilder, Plan, PlanOptions, Platform, SoftmaxCrossEntropy,
    Strategy, zoo,
};
use lockstep_ops::Isa;
use proptest::prelude::*;

use super::{
    LayerTimes, ServiceOrder, SimulatedStep, SimulatorOptions, compare_strategies, resolve_auto,
    simulate,
};

fn compile(network: Network, minibatch: usize, ranks: usize, platform: Platform) -> Plan {
    compile_by(Strategy::Data, network, (minibatch, ranks), platform)
}

fn compile_by(
    strategy: Strategy,
    network: Network,
    (minibatch, ranks): (usize, usize),
    platform: Platform,
) -> Plan {
    let mode = Mode::Train { momentum: true };
    let options =
        PlanOptions { minibatch, ranks, mode, strategy, platform, ..PlanOptions::default() };
    Plan::compile(Arc::new(network), options).unwrap()
}

fn both_orders(plan: &Plan, platform: Platform) -> [SimulatedStep; 2] {
    [ServiceOrder::Fifo, ServiceOrder::Priority].map(|order| {
        let options = SimulatorOptions { order, ..SimulatorOptions::new(platform) };
        simulate(plan.tasks(), &options)
    })
}

#[test]
fn efficiencies_of_the_papers_cases_with_all_layers_data_parallel() {
    let (vgg_rate, overfeat_rate) = (28.0 * 45.5e9, 16.6e9);
    let cases = [
        ("vgg-a", 256, 64, vgg_rate, 6.0e9, [0.64, 0.82]),
        ("vgg-a", 512, 128, vgg_rate, 8.0e9, [0.79, 1.00]),
        ("overfeat-fast", 256, 64, 88.0 * overfeat_rate, 6.0e9, [0.22, 0.24]),
        ("vgg-a", 256, 16, vgg_rate, 1.15e9, [0.54, 0.66]),
        ("overfeat-fast", 256, 16, 86.0 * overfeat_rate, 1.15e9, [0.18, 0.20]),
        ("cd-dnn", 1024, 16, 4600.0 * 0.269e9, 6.0e9, [0.22, 0.23]),
    ];
    for (name, minibatch, ranks, flops_per_s, link_bytes_per_s, expected) in cases {
        let platform = Platform {
            flops_per_s,
            // The closed model has no memory.
            bytes_per_s: 1e18,
            link_bytes_per_s,
            // It has 50 us for a layer's part-reduce and part-broadcast together, whatever the messages.
            link_latency_s: 25e-6 / (ranks as f64 - 1.0),
            link_congestion: 0.0,
        };
        let plan = compile(zoo::by_name(name).unwrap(), minibatch, ranks, platform);
        for (step, expected) in both_orders(&plan, platform).iter().zip(expected) {
            let got = step.efficiency();
            let of = format!("{name} {minibatch}/{ranks}");
            assert!((got - expected).abs() < 0.01, "{of}: {got} for {expected}");
        }
    }
}

#[test]
fn one_rank_waits_for_nothing() {
    let platform = Platform::default();
    let plan = compile(zoo::lenet().unwrap(), 64, 1, platform);
    for step in both_orders(&plan, platform) {
        assert_eq!((step.exchange_s, step.bytes_sent), (0.0, 0.0));
        assert!((step.efficiency() - 1.0).abs() < 1e-9 && step.overlap() == 1.0);
        assert!((step.compute_s / seconds(&plan, platform, false) - 1.0).abs() < 1e-9);
    }
}

#[test]
fn the_bubble_is_blamed_on_the_layers_that_are_waited_for() {
    // 11 million weights in front, none to speak of behind: only the first layer's exchange can be waited for.
    let mut net = NetworkBuilder::new("front-heavy");
    let data = net.input("data", 3400).unwrap();
    let wide = net.linear("wide", data, Linear::new(3400)).unwrap();
    let narrow = net.linear("narrow", wide, Linear::new(10)).unwrap();
    net.softmax_cross_entropy("loss", narrow, SoftmaxCrossEntropy::default()).unwrap();
    let platform = Platform { link_latency_s: 0.0, ..Platform::default() };
    let plan = compile(net.build().unwrap(), 8, 2, platform);
    let wide = plan.network().find("wide").unwrap().id.index();
    let [_, step] = both_orders(&plan, platform);
    assert!(step.layers[wide].exposed_s > 0.95 * step.exposed_s());
    assert!(step.exposed_s() > 0.5 * step.exchange_s);
    assert!((step.layers[wide].bytes_sent - 4.0 * (3400.0 * 3400.0 + 3400.0)).abs() < 1.0);
}

#[test]
fn a_small_first_layer_overtakes_a_large_last_one_at_a_chunks_end() {
    let platform = Platform::default();
    let plan = compile(zoo::alexnet().unwrap(), 64, 2, platform);
    let [fifo, priority] = both_orders(&plan, platform);
    assert!(priority.step_s < 0.9 * fifo.step_s, "{} {}", priority.step_s, fifo.step_s);
    // In one piece, an exchange is waited for to its end.
    let whole = SimulatorOptions { chunk_bytes: 1e12, ..SimulatorOptions::new(platform) };
    let whole = simulate(plan.tasks(), &whole);
    assert!(whole.step_s > priority.step_s, "{} {}", whole.step_s, priority.step_s);
}

#[test]
fn the_best_strategy_is_the_fastest_or_the_planners() {
    for (name, minibatch, ranks) in [("lenet", 128, 2), ("alexnet", 64, 4), ("cd-dnn", 512, 6)] {
        let platform = Platform::default();
        let network = Arc::new(zoo::by_name(name).unwrap());
        let mode = Mode::Train { momentum: true };
        let strategy = Strategy::Auto;
        let options =
            PlanOptions { minibatch, ranks, mode, strategy, platform, ..PlanOptions::default() };
        let simulator = SimulatorOptions::new(platform);
        let all = compare_strategies(&network, &options, &simulator, Isa::detect()).unwrap();
        let divisors = (1..=ranks).filter(|g| ranks % g == 0).count();
        assert_eq!(all.len(), 1 + divisors);
        let least = all.iter().map(|c| c.step.step_s).fold(f64::INFINITY, f64::min);
        assert!(all[0].step.step_s <= least * 1.006, "{name}");
        // The planner keeps its word: little is faster than what it chose, of whose parts in flight it knows less than the graph.
        let auto = all.iter().find(|c| c.strategy == Strategy::Auto).unwrap();
        assert!(auto.step.step_s <= least * 1.08, "{name}");
        let resolved = resolve_auto(&network, options, Isa::detect()).unwrap();
        assert_eq!(resolved.strategy, all[0].strategy);
        let fixed = PlanOptions { strategy: Strategy::Groups(2), ..resolved };
        assert_eq!(resolve_auto(&network, fixed.clone(), Isa::detect()).unwrap(), fixed);
    }
}

#[test]
fn efficiencies_of_the_papers_cases_with_linear_layers_model_parallel() {
    let vgg_rate = 28.0 * 45.5e9;
    let cases = [
        ("vgg-a", 256, 64, vgg_rate, 6.0e9, 0.93),
        ("vgg-a", 512, 128, vgg_rate, 8.0e9, 0.90),
        ("overfeat-fast", 256, 64, 88.0 * 16.6e9, 6.0e9, 0.76),
        ("vgg-a", 256, 16, vgg_rate, 1.15e9, 0.92),
        ("overfeat-fast", 256, 16, 86.0 * 16.6e9, 1.15e9, 0.72),
        // 0.47 where a layer's activations travel before its computation, not in parts along with it.
        ("cd-dnn", 1024, 16, 4600.0 * 0.269e9, 6.0e9, 0.60),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("linear.json");
    std::fs::write(&path, r#"{"fc6": "model", "fc7": "model", "fc8": "model"}"#).unwrap();
    for (name, minibatch, ranks, flops_per_s, link_bytes_per_s, expected) in cases {
        let platform = Platform {
            flops_per_s,
            bytes_per_s: 1e18,
            link_bytes_per_s,
            link_latency_s: 50e-6 / (ranks as f64 - 1.0),
            link_congestion: 0.0,
        };
        let strategy = if name == "cd-dnn" { "model" } else { path.to_str().unwrap() };
        let strategy = strategy.parse().unwrap();
        let network = zoo::by_name(name).unwrap();
        let plan = compile_by(strategy, network, (minibatch, ranks), platform);
        let step = simulate(plan.tasks(), &SimulatorOptions::new(platform));
        let got = step.efficiency();
        let of = format!("{name} {minibatch}/{ranks}");
        // The closed model has no exchange of labels and of the loss over split classes.
        assert!((got - expected).abs() < 0.02, "{of}: {got} for {expected}");
    }
}

/// Seconds of all tasks of one kind: exchanges, or all others.
fn seconds(plan: &Plan, platform: Platform, exchanges: bool) -> f64 {
    let wanted = plan.tasks().tasks().filter(|t| t.kind.is_communication() == exchanges);
    wanted.map(|t| platform.seconds(&t.price)).sum()
}

/// A network of linear layers with some activations.
fn network(sizes: &[usize]) -> Network {
    let mut net = NetworkBuilder::new("random");
    let mut last = net.input("data", sizes[0]).unwrap();
    for (i, &size) in sizes[1..].iter().enumerate() {
        last = net.linear(format!("fc{i}"), last, Linear::new(size)).unwrap();
        if size % 2 == 0 {
            last = net.tanh(format!("tanh{i}"), last).unwrap();
        }
    }
    let last = net.linear("logits", last, Linear::new(7)).unwrap();
    net.softmax_cross_entropy("loss", last, SoftmaxCrossEntropy::default()).unwrap();
    net.build().unwrap()
}

prop_compose! {
    fn platforms()(
        flops in 6.0..13.0_f64,
        bytes in 7.0..12.0_f64,
        link in 5.0..11.0_f64,
        latency in -7.0..-3.0_f64,
    ) -> Platform {
        Platform {
            flops_per_s: 10.0_f64.powf(flops),
            bytes_per_s: 10.0_f64.powf(bytes),
            link_bytes_per_s: 10.0_f64.powf(link),
            link_latency_s: 10.0_f64.powf(latency),
            link_congestion: 0.0,
        }
    }
}

proptest! {
    #[test]
    fn an_iteration_is_no_shorter_than_its_work_and_no_longer_than_all_of_it(
        sizes in prop::collection::vec(1_usize..600, 1..7),
        minibatch in 1_usize..100,
        ranks in 1_usize..9,
        platform in platforms(),
        strategy in prop::sample::select(vec!["data", "model", "G=2", "auto"]),
    ) {
        let strategy = strategy.parse().unwrap();
        let plan = compile_by(strategy, network(&sizes), (minibatch, ranks), platform);
        let [compute, exchange] = [false, true].map(|e| seconds(&plan, platform, e));
        for step in both_orders(&plan, platform) {
            let close = |got: f64, want: f64| (got - want).abs() <= 1e-6 * step.step_s;
            // Both orders do the same work.
            prop_assert!(close(step.compute_s, compute), "{step:?}");
            prop_assert!(close(step.exchange_s, exchange), "{step:?}");
            prop_assert!(step.step_s >= compute.max(exchange) * (1.0 - 1e-6));
            prop_assert!(step.step_s <= (compute + exchange) * (1.0 + 1e-6));
            // What is not computed beside the link is waited for.
            prop_assert!(close(step.step_s, compute + exchange - step.overlapped_s), "{step:?}");
            let sum = |value: fn(&LayerTimes) -> f64| step.layers.iter().map(value).sum::<f64>();
            prop_assert!(close(sum(|l| l.compute_s), compute));
            prop_assert!(close(sum(|l| l.exchange_s), exchange));
            prop_assert!(close(sum(|l| l.exposed_s), step.exposed_s()), "{step:?}");
            prop_assert!((sum(|l| l.bytes_sent) - plan.price().bytes_sent).abs() < 1e-3);
        }
    }
}
