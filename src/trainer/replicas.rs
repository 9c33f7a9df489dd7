//! The check that ranks which hold the same parameters hold the same bits.

use std::hash::{DefaultHasher, Hash, Hasher};

use lockstep_comm::Communicator;
use lockstep_graph::{LayerKind, Network, Statistics};
use lockstep_scheduler::ParameterStore;

use crate::error::RunError;

/// Compares parameters and running statistics over the ranks that have the same features of each layer. All ranks call it, while
/// no program runs; each finds the same difference.
///
/// # Errors
/// [`RunError::ReplicasDiffer`] names the first layer, and the first rank that differs from an earlier one.
pub(super) fn check_replicas(
    comm: &Communicator,
    network: &Network,
    store: &ParameterStore,
    step: u64,
) -> Result<(), RunError> {
    let mut own = Vec::new();
    let mut names = Vec::new();
    for layer in network.layers() {
        let per_rank = matches!(&layer.kind, LayerKind::BatchNorm(norm) if norm.statistics == Statistics::PerRank);
        for param in layer.params.iter().filter(|p| p.role.is_trainable() || !per_rank) {
            let mut hasher = DefaultHasher::new();
            let values = store.export(network, layer.id, &param.name)?;
            values.iter().for_each(|value| value.to_bits().hash(&mut hasher));
            own.extend(hasher.finish().to_le_bytes());
            names.push((layer, &param.name));
        }
    }
    let all = comm.all_gather(own)?;
    let hash = |rank: usize, index: usize| &all[rank][8 * index..8 * (index + 1)];
    for (index, (layer, param)) in names.into_iter().enumerate() {
        let mesh = store.meshes().mesh(layer.id);
        for member in 0..mesh.members() {
            let mut replicas = mesh.same_features(member);
            let first = replicas.next().expect("a mesh has a group");
            if let Some(rank) = replicas.find(|&rank| hash(rank, index) != hash(first, index)) {
                let parameter = format!("{}.{param}", layer.name);
                return Err(RunError::ReplicasDiffer { parameter, rank, first, step });
            }
        }
    }
    Ok(())
}
