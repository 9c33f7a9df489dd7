//! A check's report as a table for people.

use std::fmt;

use super::{BusyShare, CheckReport, StepOverlap};

/// How many steps of a rank are printed; the first ones, as the others tend to look alike.
const MAX_STEPS: usize = 20;

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} slices and {} exchanges on {} threads of {} ranks over {:.3} ms",
            self.path.display(),
            self.n_slices,
            self.n_exchanges,
            self.n_threads,
            self.n_processes,
            milliseconds(self.span_ns)
        )?;
        self.fmt_soundness(f)?;
        self.fmt_steps(f)?;
        self.fmt_busy(f)
    }
}

impl CheckReport {
    fn fmt_soundness(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ok() {
            return writeln!(
                f,
                "sound: valid JSON, every thread named, slices nest on every thread, no negative times"
            );
        }
        writeln!(f, "not sound: {} problems", self.n_problems)?;
        for problem in &self.problems {
            writeln!(f, "  {problem}")?;
        }
        let unlisted = self.n_problems - self.problems.len();
        if unlisted > 0 {
            writeln!(f, "  and {unlisted} more")?;
        }
        Ok(())
    }

    fn fmt_steps(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            return writeln!(f, "no tasks of any step");
        }
        writeln!(
            f,
            "first part-reduce starts before the last backward task ends: {}",
            yes(self.reduces_overlap_backward())
        )?;
        writeln!(
            f,
            "a part-broadcast is open while an earlier layer's next forward runs: {}",
            yes(self.broadcasts_overlap_forward())
        )?;
        writeln!(
            f,
            "{:>4}  {:>6}  {:>16}  part-broadcast under next forward",
            "rank", "step", "reduce lead"
        )?;
        for steps in self.steps.chunk_by(|a, b| a.rank == b.rank) {
            for step in &steps[..steps.len().min(MAX_STEPS)] {
                writeln!(f, "{step}")?;
            }
            if steps.len() > MAX_STEPS {
                writeln!(f, "{:>4}  .. and {} more steps", steps[0].rank, steps.len() - MAX_STEPS)?;
            }
        }
        Ok(())
    }

    fn fmt_busy(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for workers in self.busy.chunk_by(|a, b| a.rank == b.rank) {
            let mean = workers.iter().map(BusyShare::share).sum::<f64>() / workers.len() as f64;
            write!(f, "rank {} workers busy {:.1} %:", workers[0].rank, 100.0 * mean)?;
            for worker in workers {
                write!(f, "  {} {:.1} %", worker.worker, 100.0 * worker.share())?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for StepOverlap {
    /// One line of the report's table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>4}  {:>6}  ", self.rank, self.step)?;
        match self.reduce_lead_ns {
            Some(lead) => write!(f, "{:>13.3} ms  ", milliseconds(lead))?,
            None => write!(f, "{:>16}  ", "-")?,
        }
        match &self.broadcast_cover {
            Some(cover) => write!(
                f,
                "{:.3} ms, longest {} over {}",
                milliseconds(cover.total_ns),
                cover.broadcast_layer,
                cover.forward_layer
            ),
            None => f.write_str("-"),
        }
    }
}

fn milliseconds(ns: i64) -> f64 {
    ns as f64 / 1e6
}

fn yes(holds: bool) -> &'static str {
    if holds { "yes" } else { "no" }
}
