//! The part of `lockstep plan` on several ranks: the mesh of each layer, what it exchanges, how much of that the computation hides, why.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args as ClapArgs, ValueEnum};
use lockstep::RunError;
use lockstep::graph::balance::{LayerChoice, choose_groups};
use lockstep::graph::{Layer, LayerKind, Mesh, Network, Plan, PlanOptions, Platform, TaskKind};
use lockstep::ops::Isa;
use lockstep::scheduler::Traffic;
use lockstep::scheduler::simulator::{
    Candidate, LayerTimes, ServiceOrder, SimulatedStep, SimulatorOptions, compare_strategies,
    simulate,
};
use serde::Serialize;

use super::{bad_flag, inputs};

/// The machine and its link, where they are not measured.
#[derive(Debug, ClapArgs)]
pub(super) struct MachineArgs {
    /// Link of a rank, in gigabits a second each way [default: 1]
    #[arg(long, value_name = "GBIT")]
    link_gbit: Option<f64>,
    /// What a message takes whatever its size, in microseconds [default: 50]
    #[arg(long, value_name = "US", allow_negative_numbers = true)]
    latency_us: Option<f64>,
    /// The link as `lockstep bench comm --json FILE` measured it, instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["link_gbit", "latency_us"])]
    link: Option<PathBuf>,
    /// GFLOP/s of all workers of a rank [default: measured]
    #[arg(long, value_name = "F")]
    gflops: Option<f64>,
    /// GB/s between memory and all workers of a rank [default: measured]
    #[arg(long, value_name = "B")]
    memory_gb_s: Option<f64>,
    /// Order in which exchanges take the link
    #[arg(long, value_enum, default_value_t = Order::Priority)]
    order: Order,
}

/// An order of exchanges, on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Order {
    Fifo,
    Priority,
}

impl MachineArgs {
    /// The platform, with `measured` GFLOP/s and GB/s asked for only where they are not given.
    pub(super) fn platform(
        &self,
        measured: (impl FnOnce() -> f64, impl FnOnce() -> f64),
    ) -> Result<Platform, RunError> {
        let positive = |flag, value: f64| {
            let usable = value.is_finite() && value > 0.0;
            usable.then_some(value).ok_or_else(|| bad_flag(flag, &value, "must be more than 0"))
        };
        let link = inputs::link(self.link.as_deref())?;
        let latency_s = match self.latency_us {
            None => link.latency,
            Some(us) if us.is_finite() && us >= 0.0 => us * 1e-6,
            Some(us) => return Err(bad_flag("--latency-us", &us, "must be at least 0")),
        };
        let bytes_per_s = match self.link_gbit {
            None => 1.0 / link.seconds_per_byte,
            Some(gbit) => positive("--link-gbit", gbit)? * 125e6,
        };
        let gflops = self.gflops.map_or_else(|| Ok(measured.0()), |f| positive("--gflops", f))?;
        let memory = self.memory_gb_s;
        let gbytes = memory.map_or_else(|| Ok(measured.1()), |b| positive("--memory-gb-s", b))?;
        Ok(Platform {
            flops_per_s: gflops * 1e9,
            bytes_per_s: gbytes * 1e9,
            link_bytes_per_s: bytes_per_s,
            link_latency_s: latency_s,
            link_congestion: link.congestion,
        })
    }

    /// Every strategy that is the same for all layers, and the planner's, best first; none on one rank.
    pub(super) fn compare(
        &self,
        network: &Arc<Network>,
        options: &PlanOptions,
        isa: Isa,
    ) -> Result<Vec<Candidate>, RunError> {
        if options.ranks == 1 {
            return Ok(Vec::new());
        }
        Ok(compare_strategies(network, options, &self.options(options.platform), isa)?)
    }

    fn options(&self, platform: Platform) -> SimulatorOptions {
        let order = match self.order {
            Order::Fifo => ServiceOrder::Fifo,
            Order::Priority => ServiceOrder::Priority,
        };
        SimulatorOptions { order, ..SimulatorOptions::new(platform) }
    }
}

/// How the layers lie on the ranks, and what a simulated step takes.
#[derive(Debug, Serialize)]
pub(super) struct Sharing {
    link_gbit: f64,
    latency_us: f64,
    layers: Vec<Row>,
    /// Of rank 0, in a step.
    sent_bytes: f64,
    /// Of every rank.
    rank_sent_bytes: Vec<u64>,
    messages: f64,
    compute_ms: f64,
    exchange_ms: f64,
    /// The share of the exchange that is hidden.
    overlap: f64,
    bubble_ms: f64,
    step_ms: f64,
    efficiency: f64,
    /// What a step would take otherwise, best first.
    strategies: Vec<StrategyRow>,
    /// Layers whose gradients and parameters are exchanged together, most urgent first.
    bundles: Vec<Vec<String>>,
}

/// A strategy for all layers; `auto` is the planner's choice layer by layer.
#[derive(Debug, Serialize)]
struct StrategyRow {
    strategy: String,
    step_ms: f64,
    sent_bytes: f64,
}

/// A layer that has weights or exchanges something; what others take is in the row before them.
#[derive(Debug, Serialize)]
struct Row {
    layer: String,
    /// `data`, `model` or `G=n`.
    strategy: String,
    groups: usize,
    members: usize,
    sent_bytes: f64,
    compute_ms: f64,
    exchange_ms: f64,
    overlap: f64,
    bubble_ms: f64,
    /// Empty where there was nothing to choose.
    why: String,
}

impl Sharing {
    /// Of a plan whose exchanges are priced for rank 0.
    pub(super) fn new(
        plan: &Plan,
        isa: Isa,
        args: &MachineArgs,
        strategies: &[Candidate],
    ) -> Result<Self, RunError> {
        let options = plan.options();
        let platform = options.platform;
        let step = simulate(plan.tasks(), &args.options(platform));
        let choices = choose_groups(plan.network(), options.minibatch, options.ranks, &platform);
        let mut rows: Vec<Row> = Vec::new();
        for (layer, choice) in plan.network().layers().iter().zip(&choices) {
            let Some(times) = step.layers.get(layer.id.index()) else { continue };
            let mesh = plan.meshes().mesh(layer.id);
            match rows.last_mut() {
                Some(last) if !has_row(layer, times) => last.compute_ms += times.compute_s * 1e3,
                _ => rows.push(Row::new(layer, mesh, times, choice)),
            }
        }
        let strategies = strategies.iter().map(|candidate| StrategyRow {
            strategy: candidate.strategy.to_string(),
            step_ms: candidate.step.step_s * 1e3,
            sent_bytes: candidate.step.bytes_sent,
        });
        let sent = |rank| Ok(Traffic::new(plan, rank, isa)?.bytes_sent(options.minibatch)?);
        let rank_sent_bytes = (0..options.ranks).map(sent).collect::<Result<_, RunError>>()?;
        let SimulatedStep { step_s, compute_s, exchange_s, bytes_sent, messages, .. } = step;
        Ok(Self {
            link_gbit: thousandths(platform.link_bytes_per_s / 125e6),
            latency_us: thousandths(platform.link_latency_s * 1e6),
            layers: rows,
            sent_bytes: bytes_sent,
            rank_sent_bytes,
            messages,
            compute_ms: compute_s * 1e3,
            exchange_ms: exchange_s * 1e3,
            overlap: step.overlap(),
            bubble_ms: step.exposed_s() * 1e3,
            step_ms: step_s * 1e3,
            efficiency: step.efficiency(),
            strategies: strategies.collect(),
            bundles: bundles(plan),
        })
    }

    pub(super) fn print(&self) {
        let Self { link_gbit, latency_us, .. } = self;
        say!("");
        say!("a step in virtual time, link {link_gbit} Gbit/s each way, {latency_us} us a message");
        say!(
            "{:<16} {:<8} {:>9} {:>10} {:>10} {:>11} {:>7} {:>9}",
            "layer",
            "strategy",
            "G x M",
            "MB sent",
            "compute ms",
            "exchange ms",
            "hidden",
            "bubble ms"
        );
        for row in &self.layers {
            let mesh = format!("{}x{}", row.groups, row.members);
            let numbers =
                [row.sent_bytes, row.compute_ms, row.exchange_ms, row.overlap, row.bubble_ms];
            print_row(&row.layer, &row.strategy, &mesh, numbers);
        }
        let total =
            [self.sent_bytes, self.compute_ms, self.exchange_ms, self.overlap, self.bubble_ms];
        print_row("total", "", "", total);
        say!(
            "step {:.3} ms, {:.0} messages a rank, workers busy {:.1} % of the time",
            self.step_ms,
            self.messages,
            self.efficiency * 100.0
        );
        if let (Some(least), Some(most)) =
            (self.rank_sent_bytes.iter().min(), self.rank_sent_bytes.iter().max())
        {
            say!("bytes sent a step, padding included: {least} to {most} a rank");
        }
        for bundle in &self.bundles {
            say!("exchanged together, in the row of the first: {}", bundle.join(" "));
        }
        let others = self.strategies.iter().map(|row| {
            let StrategyRow { strategy, step_ms, sent_bytes } = row;
            format!("{strategy} {step_ms:.3} ms ({:.1} MB)", sent_bytes / 1e6)
        });
        say!("by strategy, best first: {}", others.collect::<Vec<_>>().join(", "));
        for row in self.layers.iter().filter(|row| !row.why.is_empty()) {
            say!("{}: {}", row.layer, row.why);
        }
    }
}

/// The layers of every part-reduce of several.
fn bundles(plan: &Plan) -> Vec<Vec<String>> {
    let graph = plan.tasks();
    let shared = graph.tasks().filter(|t| t.kind == TaskKind::PartReduce && t.reads.len() > 1);
    let layer = |&tensor| plan.network().layer(graph.tensor(tensor).layer).name.clone();
    shared.map(|task| task.reads.iter().map(layer).collect()).collect()
}

fn print_row(layer: &str, strategy: &str, mesh: &str, numbers: [f64; 5]) {
    let [sent, compute, exchange, overlap, bubble] = numbers;
    let (sent, hidden) = (sent / 1e6, format!("{:.1} %", overlap * 100.0));
    say!(
        "{layer:<16} {strategy:<8} {mesh:>9} {sent:>10.3} {compute:>10.3} {exchange:>11.3} {hidden:>7} {bubble:>9.3}"
    );
}

impl Row {
    fn new(layer: &Layer, mesh: Mesh, times: &LayerTimes, choice: &LayerChoice) -> Self {
        let LayerTimes { compute_s, exchange_s, overlapped_s, exposed_s, bytes_sent, .. } = *times;
        let why = match (is_free(layer), choice.mesh == mesh) {
            (false, _) => String::new(),
            (true, true) => choice.why.to_string(),
            (true, false) => {
                format!("the planner's choice: {}", choice.why)
            }
        };
        Self {
            layer: layer.name.clone(),
            strategy: strategy_name(mesh),
            groups: mesh.groups(),
            members: mesh.members(),
            sent_bytes: bytes_sent,
            compute_ms: compute_s * 1e3,
            exchange_ms: exchange_s * 1e3,
            overlap: if exchange_s > 0.0 { overlapped_s / exchange_s } else { 1.0 },
            bubble_ms: exposed_s * 1e3,
            why,
        }
    }
}

/// True for layers that stand for themselves in the table.
fn has_row(layer: &Layer, times: &LayerTimes) -> bool {
    layer.parameter_count() > 0
        || layer.tied_to.is_some()
        || times.exchange_s > 0.0
        || times.exposed_s > 0.0
}

/// True for layers whose mesh is a matter of choice.
fn is_free(layer: &Layer) -> bool {
    match &layer.kind {
        LayerKind::Linear(_) => true,
        LayerKind::Conv2d(conv) => conv.groups == 1,
        _ => false,
    }
}

/// `data`, `model` or `G=n`.
pub(super) fn strategy_name(mesh: Mesh) -> String {
    match (mesh.groups(), mesh.members()) {
        (_, 1) => "data".to_owned(),
        (1, _) => "model".to_owned(),
        (groups, _) => format!("G={groups}"),
    }
}
/// Rounded to what people read.
fn thousandths(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}
