//! The figures of one network at one rate, over all rounds.

use serde_json::{Value, json};

use super::Heat;
use super::sides::Run;
use crate::race::turns::Spread;

/// One round at one rate: both sides, alone and on all hosts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Round {
    pub(super) own: Side,
    pub(super) peer: Side,
}

/// One side's runs of a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Side {
    pub(super) alone: Run,
    pub(super) on_all: Run,
}

impl Side {
    fn speed_up(&self) -> f64 {
        self.on_all.per_s / self.alone.per_s
    }
}

/// The row of a table.
pub(super) fn row(heat: Heat<'_>, rate: &str, strategy: &str, rounds: &[Round]) -> Value {
    let spread = |figure: &dyn Fn(&Round) -> f64| {
        let Spread { median, min, max } = Spread::of(rounds.iter().map(figure));
        json!({ "median": median, "min": min, "max": max })
    };
    let side = |side: &dyn Fn(&Round) -> Side| {
        json!({
            "per_s_alone": spread(&|round| side(round).alone.per_s),
            "per_s": spread(&|round| side(round).on_all.per_s),
            "speed_up": spread(&|round| side(round).speed_up()),
            "exposed": spread(&|round| side(round).on_all.exposed),
        })
    };
    json!({
        "net": heat.net,
        "batch_per_rank": heat.batch,
        "rate": rate,
        "strategy": strategy,
        "rounds": rounds.len(),
        "own": side(&|round| round.own),
        "peer": side(&|round| round.peer),
        "ratio": spread(&|round| round.own.on_all.per_s / round.peer.on_all.per_s),
    })
}

pub(super) const HEADER: &str = "                            samples/s of one rank, of all            speed-up over own one rank                   samples/s        exposed\n\
     network   a rank rate      Lockstep              DDP               Lockstep            DDP                  over DDP's       Lockstep     DDP";

/// A row for people.
pub(super) fn line(row: &Value) -> String {
    let text = |key: &str| row[key].as_str().unwrap_or("?").to_owned();
    let median = |side: &str, key: &str| row[side][key]["median"].as_f64().unwrap_or(f64::NAN);
    let ranged = |spread: &Value| {
        let figure = |key: &str| spread[key].as_f64().unwrap_or(f64::NAN);
        format!("{:.2} ({:.2} - {:.2})", figure("median"), figure("min"), figure("max"))
    };
    let rates =
        |side: &str| format!("{:.1}, {:.1}", median(side, "per_s_alone"), median(side, "per_s"));
    format!(
        "{:<9} {:>6} {:<8} {:>17} {:>17}   {:<20}{:<20}{:<20} {:>5.1} % {:>5.1} %",
        text("net"),
        row["batch_per_rank"].as_u64().unwrap_or(0),
        text("rate"),
        rates("own"),
        rates("peer"),
        ranged(&row["own"]["speed_up"]),
        ranged(&row["peer"]["speed_up"]),
        ranged(&row["ratio"]),
        100.0 * median("own", "exposed"),
        100.0 * median("peer", "exposed"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_holds_speed_ups_of_each_side_over_itself_and_the_ratio_of_both() {
        let side = |alone, on_all, exposed| Side {
            alone: Run { per_s: alone, exposed: 0.0 },
            on_all: Run { per_s: on_all, exposed },
        };
        // Numbers whose quotients are exact.
        let rounds = [
            Round { own: side(16.0, 24.0, 0.02), peer: side(8.0, 8.0, 0.4) },
            Round { own: side(16.0, 32.0, 0.01), peer: side(8.0, 16.0, 0.3) },
            Round { own: side(16.0, 30.0, 0.04), peer: side(8.0, 12.0, 0.5) },
        ];
        let row = row(Heat { net: "alexnet", batch: 32 }, "1gbit", "auto", &rounds);
        assert_eq!(row["own"]["speed_up"], json!({ "median": 1.875, "min": 1.5, "max": 2.0 }));
        assert_eq!(row["peer"]["speed_up"], json!({ "median": 1.5, "min": 1.0, "max": 2.0 }));
        assert_eq!(
            line(&row),
            "alexnet       32 1gbit           16.0, 30.0         8.0, 12.0   1.88 (1.50 - 2.00)  1.50 (1.00 - 2.00)  \
             2.50 (2.00 - 3.00)     2.0 %  40.0 %"
        );
    }
}
