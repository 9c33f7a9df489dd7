//! How far data parallelism of the convolutions scales: the points a node needs to be busy while it exchanges.

use super::equations::{LayerSizes, Overlap};
use crate::cost::Platform;
use crate::layer::LayerKind;
use crate::network::Network;

/// Operations that a machine does in the time in which its link carries one byte.
///
/// # Examples
/// ```
/// use lockstep_graph::{Platform, balance::system_ratio};
///
/// // Two sockets of 16 cores at 2.3 GHz, 32 operations a cycle; FDR InfiniBand at 7 GB/s.
/// let platform = Platform {
///     flops_per_s: 2.0 * 16.0 * 2.3e9 * 32.0,
///     link_bytes_per_s: 7e9,
///     ..Platform::default()
/// };
/// assert_eq!(system_ratio(&platform).floor(), 336.0);
/// ```
#[must_use]
pub fn system_ratio(platform: &Platform) -> f64 {
    platform.flops_per_s / platform.link_bytes_per_s
}

/// Points of the minibatch that a node needs so that training all convolutions takes no less time than exchanging their
/// weights, as a real number: their bytes, in the paper's form, times the system's operations a byte, over their operations a
/// point. Zero for a network without convolutions.
#[must_use]
pub fn minimum_points(network: &Network, system_ratio: f64, overlap: Overlap) -> f64 {
    let convolutions = network
        .layers()
        .iter()
        .filter(|layer| matches!(layer.kind, LayerKind::Conv2d(_)))
        .filter_map(|layer| LayerSizes::of(network, layer));
    let (flops, bytes) = convolutions.fold((0.0, 0.0), |(flops, bytes), sizes| {
        (flops + sizes.training_flops(1.0), bytes + sizes.data_bytes(overlap))
    });
    if flops > 0.0 { system_ratio * bytes / flops } else { 0.0 }
}

/// The most nodes that may share a minibatch when each needs `minimum_points`, of which there are whole ones only.
#[must_use]
pub fn nodes_at(minibatch: usize, minimum_points: f64) -> usize {
    minibatch / (minimum_points.ceil() as usize).max(1)
}
