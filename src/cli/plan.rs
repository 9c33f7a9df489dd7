//! `lockstep plan`: how each layer of a network will be shared and cut, and how long that should take on this machine.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use lockstep::graph::{
    self, Layer, LayerKind, Mode, Plan, PlanOptions, Strategy, TaskKind, WinogradTile,
};
use lockstep::ops::blocking::{Blocking, CacheBudget, ConvShape, search};
use lockstep::ops::{Conv2d, Conv2dDesc, Isa, Layout, Linear, LinearDesc, ShapeError, peak};
use lockstep::scheduler::{Cores, ScheduleError, detect_caches, price_exchanges, winograd_tile};
use lockstep::{Reproducible, RunError};
use serde::Serialize;

use super::reproducible::ReproducibleArgs;
use super::sharing::{MachineArgs, Sharing, strategy_name};
use super::train::Switch;
use super::winograd::Winograd;
use super::{at_least_one, inputs};

/// How long the peak and the bandwidth are measured, each.
const MEASURE: Duration = Duration::from_millis(100);

/// Elements of each of the triad's three arrays: 64 MB, more than most caches hold.
const TRIAD_LEN: usize = 16 << 20;

/// Arguments of `lockstep plan`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Network: a name or a .json file
    #[arg(long, default_value = "lenet", value_name = "NAME|FILE.json")]
    net: String,
    /// Samples of a minibatch over all ranks
    #[arg(long, visible_alias = "minibatch", default_value_t = 64, value_name = "B")]
    batch: usize,
    /// Ranks that share it
    #[arg(long, default_value_t = 1, value_name = "R")]
    ranks: usize,
    /// How the ranks share the work: data, model, G=n (n groups), auto or a .json file with one of these a layer
    #[arg(long, default_value = "data", value_name = "STRATEGY")]
    strategy: String,
    /// Exchange small gradients together with those of the layers next to them, as `lockstep train` does
    #[arg(long, value_enum, default_value = "on", value_name = "SWITCH")]
    fuse_exchanges: Switch,
    #[command(flatten)]
    reproducible: ReproducibleArgs,
    #[command(flatten)]
    winograd: Winograd,
    /// Compute threads of a rank [default: by cores]
    #[arg(long, value_name = "W")]
    workers: Option<usize>,
    #[command(flatten)]
    machine: MachineArgs,
    /// Write the plan as JSON too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What is planned, and for what.
#[derive(Debug, Serialize)]
struct Planned {
    net: String,
    batch: usize,
    ranks: usize,
    strategy: String,
    /// Samples of the rank with the most.
    local_batch: usize,
    isa: &'static str,
    workers: usize,
    /// Of all workers of a rank.
    peak_gflops: f64,
    /// Of all workers of a rank.
    gbytes_per_s: f64,
    /// Bytes that a block may touch: half of the second level of caches.
    live_bytes: usize,
    layers: Vec<LayerRow>,
    /// All but the passes of the layers above, at the speed of memory.
    other_ms: f64,
    /// One training step of one rank, without waiting for others.
    step_ms: f64,
    /// Where there are several ranks.
    sharing: Option<Sharing>,
}

/// A layer with weights.
#[derive(Debug, Serialize)]
struct LayerRow {
    layer: String,
    strategy: String,
    /// Sizes of a block of the loop nest; a linear layer has one pixel.
    mb: usize,
    ic: usize,
    oc: usize,
    oh: usize,
    ow: usize,
    /// What stays in the cache from block to block.
    kept: &'static str,
    bytes_per_flop: f64,
    unblocked_bytes_per_flop: f64,
    /// How a convolution is computed: `direct`, or Winograd's `F(2x2)` or `F(4x4)`; `-` for a linear layer.
    method: &'static str,
    /// Of the forward pass, computed directly.
    gflop: f64,
    /// Blocks that workers claim.
    forward_blocks: usize,
    /// None where the layer has no data gradient.
    backward_data_blocks: Option<usize>,
    backward_weights_blocks: usize,
    /// All passes, by the roofline.
    ms: f64,
}

/// Prints.
pub(super) fn run(args: &Args) -> Result<(), RunError> {
    at_least_one(&[
        ("--batch", Some(args.batch)),
        ("--ranks", Some(args.ranks)),
        ("--workers", args.workers),
    ])?;
    let isa = inputs::isa()?;
    let workers = args.workers.unwrap_or_else(|| Cores::detect().default_workers(1, false));
    let platform = args.machine.platform((
        || peak::gflops(isa, MEASURE) * workers as f64,
        || peak::triad_gbytes(isa, TRIAD_LEN, MEASURE) * workers as f64,
    ))?;
    let mut options = PlanOptions {
        minibatch: args.batch,
        ranks: args.ranks,
        mode: Mode::Train { momentum: true },
        strategy: args.strategy.parse::<Strategy>()?,
        platform,
        fuse: true,
        bundle: args.fuse_exchanges.into(),
        winograd: args.winograd.of_plan(),
        ..PlanOptions::default()
    };
    let network = inputs::network(&args.net)?;
    let strategies = args.machine.compare(&network, &options, isa)?;
    if let (Strategy::Auto, Some(best)) = (&options.strategy, strategies.first()) {
        options.strategy = best.strategy.clone();
    }
    let options = Reproducible::from(args.reproducible).settle(&network, options)?;
    let mut plan = Plan::compile(network, options)?;
    price_exchanges(&mut plan, 0, isa)?;
    let mut planned = Planned::new(&plan, isa, workers)?;
    if args.ranks > 1 {
        planned.sharing = Some(Sharing::new(&plan, isa, &args.machine, &strategies)?);
    }
    planned.print();
    let Some(path) = &args.json else { return Ok(()) };
    let text = serde_json::to_string_pretty(&planned).expect("a plan holds numbers and names");
    fs::write(path, text).map_err(|source| RunError::File {
        action: "write",
        path: path.clone(),
        source,
    })
}

impl Planned {
    fn new(plan: &Plan, isa: Isa, workers: usize) -> Result<Self, RunError> {
        let network = plan.network();
        let budget = CacheBudget::double_buffered(detect_caches().l2_bytes);
        let mut planned = Self {
            net: network.name().to_owned(),
            batch: plan.options().minibatch,
            ranks: plan.options().ranks,
            strategy: plan.options().strategy.to_string(),
            local_batch: plan.local_minibatch(),
            isa: isa.name(),
            workers,
            peak_gflops: plan.options().platform.flops_per_s * 1e-9,
            gbytes_per_s: plan.options().platform.bytes_per_s * 1e-9,
            live_bytes: budget.live_bytes,
            layers: Vec::new(),
            other_ms: 0.0,
            step_ms: 0.0,
            sharing: None,
        };
        let mut other_bytes = 0.0;
        for task in plan.tasks().tasks() {
            let blocked = is_blocked(network.layer(task.layer));
            match task.kind {
                TaskKind::Forward if blocked => {
                    let has_data_gradient = plan
                        .tasks()
                        .tasks()
                        .any(|t| t.layer == task.layer && t.kind == TaskKind::BackwardData);
                    let layer = network.layer(task.layer);
                    let row = planned.layer(plan, layer, isa, has_data_gradient);
                    let row = row.map_err(|source| {
                        let layer = layer.name.clone();
                        ScheduleError::Kernel { layer, source }
                    })?;
                    planned.layers.push(row);
                }
                TaskKind::BackwardData | TaskKind::BackwardWeights if blocked => {}
                _ => other_bytes += task.price.bytes,
            }
        }
        planned.other_ms = other_bytes / planned.gbytes_per_s * 1e-6;
        planned.step_ms = planned.other_ms + planned.layers.iter().map(|l| l.ms).sum::<f64>();
        Ok(planned)
    }

    fn layer(
        &self,
        plan: &Plan,
        layer: &Layer,
        isa: Isa,
        has_data_gradient: bool,
    ) -> Result<LayerRow, ShapeError> {
        let loops = Loops::new(plan, layer, isa, self.workers)?;
        let Loops { shape, groups, method, gain, .. } = loops;
        let budget = CacheBudget { live_bytes: self.live_bytes };
        let Blocking { block, traversal, bytes_per_flop, .. } = search(&shape, budget, isa.lanes());
        let flops = shape.flops() * groups as f64;
        let passes = if has_data_gradient { 3.0 } else { 2.0 };
        let arithmetic_ms = flops / gain / self.peak_gflops * 1e-6;
        let memory_ms = flops * bytes_per_flop / self.gbytes_per_s * 1e-6;
        Ok(LayerRow {
            layer: layer.name.clone(),
            strategy: strategy_name(plan.meshes().mesh(layer.id)),
            mb: block.mb,
            ic: block.ic,
            oc: block.oc,
            oh: block.oh,
            ow: block.ow,
            kept: traversal.name(),
            bytes_per_flop,
            unblocked_bytes_per_flop: shape.unblocked_bytes_per_flop(),
            method,
            gflop: flops * 1e-9,
            forward_blocks: loops.forward_blocks,
            backward_data_blocks: has_data_gradient.then_some(loops.backward_data_blocks),
            backward_weights_blocks: loops.backward_weights_blocks,
            ms: passes * arithmetic_ms.max(memory_ms),
        })
    }

    fn print(&self) {
        let Self { net, batch, ranks, strategy, local_batch, isa, workers, .. } = self;
        say!(
            "{net}, minibatch {batch} on {ranks} rank(s), strategy {strategy}: {local_batch} samples a rank, {workers} worker(s), {isa}"
        );
        say!(
            "peak {:.1} GFLOP/s, memory {:.1} GB/s; blocks of at most {} KB, half of L2",
            self.peak_gflops,
            self.gbytes_per_s,
            self.live_bytes >> 10
        );
        say!(
            "{:<16} {:<8} {:<7} {:>22} {:<7} {:>8} {:>9} {:>9} {:>20} {:>9}",
            "layer",
            "strategy",
            "method",
            "block mb:ic:oc:ohxow",
            "kept",
            "B/flop",
            "unblocked",
            "GFLOP",
            "blocks fwd/data/wei",
            "ms"
        );
        for row in &self.layers {
            let block = format!("{}:{}:{}:{}x{}", row.mb, row.ic, row.oc, row.oh, row.ow);
            let data = row.backward_data_blocks.map_or("-".to_owned(), |n| n.to_string());
            let blocks = format!("{}/{data}/{}", row.forward_blocks, row.backward_weights_blocks);
            say!(
                "{:<16} {:<8} {:<7} {block:>22} {:<7} {:>8.4} {:>9.3} {:>9.3} {blocks:>20} {:>9.3}",
                row.layer,
                row.strategy,
                row.method,
                row.kept,
                row.bytes_per_flop,
                row.unblocked_bytes_per_flop,
                row.gflop,
                row.ms
            );
        }
        say!("other tasks, at the speed of memory {:>86.3}", self.other_ms);
        say!(
            "a step {:>115.3}   {:.1} samples/s a rank",
            self.step_ms,
            *local_batch as f64 / self.step_ms * 1e3
        );
        if let Some(sharing) = &self.sharing {
            sharing.print();
        }
    }
}

/// Convolutions and linear layers have loops that are cut for the cache.
fn is_blocked(layer: &Layer) -> bool {
    matches!(layer.kind, LayerKind::Conv2d(_) | LayerKind::Linear(_))
}

/// The loop nest of a layer on the rank with the most of it, of one of its groups, and the blocks that its kernels cut the passes
/// into.
struct Loops {
    shape: ConvShape,
    groups: usize,
    method: &'static str,
    /// How many times fewer multiplications the method takes than the direct one.
    gain: f64,
    forward_blocks: usize,
    backward_data_blocks: usize,
    backward_weights_blocks: usize,
}

impl Loops {
    fn new(plan: &Plan, layer: &Layer, isa: Isa, workers: usize) -> Result<Self, ShapeError> {
        let (network, minibatch) = (plan.network(), plan.options().minibatch);
        // The first rank has the longest shares.
        let mb = plan.meshes().samples(layer.id, 0, minibatch).len();
        let oc = plan.meshes().features(network, layer.id, 0).len();
        let source = network.layer(layer.inputs[0]);
        match &layer.kind {
            LayerKind::Conv2d(conv) => {
                let desc = conv_desc(source, &graph::Conv2d { oc, ..*conv }, isa);
                let tile = plan.winograd().tile(layer.id);
                let conv = match tile.map(winograd_tile) {
                    Some(tile) => Conv2d::winograd(desc, tile, isa, detect_caches())?,
                    None => Conv2d::for_caches(desc, isa, detect_caches())?.for_workers(workers),
                };
                // A plain source has no gradient.
                let plain = desc.src_layout == Layout::Plain;
                Ok(Self {
                    shape: ConvShape::of(&desc, mb),
                    groups: desc.groups,
                    method: tile.map_or("direct", WinogradTile::name),
                    gain: tile.map_or(1.0, |tile| tile.gain(desc.oh(), desc.ow())),
                    forward_blocks: conv.forward_blocks(mb),
                    backward_data_blocks: if plain { 0 } else { conv.backward_data_blocks(mb) },
                    backward_weights_blocks: conv.backward_weights_blocks(mb),
                })
            }
            LayerKind::Linear(linear) => {
                let desc = LinearDesc {
                    in_features: source.shape.elements(),
                    out_features: oc,
                    bias: linear.bias,
                    src_activation: None,
                    dst_activation: None,
                };
                let linear = Linear::new(desc, isa)?.for_workers(workers);
                Ok(Self {
                    shape: ConvShape::linear(mb, desc.in_features, desc.out_features),
                    groups: 1,
                    method: "-",
                    gain: 1.0,
                    forward_blocks: linear.forward_blocks(mb),
                    backward_data_blocks: linear.backward_data_blocks(mb),
                    backward_weights_blocks: linear.backward_weights_blocks(mb),
                })
            }
            kind => unreachable!("{kind} has no loops to cut"),
        }
    }
}

fn conv_desc(source: &Layer, conv: &graph::Conv2d, isa: Isa) -> Conv2dDesc {
    let (ic, ih, iw) = source.shape.maps();
    let ((kh, kw), (sh, sw), (ph, pw)) = (conv.window.kernel, conv.window.stride, conv.window.pad);
    let is_input = matches!(source.kind, LayerKind::Input);
    let plain = is_input && ic < isa.lanes() && conv.groups == 1;
    Conv2dDesc {
        ic,
        oc: conv.oc,
        ih,
        iw,
        kh,
        kw,
        sh,
        sw,
        ph,
        pw,
        groups: conv.groups,
        bias: conv.bias,
        src_layout: if plain { Layout::Plain } else { Layout::Blocked(isa.lanes()) },
        src_activation: None,
        dst_activation: None,
    }
}
