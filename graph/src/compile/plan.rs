//! The plan: a network with batch, ranks and strategy chosen, and the task graph of one iteration.

use std::sync::Arc;

use super::fusion::Fusion;
use super::lowering::Lowering;
use super::meshes::Meshes;
use super::strategy::Strategy;
use super::winograd::{WinogradLayers, WinogradTile};
use crate::cost::{Platform, Price};
use crate::error::GraphError;
use crate::layer::{LayerKind, Statistics};
use crate::network::Network;
use crate::placement::share;
use crate::task::TaskGraph;

/// What an iteration is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Forward, backward and an update; `momentum` says whether the optimizer keeps a velocity.
    Train {
        /// True when the optimizer has momentum.
        momentum: bool,
    },
    /// Forward and loss only; dropout passes through, batch normalization uses its running statistics.
    Score,
}

/// What a network is compiled for.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanOptions {
    /// Samples of the largest minibatch, over all ranks.
    pub minibatch: usize,
    /// Ranks that share it.
    pub ranks: usize,
    /// Training or scoring.
    pub mode: Mode,
    /// How the ranks share the work.
    pub strategy: Strategy,
    /// Machine numbers for priorities and the planner.
    pub platform: Platform,
    /// Whether activations and their gradients are computed by the tasks next to them ([`Fusion`]), and the parameters of
    /// convolutions and linear layers make their step in the task of their gradient, where that is not exchanged. The values are the
    /// same to the bit; the store that the plan is bound to must have been made alike.
    pub fuse: bool,
    /// Whether small gradients are exchanged together with those of the layers next to them, and new parameters likewise. The
    /// values are the same to the bit; what travels is the same but for the number of messages.
    pub bundle: bool,
    /// Whether the bits are to be the same for every number of ranks that divides [`REPRODUCIBLE_SLICES`]: gradients and
    /// statistics are computed over so many slices of the minibatch and summed in a fixed tree. Data parallelism alone has it.
    pub reproducible: bool,
    /// Whether updates wait for the norm of all gradients together, by which they are clipped.
    pub clip: bool,
    /// Whether large 3x3 convolutions are computed by Winograd's minimal filtering ([`WinogradLayers`]), which rounds otherwise than
    /// the direct method; the store that the plan is bound to must have been made alike.
    pub winograd: Option<WinogradTile>,
}

impl PlanOptions {
    /// Whether the bits can be the same on any number of ranks ([`PlanOptions::reproducible`]): not where a layer is split by
    /// features or normalizes each rank by its own samples, nor on a number of ranks that does not divide [`REPRODUCIBLE_SLICES`].
    ///
    /// # Errors
    /// There is no rank, or the strategy names a layer that it cannot split.
    pub fn can_be_reproducible(&self, network: &Network) -> Result<bool, GraphError> {
        let Self { minibatch, ranks, strategy, platform, .. } = self;
        let meshes = Meshes::new(network, strategy, *ranks, *minibatch, platform)?;
        Ok(check_reproducible(network, &meshes).is_ok())
    }
}

impl Default for PlanOptions {
    /// One sample on one rank, trained with momentum, fused and bundled.
    fn default() -> Self {
        Self {
            minibatch: 1,
            ranks: 1,
            mode: Mode::Train { momentum: true },
            strategy: Strategy::Data,
            platform: Platform::default(),
            fuse: true,
            bundle: true,
            reproducible: false,
            clip: false,
            winograd: None,
        }
    }
}

/// Slices of a minibatch in the reproducible mode.
pub const REPRODUCIBLE_SLICES: usize = 8;

/// A network compiled for a minibatch, a number of ranks and a strategy. Every rank compiles the same plan.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use lockstep_graph::{Mode, Plan, PlanOptions, Platform, Strategy, TaskKind, zoo};
///
/// let network = Arc::new(zoo::by_name("lenet").unwrap());
/// let plan = Plan::compile(network, PlanOptions {
///     minibatch: 64,
///     ranks: 2,
///     mode: Mode::Train { momentum: true },
///     strategy: Strategy::Data,
///     platform: Platform::default(),
///     fuse: true,
///     ..PlanOptions::default()
/// }).unwrap();
/// // Two convolutions and two linear layers are exchanged; the first layer has no data gradient.
/// let count = |kind| plan.tasks().tasks().filter(|t| t.kind == kind).count();
/// assert_eq!(count(TaskKind::PartReduce), 4);
/// assert_eq!(plan.local_minibatch(), 32);
/// assert!(plan.tasks().tasks().all(|t| t.name != "conv1.backward_data"));
/// ```
#[derive(Debug, Clone)]
pub struct Plan {
    network: Arc<Network>,
    options: PlanOptions,
    fusion: Fusion,
    meshes: Meshes,
    winograd: WinogradLayers,
    tasks: TaskGraph,
}

impl Plan {
    /// Compiles.
    ///
    /// # Errors
    /// The minibatch or the number of ranks is zero, the network has no loss, or the strategy names a layer that it cannot split.
    pub fn compile(network: Arc<Network>, options: PlanOptions) -> Result<Self, GraphError> {
        if options.minibatch == 0 {
            return Err(GraphError::EmptyMinibatch);
        }
        let PlanOptions { minibatch, ranks, strategy, platform, .. } = &options;
        let meshes = Meshes::new(&network, strategy, *ranks, *minibatch, platform)?;
        let loss = network
            .loss()
            .ok_or_else(|| GraphError::NoLoss { network: network.name().to_owned() })?;
        if options.reproducible {
            check_reproducible(&network, &meshes)?;
        }
        let fusion = Fusion::new(&network, options.fuse, !options.reproducible);
        let winograd = WinogradLayers::new(&network, options.winograd);
        let tasks = Lowering::new(&network, &options, &fusion, &meshes).run(loss);
        Ok(Self { network, options, fusion, meshes, winograd, tasks })
    }

    /// The network.
    #[must_use]
    pub fn network(&self) -> &Arc<Network> {
        &self.network
    }

    /// What it was compiled for.
    #[must_use]
    pub fn options(&self) -> &PlanOptions {
        &self.options
    }

    /// Which tasks do the work of activation layers along with their own.
    #[must_use]
    pub fn fusion(&self) -> &Fusion {
        &self.fusion
    }

    /// Which ranks compute what of every layer.
    #[must_use]
    pub fn meshes(&self) -> &Meshes {
        &self.meshes
    }

    /// The method of every convolution.
    #[must_use]
    pub fn winograd(&self) -> &WinogradLayers {
        &self.winograd
    }

    /// The tasks of one iteration.
    #[must_use]
    pub fn tasks(&self) -> &TaskGraph {
        &self.tasks
    }

    /// Tasks and dependencies, to add memory-reuse edges to.
    pub fn tasks_mut(&mut self) -> &mut TaskGraph {
        &mut self.tasks
    }

    /// The most samples a rank loads of one minibatch.
    #[must_use]
    pub fn local_minibatch(&self) -> usize {
        share(self.options.minibatch, self.options.ranks, 0).len()
    }

    /// The sum of all prices: one rank's work in one iteration.
    #[must_use]
    pub fn price(&self) -> Price {
        self.tasks.tasks().fold(Price::default(), |sum, task| Price {
            flops: sum.flops + task.price.flops,
            bytes: sum.bytes + task.price.bytes,
            bytes_sent: sum.bytes_sent + task.price.bytes_sent,
            messages: sum.messages + task.price.messages,
        })
    }
}

/// What reproducible sums cannot be had for.
fn check_reproducible(network: &Network, meshes: &Meshes) -> Result<(), GraphError> {
    let refuse = |reason: String| Err(GraphError::NotReproducible { reason });
    let ranks = meshes.ranks();
    if !REPRODUCIBLE_SLICES.is_multiple_of(ranks) {
        return refuse(format!("{ranks} ranks do not divide {REPRODUCIBLE_SLICES} slices"));
    }
    for layer in network.layers() {
        if meshes.mesh(layer.id).members() > 1 {
            return refuse(format!("{} is split by features", layer.name));
        }
        if matches!(&layer.kind, LayerKind::BatchNorm(norm) if norm.statistics == Statistics::PerRank)
        {
            return refuse(format!("{} normalizes each rank by its own samples", layer.name));
        }
    }
    Ok(())
}
