//! What the strategy `auto` stands for: the planner's choice, unless a simulated iteration is shorter otherwise.

use std::sync::Arc;

use lockstep_graph::{Network, Plan, PlanOptions, Strategy};
use lockstep_ops::Isa;

use super::{SimulatedStep, SimulatorOptions, simulate};
use crate::error::ScheduleError;
use crate::program::price_exchanges;

/// Another strategy must be faster than the planner's by more than this share: the planner counts what hidden exchanges cost the
/// workers, the simulation does not.
const GAIN: f64 = 5e-3;

/// A strategy and what it would take.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The strategy; [`Strategy::Auto`] stands for the planner's choice.
    pub strategy: Strategy,
    /// An iteration by it.
    pub step: SimulatedStep,
}

/// Simulates an iteration by the planner's choice for each layer, by pure data and pure model parallelism and by every number
/// of groups between, the same for all layers; best first. The first is what [`Strategy::Auto`] is best replaced by: the fastest,
/// or the planner's choice where that is about as fast.
///
/// A function of its arguments alone, so that all ranks come to the same.
///
/// # Cost
/// A compilation and a simulation for every divisor of the number of ranks.
///
/// # Errors
/// `options` cannot be compiled, or a layer is one that no kernel serves.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use lockstep_graph::{Mode, PlanOptions, Platform, Strategy, zoo};
/// use lockstep_ops::Isa;
/// use lockstep_scheduler::simulator::{SimulatorOptions, compare_strategies};
///
/// let platform = Platform::default();
/// let options = PlanOptions {
///     minibatch: 512,
///     ranks: 2,
///     mode: Mode::Train { momentum: true },
///     strategy: Strategy::Auto,
///     platform,
///     fuse: true,
///     ..PlanOptions::default()
/// };
/// let network = Arc::new(zoo::by_name("cd-dnn").unwrap());
/// let simulator = SimulatorOptions::new(platform);
/// let candidates = compare_strategies(&network, &options, &simulator, Isa::detect()).unwrap();
/// let data = candidates.iter().find(|c| c.strategy == Strategy::Data).unwrap();
/// assert!(candidates[0].step.step_s < 0.8 * data.step.step_s);
/// ```
pub fn compare_strategies(
    network: &Arc<Network>,
    options: &PlanOptions,
    simulator: &SimulatorOptions,
    isa: Isa,
) -> Result<Vec<Candidate>, ScheduleError> {
    let ranks = options.ranks;
    let between = (2..ranks).filter(|&groups| ranks.is_multiple_of(groups)).map(Strategy::Groups);
    let mut strategies = vec![Strategy::Auto];
    if ranks > 1 {
        strategies.extend([Strategy::Data, Strategy::Model].into_iter().chain(between));
    }
    let candidate = |strategy: Strategy| {
        let options = PlanOptions { strategy: strategy.clone(), ..options.clone() };
        let mut plan = Plan::compile(Arc::clone(network), options)?;
        price_exchanges(&mut plan, 0, isa)?;
        Ok(Candidate { strategy, step: simulate(plan.tasks(), simulator) })
    };
    let mut candidates =
        strategies.into_iter().map(candidate).collect::<Result<Vec<_>, ScheduleError>>()?;
    let weighed = |candidate: &Candidate| match candidate.strategy {
        Strategy::Auto => candidate.step.step_s * (1.0 - GAIN),
        _ => candidate.step.step_s,
    };
    // Stable: of equals the planner's choice, then data parallelism.
    candidates.sort_by(|a, b| weighed(a).total_cmp(&weighed(b)));
    Ok(candidates)
}

/// The options with [`Strategy::Auto`] replaced by the best of [`compare_strategies`], on a link that serves by priority; with any
/// other strategy as they are.
///
/// # Errors
/// `options` cannot be compiled, or a layer is one that no kernel serves.
pub fn resolve_auto(
    network: &Arc<Network>,
    options: PlanOptions,
    isa: Isa,
) -> Result<PlanOptions, ScheduleError> {
    if options.strategy != Strategy::Auto {
        return Ok(options);
    }
    let simulator = SimulatorOptions::new(options.platform);
    let candidates = compare_strategies(network, &options, &simulator, isa)?;
    let best = candidates.into_iter().next().map_or(Strategy::Auto, |best| best.strategy);
    Ok(PlanOptions { strategy: best, ..options })
}
