//! The numbers of a job's machines and links by which strategies and the algorithms of exchanges are chosen.
//!
//! They are estimates from what does not change from run to run, or the user's, and never measured at the start: another choice
//! gives other bits.

use lockstep_comm::{Communicator, LinkModel};
use lockstep_graph::Platform;
use lockstep_ops::Isa;

use crate::error::RunError;

/// Operations a second and lane that a worker reaches in convolutions: two fused multiply-adds a cycle at 2.5 GHz, two thirds
/// of the time.
const FLOPS_PER_LANE: f64 = 6.5e9;

/// Bytes a second between memory and a worker.
const BYTES_PER_WORKER: f64 = 10e9;

/// The platform of a job's slowest rank; the same on all ranks, which must all call it.
pub(super) fn platform(
    comm: Option<&Communicator>,
    workers: usize,
    isa: Isa,
    link: &LinkModel,
) -> Result<Platform, RunError> {
    let lanes = isa.lanes();
    let mut slowest = [workers, lanes];
    if let Some(comm) = comm {
        let own = slowest.iter().flat_map(|&n| (n as u64).to_le_bytes()).collect();
        for rank in comm.all_gather(own)? {
            for (slowest, &bytes) in slowest.iter_mut().zip(rank.as_chunks().0) {
                let number = usize::try_from(u64::from_le_bytes(bytes)).unwrap_or(usize::MAX);
                *slowest = number.min(*slowest);
            }
        }
    }
    let [workers, lanes] = slowest.map(|n| n as f64);
    Ok(Platform {
        flops_per_s: workers * lanes * FLOPS_PER_LANE,
        bytes_per_s: workers * BYTES_PER_WORKER,
        link_bytes_per_s: 1.0 / link.seconds_per_byte,
        link_latency_s: link.latency,
        link_congestion: link.congestion,
    })
}
