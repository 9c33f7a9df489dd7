//! Whether a run has the same bits on any number of ranks.

use std::sync::Arc;

use lockstep_graph::{Network, PlanOptions};
use lockstep_ops::Isa;
use lockstep_scheduler::simulator::resolve_auto;

use crate::error::RunError;

/// Whether the bits of a run are to be the same on 1, 2, 4 and 8 ranks ([`PlanOptions::reproducible`](PlanOptions)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reproducible {
    /// A run whose bits cannot be the same is refused.
    Always,
    /// Under data parallelism on 1, 2, 4 or 8 ranks; no other run can have it ([`PlanOptions::can_be_reproducible`]).
    #[default]
    WherePossible,
    /// Sums are made in the order that is fastest on this number of ranks: always the same one, but another on another number.
    Never,
}

impl Reproducible {
    /// Options of a plan with the strategy `auto` and this choice settled.
    pub(super) fn resolve(
        self,
        network: &Arc<Network>,
        options: PlanOptions,
        isa: Isa,
    ) -> Result<PlanOptions, RunError> {
        let asked = PlanOptions { reproducible: self == Self::Always, ..options };
        self.settle(network, resolve_auto(network, asked, isa)?)
    }

    /// Options of a plan with this choice settled for their strategy.
    ///
    /// # Errors
    /// There is no rank, or the strategy names a layer that it cannot split. That a plan cannot be reproducible is told when it is
    /// compiled.
    pub fn settle(self, network: &Network, options: PlanOptions) -> Result<PlanOptions, RunError> {
        let reproducible = match self {
            Self::Always => true,
            Self::WherePossible => options.can_be_reproducible(network)?,
            Self::Never => false,
        };
        Ok(PlanOptions { reproducible, ..options })
    }
}
