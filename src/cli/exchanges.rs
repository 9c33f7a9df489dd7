//! The exchanges of a step in one line: how long they take alone, and how long in the steps.

use lockstep::ExchangeTimes;
use serde::Serialize;

/// The exchanges of a step on one rank, one after another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct ExchangeSum {
    /// How many.
    pub(super) exchanges: usize,
    /// Payload bytes that the rank sends.
    pub(super) bytes_sent: u64,
    /// Alone, before the first step.
    pub(super) alone_ms: f64,
    /// In the steps: from the start of each until it is complete, other ranks' delays included.
    pub(super) served_ms: f64,
}

impl ExchangeSum {
    pub(super) fn of(exchanges: &[ExchangeTimes]) -> Self {
        let ms = |time: std::time::Duration| 1e3 * time.as_secs_f64();
        Self {
            exchanges: exchanges.len(),
            bytes_sent: exchanges.iter().map(|exchange| exchange.bytes_sent).sum(),
            alone_ms: exchanges.iter().map(|exchange| ms(exchange.alone)).sum(),
            served_ms: exchanges.iter().map(|exchange| ms(exchange.mean())).sum(),
        }
    }

    /// For people.
    pub(super) fn line(&self) -> String {
        format!(
            "rank 0's {} exchanges a step send {:.3} MB; {:.2} ms alone before the first step, {:.2} ms in the steps",
            self.exchanges,
            self.bytes_sent as f64 / 1e6,
            self.alone_ms,
            self.served_ms
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn means_add_up() {
        let exchange = |alone, served| ExchangeTimes {
            name: String::new(),
            bytes_sent: 500_000,
            alone: Duration::from_micros(alone),
            times: 4,
            served: Duration::from_micros(served),
        };
        let sum = ExchangeSum::of(&[exchange(300, 4_000), exchange(1_200, 8_000)]);
        assert_eq!(
            sum.line(),
            "rank 0's 2 exchanges a step send 1.000 MB; 1.50 ms alone before the first step, 3.00 ms in the steps"
        );
    }
}
