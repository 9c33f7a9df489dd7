//! The exchanges of a step: alone before the first step, and in the steps.
//!
//! Where they take long alone, the network is slow. Where they take much longer in the steps, ranks wait for each other, or
//! exchanges for more urgent ones.

use std::sync::Arc;
use std::time::Duration;

use lockstep_comm::Communicator;
use lockstep_scheduler::Program;

use crate::error::RunError;

/// One exchange of a step on one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangeTimes {
    /// Of its task: layer and pass.
    pub name: String,
    /// Payload bytes that it sends from this rank.
    pub bytes_sent: u64,
    /// What it took before the first step, when nothing else was exchanged or computed.
    pub alone: Duration,
    /// How often it was served in the steps.
    pub times: u64,
    /// From when the communication thread began each until it was complete, added up; waiting for other ranks counts.
    pub served: Duration,
}

impl ExchangeTimes {
    /// Mean time in the steps.
    #[must_use]
    pub fn mean(&self) -> Duration {
        self.served.checked_div(u32::try_from(self.times).unwrap_or(u32::MAX)).unwrap_or_default()
    }
}

/// Runs each exchange of a program alone, before its first step.
pub(super) fn isolate(
    comm: Option<&Communicator>,
    program: &Arc<Program>,
) -> Result<Vec<Duration>, RunError> {
    Ok(comm.map_or_else(|| Ok(Vec::new()), |comm| program.isolate(comm))?)
}

/// What was counted of a program's exchanges, beside their times alone.
pub(super) fn exchange_times(program: &Program, alone: &[Duration]) -> Vec<ExchangeTimes> {
    let served = program.served().into_iter().zip(alone);
    served
        .map(|(exchange, &alone)| ExchangeTimes {
            name: exchange.name.to_owned(),
            bytes_sent: exchange.bytes_sent,
            alone,
            times: exchange.times,
            served: exchange.time,
        })
        .collect()
}
