//! What this machine's cores can do at most, all that a measurement uses at once: rates of arithmetic and of memory.

use std::thread;
use std::time::Duration;

use lockstep::ops::{Isa, peak};

use super::median;

/// Elements of each of a triad's three arrays: 256 MB, beyond most caches.
const TRIAD_LEN: usize = 64 << 20;

/// How long the triad is measured: several times through its arrays.
const TRIAD_TIME: Duration = Duration::from_millis(800);

/// Samples of a fed tile.
const FED_SAMPLES: usize = 7;

/// GFLOP/s of independent FMAs on `cores` threads at once, measured for `time`.
pub(super) fn peak_gflops(isa: Isa, cores: usize, time: Duration) -> f64 {
    on_all(cores, || peak::gflops(isa, time))
}

/// What a register tile fed from the first-level cache reaches on `cores` threads at once, as a fraction of the peak: the median
/// of samples taken by turns.
pub(super) fn fed_fraction(isa: Isa, cores: usize) -> f64 {
    let fed = || on_all(cores, || peak::fed_gflops(isa, Peak::SAMPLE));
    let mut fractions: Vec<f64> =
        (0..FED_SAMPLES).map(|_| fed() / peak_gflops(isa, cores, Peak::SAMPLE)).collect();
    median(&mut fractions)
}

/// GB/s of the triad on `cores` threads at once.
pub(super) fn triad_gbytes(isa: Isa, cores: usize) -> f64 {
    on_all(cores, || peak::triad_gbytes(isa, TRIAD_LEN, TRIAD_TIME))
}

/// The peak over a whole measurement: clocks drift, so it is taken again and again, and the median counts.
#[derive(Debug)]
pub(super) struct Peak {
    isa: Isa,
    cores: usize,
    samples: Vec<f64>,
}

impl Peak {
    /// How long one sample takes.
    const SAMPLE: Duration = Duration::from_millis(30);

    pub(super) fn new(isa: Isa, cores: usize) -> Self {
        Self { isa, cores, samples: Vec::new() }
    }

    /// Takes a sample, and gives it.
    pub(super) fn sample(&mut self) -> f64 {
        let sample = peak_gflops(self.isa, self.cores, Self::SAMPLE);
        self.samples.push(sample);
        sample
    }

    /// The median of all samples.
    pub(super) fn gflops(&self) -> f64 {
        median(&mut self.samples.clone())
    }
}

/// The sum of a rate over `cores` threads that measure at the same time.
fn on_all(cores: usize, rate: impl Fn() -> f64 + Sync) -> f64 {
    thread::scope(|scope| {
        let others: Vec<_> = (1..cores).map(|_| scope.spawn(&rate)).collect();
        let own = rate();
        own + others.into_iter().map(|other| other.join().expect("it only computes")).sum::<f64>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_the_median_of_its_samples() {
        let mut peak = Peak::new(Isa::detect(), 2);
        let mut samples: Vec<f64> = (0..3).map(|_| peak.sample()).collect();
        samples.sort_by(f64::total_cmp);
        assert_eq!(peak.gflops(), samples[1]);
        assert!(samples[0] > 0.0);
    }

    #[test]
    fn rates_of_threads_add_up() {
        assert_eq!(on_all(3, || 1.5), 4.5);
    }
}
