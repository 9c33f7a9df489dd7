//! The memory that outlives iterations: parameters, running statistics, and the optimizer's velocity.
//!
//! A store belongs to a network on one rank; the training and the scoring program share it.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lockstep_graph::{LayerId, Network, TensorRole, strips};
use lockstep_ops::Arena;

use super::kernel::Kernels;
use crate::error::ScheduleError;

/// Elements to which tensors are aligned: one cache line of 64 bytes.
pub(crate) const ALIGN: usize = 16;

/// What a store is made for.
#[derive(Debug, Clone, Copy)]
pub struct StoreOptions {
    /// This rank.
    pub rank: usize,
    /// All ranks.
    pub ranks: usize,
    /// True when the optimizer keeps a velocity; scoring needs none.
    pub momentum: bool,
    /// Whether kernels compute the activations next to them, as the plans that will be bound
    /// ([`PlanOptions::fuse`](lockstep_graph::PlanOptions)).
    pub fuse: bool,
}

/// Where one layer's lasting tensors are.
#[derive(Debug, Clone, Default)]
struct Entry {
    parameters: Option<Range<usize>>,
    running: Option<Range<usize>>,
    velocity: Option<Range<usize>>,
    /// The part of the flat parameters that this rank owns.
    strip: Range<usize>,
}

/// Parameters, running statistics and velocity of one rank.
#[derive(Debug)]
pub struct ParameterStore {
    arena: Arena,
    entries: Vec<Entry>,
    kernels: Kernels,
    options: StoreOptions,
    /// Held by whoever touches the arena; true when it was abandoned to exchanges of a failed run.
    abandoned: Mutex<bool>,
}

impl ParameterStore {
    /// A store of zeros for a network.
    ///
    /// # Errors
    /// A layer's shape is one that no kernel serves.
    pub fn new(
        network: &Network,
        isa: lockstep_ops::Isa,
        options: StoreOptions,
    ) -> Result<Self, ScheduleError> {
        let kernels = Kernels::new(network, isa, options.fuse)?;
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
            if parameters > 0 {
                entry.strip = strips(parameters, options.ranks, ALIGN)[options.rank].clone();
                entry.parameters = Some(take(parameters));
                if options.momentum {
                    entry.velocity = Some(take(entry.strip.len()));
                }
            }
            let running = kernel.running_len();
            if running > 0 {
                entry.running = Some(take(running));
            }
            entries.push(entry);
        }
        let arena = Arena::new(len);
        Ok(Self { arena, entries, kernels, options, abandoned: Mutex::new(false) })
    }

    /// What it was made for.
    #[must_use]
    pub fn options(&self) -> StoreOptions {
        self.options
    }

    /// Bytes of all its tensors.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.arena.len() * size_of::<f32>()
    }

    /// Sets one parameter, by layer and PyTorch name (`weight`, `running_mean`), from plain order. Waits while a program
    /// runs on the store.
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
        let lease = self.lease()?;
        let (range, len) = self.locate(network, layer, param)?;
        if values.len() != len {
            return Err(unfit(network, layer, param, len, values.len()));
        }
        let mut tensor = self.tiles(range, &lease);
        let len = tensor.len();
        self.kernels.get(layer).pack(param, values, tensor.tile(0..len));
        Ok(())
    }

    /// One parameter in plain order. Waits while a program runs on the store.
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
        let (range, len) = self.locate(network, layer, param)?;
        let mut values = vec![0.0; len];
        let mut tensor = self.tiles(range, &lease);
        let len = tensor.len();
        self.kernels.get(layer).unpack(param, tensor.tile(0..len), &mut values);
        Ok(values)
    }

    /// The tensor that holds a parameter, and the parameter's number of values.
    fn locate(
        &self,
        network: &Network,
        layer: LayerId,
        param: &str,
    ) -> Result<(Range<usize>, usize), ScheduleError> {
        let entry = &self.entries[layer.index()];
        let found = network.layer(layer).params.iter().find(|p| p.name == param);
        let found = found.ok_or_else(|| unfit(network, layer, param, 0, 0))?;
        let range = if found.role.is_trainable() { &entry.parameters } else { &entry.running };
        let range = range.clone().expect("a layer with a parameter has a tensor for it");
        Ok((range, found.shape.iter().product()))
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
