//! The race's result, for people.

use super::Epoch;
use crate::race::turns::Spread;

/// A line on one run of each.
pub(super) fn run_line(run: usize, own: &[Epoch], peer: &[Epoch]) -> String {
    format!(
        "run {run}: lockstep {}, PyTorch {}; PyTorch / lockstep {:.2}",
        side(own),
        side(peer),
        ratio(own, peer)
    )
}

/// Median and spread over all runs.
pub(super) fn summary(runs: &[(Vec<Epoch>, Vec<Epoch>)]) -> String {
    let ratio = Spread::of(runs.iter().map(|(own, peer)| ratio(own, peer)));
    format!(
        "epoch time, PyTorch / lockstep: median {:.2} of {} runs, {:.2} to {:.2}",
        ratio.median,
        runs.len(),
        ratio.min,
        ratio.max
    )
}

fn side(epochs: &[Epoch]) -> String {
    let top1 = epochs.last().map_or(f64::NAN, |epoch| epoch.top1);
    format!("{:.3} s an epoch, top-1 {:.2} %", epoch_seconds(epochs), 100.0 * top1)
}

fn ratio(own: &[Epoch], peer: &[Epoch]) -> f64 {
    epoch_seconds(peer) / epoch_seconds(own)
}

/// The median epoch: the first also warms up.
fn epoch_seconds(epochs: &[Epoch]) -> f64 {
    Spread::of(epochs.iter().map(|epoch| epoch.seconds)).median
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(seconds: &[f64]) -> Vec<Epoch> {
        seconds.iter().map(|&seconds| Epoch { seconds, top1: 0.99 }).collect()
    }

    #[test]
    fn a_run_is_judged_by_its_median_epoch() {
        let line = run_line(1, &epochs(&[9.0, 2.0, 2.5]), &epochs(&[4.0, 6.0]));
        assert_eq!(
            line,
            "run 1: lockstep 2.500 s an epoch, top-1 99.00 %, PyTorch 5.000 s an epoch, top-1 99.00 %; \
             PyTorch / lockstep 2.00"
        );
    }

    #[test]
    fn the_summary_gives_median_and_spread() {
        let run = |own: f64, peer: f64| (epochs(&[own]), epochs(&[peer]));
        let runs = [run(1.0, 2.0), run(2.0, 3.0), run(1.0, 3.0)];
        assert_eq!(
            summary(&runs),
            "epoch time, PyTorch / lockstep: median 2.00 of 3 runs, 1.50 to 3.00"
        );
    }
}
