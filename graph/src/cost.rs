//! Prices of tasks, and the machine numbers that turn a price into seconds.

use serde::{Deserialize, Serialize};

/// What a task costs one rank in one iteration, for the rank with the most samples.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Price {
    /// Floating-point operations; a multiply-add counts two.
    pub flops: f64,
    /// Bytes read from and written to memory, each operand once.
    pub bytes: f64,
    /// Bytes sent to other ranks.
    pub bytes_sent: f64,
    /// Messages sent to other ranks.
    pub messages: f64,
}

impl Price {
    /// A computation.
    #[must_use]
    pub fn compute(flops: f64, bytes: f64) -> Self {
        Self { flops, bytes, ..Self::default() }
    }

    /// One of so many equal parts of the work; each part sends as many messages as the whole.
    #[must_use]
    pub fn part(self, parts: usize) -> Self {
        let parts = parts as f64;
        Self {
            flops: self.flops / parts,
            bytes: self.bytes / parts,
            bytes_sent: self.bytes_sent / parts,
            ..self
        }
    }

    /// An exchange.
    #[must_use]
    pub fn exchange(bytes_sent: f64, messages: f64) -> Self {
        Self { bytes_sent, messages, ..Self::default() }
    }
}

/// The numbers of one machine and its network that prices are weighed with.
///
/// They need not be exact: they order tasks and fill the `seconds` column of tables. The defaults are a
/// two-core server on gigabit Ethernet.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Platform {
    /// Floating-point operations a second that one rank's workers reach together.
    pub flops_per_s: f64,
    /// Bytes a second between memory and one rank's workers.
    pub bytes_per_s: f64,
    /// Bytes a second that one rank can send.
    pub link_bytes_per_s: f64,
    /// Seconds a message takes whatever its size.
    pub link_latency_s: f64,
    /// Part by which the bytes of a message take longer for each further rank that sends to the same one at the same time.
    pub link_congestion: f64,
}

impl Default for Platform {
    fn default() -> Self {
        Self {
            flops_per_s: 100e9,
            bytes_per_s: 20e9,
            link_bytes_per_s: 125e6,
            link_latency_s: 50e-6,
            link_congestion: 0.0,
        }
    }
}

impl Platform {
    /// Seconds a task of this price takes: the slower of arithmetic and memory, plus the network.
    #[must_use]
    pub fn seconds(&self, price: &Price) -> f64 {
        let compute = (price.flops / self.flops_per_s).max(price.bytes / self.bytes_per_s);
        let network =
            price.messages * self.link_latency_s + price.bytes_sent / self.link_bytes_per_s;
        compute + network
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_of_arithmetic_and_memory_counts() {
        let platform = Platform {
            flops_per_s: 100.0,
            bytes_per_s: 10.0,
            link_bytes_per_s: 5.0,
            link_latency_s: 2.0,
            link_congestion: 0.0,
        };
        let close = |got: f64, want: f64| assert!((got - want).abs() < 1e-12, "{got} {want}");
        close(platform.seconds(&Price::compute(200.0, 10.0)), 2.0);
        close(platform.seconds(&Price::compute(200.0, 40.0)), 4.0);
        close(platform.seconds(&Price::exchange(10.0, 3.0)), 8.0);
    }
}
