//! The memory that outlives iterations: parameters, running statistics, and the optimizer's velocity.
//!
//! A store belongs to a network on one rank; the training and the scoring program share it. Where a layer is split by features,
//! it holds the parameters of this rank's features alone. Tied parameters are there once, with the layer that keeps them.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lockstep_graph::{
    Fusion, LayerId, Meshes, Mode, Network, Plan, TensorRole, WinogradLayers, strips,
};
use lockstep_ops::Arena;

use super::kernel::{Kernels, LayerKernel};
use crate::error::ScheduleError;

/// Elements to which tensors are aligned: one cache line of 64 bytes.
pub(crate) const ALIGN: usize = 16;

/// Where one layer's lasting tensors are.
#[derive(Debug, Clone, Default)]
struct Entry {
    parameters: Option<Range<usize>>,
    running: Option<Range<usize>>,
    velocity: Option<Range<usize>>,
    /// The part of the flat parameters that this rank owns.
    strip: Range<usize>,
}

/// Where everything in a store is: known without its memory.
#[derive(Debug)]
pub(crate) struct StoreLayout {
    entries: Vec<Entry>,
    kernels: Kernels,
    meshes: Meshes,
    rank: usize,
    fusion: Fusion,
    winograd: WinogradLayers,
    /// Elements of all tensors.
    len: usize,
}

impl StoreLayout {
    /// The layout of [`ParameterStore::new`].
    pub(crate) fn new(
        plan: &Plan,
        rank: usize,
        isa: lockstep_ops::Isa,
    ) -> Result<Self, ScheduleError> {
        let (network, meshes) = (plan.network(), plan.meshes());
        let momentum = plan.options().mode == Mode::Train { momentum: true };
        let methods = (plan.fusion(), plan.winograd());
        let kernels = Kernels::new(network, meshes, rank, methods, isa)?;
        let mut len = 0;
        let mut take = |n: usize| {
            let start = len;
            len += n.next_multiple_of(ALIGN);
            start..start + n
        };
        let mut entries = Vec::new();
        for layer in network.layers() {
            let kernel = kernels.get(layer.id);
            let mut entry = Entry::default();
            let parameters = kernel.parameters_len();
            if parameters > 0 && layer.tied_to.is_none() {
                let mesh = meshes.mesh(layer.id);
                let group = rank / mesh.members();
                entry.strip = strips(parameters, mesh.groups(), ALIGN)[group].clone();
                entry.parameters = Some(take(parameters));
                if momentum {
                    entry.velocity = Some(take(entry.strip.len()));
                }
            }
            let running = kernel.running_len();
            if running > 0 {
                entry.running = Some(take(running));
            }
            entries.push(entry);
        }
        let (meshes, fusion) = (meshes.clone(), plan.fusion().clone());
        let winograd = plan.winograd().clone();
        Ok(Self { entries, kernels, meshes, rank, fusion, winograd, len })
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// Where a lasting tensor is.
    pub(crate) fn range(&self, layer: LayerId, role: TensorRole) -> Option<Range<usize>> {
        let entry = &self.entries[layer.index()];
        match role {
            TensorRole::Parameters => entry.parameters.clone(),
            TensorRole::Velocity => entry.velocity.clone(),
            TensorRole::RunningStatistics => entry.running.clone(),
            _ => None,
        }
    }

    /// The part of a layer's flat parameters that this rank owns.
    pub(crate) fn strip(&self, layer: LayerId) -> Range<usize> {
        self.entries[layer.index()].strip.clone()
    }
}

/// Parameters, running statistics and velocity of one rank.
#[derive(Debug)]
pub struct ParameterStore {
    layout: StoreLayout,
    arena: Arena,
    /// Held by whoever touches the arena; true when it was abandoned to exchanges of a failed run.
    abandoned: Mutex<bool>,
}

impl ParameterStore {
    /// A store of zeros for the network of a plan, on one rank. Other plans can be bound to it that have the same meshes and the
    /// same fusion; the optimizer has a velocity if the plan trains with momentum.
    ///
    /// # Errors
    /// A layer's shape is one that no kernel serves.
    pub fn new(plan: &Plan, rank: usize, isa: lockstep_ops::Isa) -> Result<Self, ScheduleError> {
        let layout = StoreLayout::new(plan, rank, isa)?;
        let arena = Arena::new(layout.len());
        Ok(Self { layout, arena, abandoned: Mutex::new(false) })
    }

    /// Cuts the tasks of programs that are bound to it into blocks for so many workers. No result depends on it.
    #[must_use]
    pub fn for_workers(mut self, workers: usize) -> Self {
        self.layout.kernels = self.layout.kernels.for_workers(workers);
        self
    }

    /// Where everything is.
    pub(crate) fn layout(&self) -> &StoreLayout {
        &self.layout
    }

    /// The rank it is for.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.layout.rank
    }

    /// Which ranks hold what.
    #[must_use]
    pub fn meshes(&self) -> &Meshes {
        &self.layout.meshes
    }

    /// The method of its convolutions.
    pub(crate) fn winograd(&self) -> &WinogradLayers {
        &self.layout.winograd
    }

    /// What its kernels compute along with their own layer.
    pub(crate) fn fusion(&self) -> &Fusion {
        &self.layout.fusion
    }

    /// Bytes of all its tensors.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.arena.len() * size_of::<f32>()
    }

    /// Sets one parameter, by layer and PyTorch name (`weight`, `running_mean`), from all its values in plain order; the rank
    /// keeps those of its features. Of tied layers any may be named. Waits while a program runs on the store.
    ///
    /// # Errors
    /// The layer has no such parameter, it has another number of values, or a run failed in the midst of an exchange.
    pub fn import(
        &self,
        network: &Network,
        layer: LayerId,
        param: &str,
        values: &[f32],
    ) -> Result<(), ScheduleError> {
        let Place { share, len, .. } = self.locate(network, layer, param)?;
        if values.len() != len {
            return Err(unfit(network, layer, param, len, values.len()));
        }
        self.import_share(network, layer, param, &values[share])
    }

    /// Sets this rank's values of one parameter, as [`ParameterStore::export`] gives them.
    ///
    /// # Errors
    /// As [`ParameterStore::import`].
    pub fn import_share(
        &self,
        network: &Network,
        layer: LayerId,
        param: &str,
        values: &[f32],
    ) -> Result<(), ScheduleError> {
        let lease = self.lease()?;
        let Place { kernel, range, share, .. } = self.locate(network, layer, param)?;
        if values.len() != share.len() {
            return Err(unfit(network, layer, param, share.len(), values.len()));
        }
        let mut tensor = self.tiles(range, &lease);
        let len = tensor.len();
        kernel.pack(param, values, tensor.tile(0..len));
        Ok(())
    }

    /// This rank's values of one parameter in plain order: those of its features, which are all where the layer is not split
    /// ([`ParameterStore::share`]). Waits while a program runs on the store.
    ///
    /// # Errors
    /// The layer has no such parameter, or a run failed in the midst of an exchange.
    pub fn export(
        &self,
        network: &Network,
        layer: LayerId,
        param: &str,
    ) -> Result<Vec<f32>, ScheduleError> {
        let lease = self.lease()?;
        let Place { kernel, range, share, .. } = self.locate(network, layer, param)?;
        let mut values = vec![0.0; share.len()];
        let mut tensor = self.tiles(range, &lease);
        let len = tensor.len();
        kernel.unpack(param, tensor.tile(0..len), &mut values);
        Ok(values)
    }

    /// Which of all values of a parameter in plain order this rank holds.
    ///
    /// # Errors
    /// The layer has no such parameter.
    pub fn share(
        &self,
        network: &Network,
        layer: LayerId,
        param: &str,
    ) -> Result<Range<usize>, ScheduleError> {
        Ok(self.locate(network, layer, param)?.share)
    }

    fn locate(
        &self,
        network: &Network,
        layer: LayerId,
        param: &str,
    ) -> Result<Place<'_>, ScheduleError> {
        let keeps = |id: LayerId| network.layer(id).params.iter().find(|p| p.name == param);
        // A tied layer keeps its running statistics alone.
        let own = keeps(layer).map(|found| (layer, found));
        let found = own.or_else(|| {
            let owner = network.owner(layer);
            keeps(owner).filter(|p| p.role.is_trainable()).map(|found| (owner, found))
        });
        let (keeper, found) = found.ok_or_else(|| unfit(network, layer, param, 0, 0))?;
        let entry = &self.layout.entries[keeper.index()];
        let range = if found.role.is_trainable() { &entry.parameters } else { &entry.running };
        let range = range.clone().expect("a layer with a parameter has a tensor for it");
        let kernel = self.layout.kernels.get(keeper);
        let share = kernel.share_of(&found.shape);
        Ok(Place { kernel, range, share, len: found.elements() })
    }

    #[expect(unsafe_code, reason = "hands out a tensor for import and export")]
    fn tiles<'a>(&'a self, range: Range<usize>, _lease: &'a Lease<'_>) -> lockstep_ops::Tiles<'a> {
        // SAFETY: the lease is held for the life of the tiles, and whoever else touches the arena holds it too: import,
        // export, a running program. After a failed run, whose exchanges may live on, nobody gets it.
        unsafe { self.arena.tiles(range) }
    }

    /// Sole access to the arena; whoever else wants it waits until it is dropped.
    pub(crate) fn lease(&self) -> Result<Lease<'_>, ScheduleError> {
        // A panicking holder leaves the flag right.
        let abandoned = self.abandoned.lock().unwrap_or_else(PoisonError::into_inner);
        if *abandoned { Err(ScheduleError::Abandoned) } else { Ok(Lease(abandoned)) }
    }

    /// The arena, for programs that hold a lease while they run.
    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    pub(crate) fn kernels(&self) -> &Kernels {
        &self.layout.kernels
    }

    /// The part of a layer's flat parameters that this rank owns.
    pub(crate) fn strip(&self, layer: LayerId) -> Range<usize> {
        self.layout.strip(layer)
    }
}

/// Where a parameter is.
struct Place<'a> {
    /// The kernel of the layer that keeps it.
    kernel: &'a LayerKernel,
    /// The tensor that holds it.
    range: Range<usize>,
    /// Which of its values in plain order are there.
    share: Range<usize>,
    /// All its values.
    len: usize,
}

/// Sole access to a store's arena.
#[derive(Debug)]
pub(crate) struct Lease<'a>(MutexGuard<'a, bool>);

impl Lease<'_> {
    /// Leaves the arena to exchanges that may still be under way: nobody gets a lease any more.
    pub(crate) fn abandon(&mut self) {
        *self.0 = true;
    }
}

fn unfit(
    network: &Network,
    layer: LayerId,
    param: &str,
    expected: usize,
    got: usize,
) -> ScheduleError {
    let name = format!("{}.{param}", network.layer(layer).name);
    ScheduleError::Parameter { name, expected, got }
}
