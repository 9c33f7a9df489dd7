//! What an exchange costs by each algorithm on a link, and which algorithm is best.

use serde::{Deserialize, Serialize};

/// How the strips of a part-reduce or part-broadcast travel between its members. All move the same bytes.
///
/// `Direct` and `Halving` sum in the same order: a balanced tree over the members. `Ring` sums in another one, different for each
/// strip. Each is the same on every run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Algorithm {
    /// Everybody to everybody at once: `n - 1` messages and one latency.
    #[default]
    Direct,
    /// Each to the next, `n - 1` stages: no two members ever send to the same one.
    Ring,
    /// Recursive halving (part-reduce) and doubling (part-broadcast): log2 n stages; only a power of two members.
    Halving,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Algorithm; 3] = [Algorithm::Direct, Algorithm::Ring, Algorithm::Halving];

    /// Its name in options and results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Direct => "direct",
            Algorithm::Ring => "ring",
            Algorithm::Halving => "halving",
        }
    }

    /// The algorithm that is used among `members`: this one, or `Direct` where halving finds no power of two.
    #[must_use]
    pub fn among(self, members: usize) -> Algorithm {
        if self == Algorithm::Halving && !members.is_power_of_two() {
            return Algorithm::Direct;
        }
        self
    }

    /// The fastest algorithm for a part-reduce of a tensor of `bytes` among `members`; of equals the first of [`Algorithm::ALL`].
    ///
    /// ```
    /// use lockstep_comm::{Algorithm, LinkModel};
    ///
    /// let link = LinkModel { latency: 100e-6, seconds_per_byte: 8e-9, seconds_per_added_byte: 1e-10, congestion: 0.0 };
    /// assert_eq!(Algorithm::choose(4 << 10, 16, &link), Algorithm::Halving);
    /// assert_eq!(Algorithm::choose(1 << 30, 16, &link), Algorithm::Direct);
    /// let crowded = LinkModel { congestion: 0.1, ..link };
    /// assert_eq!(Algorithm::choose(1 << 30, 15, &crowded), Algorithm::Ring);
    /// ```
    #[must_use]
    pub fn choose(bytes: u64, members: usize, link: &LinkModel) -> Algorithm {
        let usable =
            Algorithm::ALL.into_iter().filter(|algorithm| algorithm.among(members) == *algorithm);
        let cost = |algorithm: &Algorithm| link.part_reduce_seconds(*algorithm, bytes, members);
        usable.min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or_default()
    }
}

/// A full-duplex link between any two ranks, as `lockstep bench comm` fits it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkModel {
    /// Seconds that a message costs whatever its length (alpha).
    pub latency: f64,
    /// Seconds that a byte takes (beta).
    pub seconds_per_byte: f64,
    /// Seconds to add a byte that has come to a sum (gamma).
    pub seconds_per_added_byte: f64,
    /// Part by which `seconds_per_byte` grows for each further member that sends to the same one at the same time.
    pub congestion: f64,
}

impl Default for LinkModel {
    /// A link of 1 Gbit/s between two hosts near each other: 50 us, 125 MB/s, 9 GB/s added, no congestion.
    fn default() -> LinkModel {
        LinkModel {
            latency: 50e-6,
            seconds_per_byte: 1.0 / 125e6,
            seconds_per_added_byte: 1.0 / 9e9,
            congestion: 0.0,
        }
    }
}

impl LinkModel {
    /// Seconds of a part-reduce of `bytes` among `members`. With n members and volume v = (n - 1) / n * bytes:
    ///
    /// | algorithm | latency | wire and sums |
    /// |---|---|---|
    /// | direct | (n - 1) alpha | v max(beta (1 + congestion (n - 2)), gamma): chunks are added while others travel |
    /// | ring | (n - 1) alpha | v (beta + gamma): a stage adds before the next sends |
    /// | halving | log2(n) alpha | v (beta + gamma) |
    #[must_use]
    pub fn part_reduce_seconds(&self, algorithm: Algorithm, bytes: u64, members: usize) -> f64 {
        let n = members.max(1) as f64;
        let volume = (n - 1.0) / n * bytes as f64;
        let LinkModel { latency, seconds_per_byte, seconds_per_added_byte, congestion } = *self;
        let one_by_one = volume * (seconds_per_byte + seconds_per_added_byte);
        match algorithm.among(members) {
            Algorithm::Direct => {
                let crowded = seconds_per_byte * (1.0 + congestion * (n - 2.0).max(0.0));
                (n - 1.0) * latency + volume * crowded.max(seconds_per_added_byte)
            }
            Algorithm::Ring => (n - 1.0) * latency + one_by_one,
            Algorithm::Halving => n.log2() * latency + one_by_one,
        }
    }

    /// Fits latency and bandwidth to (bytes of one message, seconds) by least squares of the relative errors, so that small
    /// messages count as much as large ones. `None`: fewer than two lengths.
    ///
    /// ```
    /// let times: Vec<(u64, f64)> = [1_000, 10_000, 1_000_000].map(|bytes| (bytes, 5e-5 + bytes as f64 * 1e-8)).to_vec();
    /// let (latency, seconds_per_byte) = lockstep_comm::LinkModel::fit(&times).unwrap();
    /// assert!((latency - 5e-5).abs() < 1e-9 && (seconds_per_byte - 1e-8).abs() < 1e-12);
    /// ```
    #[must_use]
    pub fn fit(times: &[(u64, f64)]) -> Option<(f64, f64)> {
        // Minimizes the sum of ((latency + bytes * slope - seconds) / seconds)^2: linear in both, weights 1 / seconds^2.
        let (mut w, mut wx, mut wxx, mut wy, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for &(bytes, seconds) in times.iter().filter(|(_, seconds)| *seconds > 0.0) {
            let (x, weight) = (bytes as f64, 1.0 / (seconds * seconds));
            w += weight;
            wx += weight * x;
            wxx += weight * x * x;
            wy += weight * seconds;
            wxy += weight * x * seconds;
        }
        let determinant = w * wxx - wx * wx;
        // Of one length alone the determinant is rounding error.
        (determinant > 1e-9 * w * wxx).then(|| {
            let slope = (w * wxy - wx * wy) / determinant;
            (((wy - slope * wx) / w).max(0.0), slope.max(0.0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: LinkModel = LinkModel {
        latency: 100e-6,
        seconds_per_byte: 8e-9,
        seconds_per_added_byte: 0.2e-9,
        congestion: 0.0,
    };

    #[test]
    fn small_tensors_are_halved_and_large_ones_go_directly() {
        assert_eq!(Algorithm::choose(1 << 10, 8, &SLOW), Algorithm::Halving);
        assert_eq!(Algorithm::choose(256 << 20, 8, &SLOW), Algorithm::Direct);
        assert_eq!(Algorithm::choose(1 << 10, 6, &SLOW), Algorithm::Direct);
        assert_eq!(Algorithm::choose(1 << 20, 2, &SLOW), Algorithm::Direct);
        assert_eq!(Algorithm::choose(1 << 20, 1, &SLOW), Algorithm::Direct);
    }

    #[test]
    fn where_senders_disturb_one_another_large_tensors_go_round() {
        let crowded = LinkModel { congestion: 0.05, ..SLOW };
        assert_eq!(Algorithm::choose(256 << 20, 7, &crowded), Algorithm::Ring);
        assert_eq!(Algorithm::choose(256 << 20, 2, &crowded), Algorithm::Direct);
    }

    #[test]
    fn the_wire_bounds_every_algorithm() {
        let wire = 0.75 * f64::from(1_u32 << 20) * SLOW.seconds_per_byte;
        for algorithm in Algorithm::ALL {
            let seconds = SLOW.part_reduce_seconds(algorithm, 1 << 20, 4);
            assert!(seconds >= wire && seconds < 1.3 * wire, "{algorithm:?}: {seconds} of {wire}");
        }
    }

    #[test]
    fn one_length_fits_no_line() {
        assert_eq!(LinkModel::fit(&[(1000, 1e-3), (1000, 1.1e-3)]), None);
        assert_eq!(LinkModel::fit(&[]), None);
    }
}
