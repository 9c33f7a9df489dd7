//! Where the workers' time goes: shares by kind of work, and times of single tasks.

use lockstep::graph::{LayerKind, Network};
use lockstep::traces::{TallyReport, TaskTime, pass};
use serde::Serialize;

/// Shares of the workers' time; they add up to one.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub(super) struct Shares {
    /// All passes of convolutions.
    pub(super) convolution: f64,
    /// All passes of linear layers.
    pub(super) linear: f64,
    /// All other layers.
    pub(super) element_wise: f64,
    /// The optimizer.
    pub(super) update: f64,
    /// Waiting while an exchange with other ranks was under way.
    pub(super) exposed_communication: f64,
    /// Waiting otherwise.
    pub(super) idle: f64,
}

/// One task's time in a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct TaskRow {
    pub(super) task: String,
    pub(super) layer: String,
    pub(super) pass: String,
    /// Time of all its blocks on all workers, a step.
    pub(super) ms: f64,
    /// Of all workers' time.
    pub(super) share: f64,
    pub(super) blocks: f64,
    /// On one core.
    pub(super) gflops: f64,
    /// Of one core's peak.
    pub(super) peak_fraction: f64,
    /// On one core, each operand counted once.
    pub(super) gbytes_per_s: f64,
}

impl Shares {
    /// Shares of `workers` workers.
    pub(super) fn new(report: &TallyReport, network: &Network, workers: usize) -> Self {
        let all = report.elapsed.as_secs_f64() * workers as f64;
        let mut shares = Self::default();
        for task in &report.tasks {
            let share = task.busy.as_secs_f64() / all;
            *shares.of(task, network) += share;
        }
        let exchanging = report.exchanging.as_secs_f64() * workers as f64;
        let exposed = exchanging - report.busy_beside_exchanges.as_secs_f64();
        let idle = (1.0 - report.busy.as_secs_f64() / all).max(0.0);
        shares.exposed_communication = (exposed / all).clamp(0.0, idle);
        shares.idle = idle - shares.exposed_communication;
        shares
    }

    fn of(&mut self, task: &TaskTime, network: &Network) -> &mut f64 {
        if task.pass == pass::UPDATE {
            return &mut self.update;
        }
        match network.layers()[task.layer_index].kind {
            LayerKind::Conv2d(_) => &mut self.convolution,
            LayerKind::Linear(_) => &mut self.linear,
            _ => &mut self.element_wise,
        }
    }

    /// For people.
    pub(super) fn line(&self) -> String {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        format!(
            "workers' time: convolution {}, linear {}, element-wise {}, update {}, idle {}, exposed communication {}",
            percent(self.convolution),
            percent(self.linear),
            percent(self.element_wise),
            percent(self.update),
            percent(self.idle),
            percent(self.exposed_communication),
        )
    }
}

impl TaskRow {
    pub(super) const HEADER: &str = "task                                          ms a step    share   blocks   GFLOP/s  of peak    GB/s   (of one core)";

    /// The tasks of a report over `steps` steps, the longest first; `peak` is one core's.
    pub(super) fn all(report: &TallyReport, steps: u64, workers: usize, peak: f64) -> Vec<Self> {
        let all = report.elapsed.as_secs_f64() * workers as f64;
        let row = |task: &TaskTime| {
            let seconds = task.busy.as_secs_f64();
            let gflops = task.flops / seconds / 1e9;
            Self {
                task: task.name.clone(),
                layer: task.layer.clone(),
                pass: task.pass.clone(),
                ms: 1e3 * seconds / steps as f64,
                share: seconds / all,
                blocks: task.blocks as f64 / steps as f64,
                gflops,
                peak_fraction: gflops / peak,
                gbytes_per_s: task.bytes / seconds / 1e9,
            }
        };
        report.tasks.iter().map(row).collect()
    }

    /// For people.
    pub(super) fn line(&self) -> String {
        format!(
            "{:<44} {:>10.3} {:>6.1} % {:>8.1} {:>9.1} {:>6.1} % {:>7.1}",
            self.task,
            self.ms,
            100.0 * self.share,
            self.blocks,
            self.gflops,
            100.0 * self.peak_fraction,
            self.gbytes_per_s
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lockstep::graph::zoo;

    use super::*;

    fn task(network: &Network, layer: &str, pass: &str, ms: u64) -> TaskTime {
        let layer_index = network.find(layer).map_or(0, |layer| layer.id.index());
        TaskTime {
            name: format!("{layer}.{pass}"),
            layer: layer.to_owned(),
            layer_index,
            pass: pass.to_owned(),
            busy: Duration::from_millis(ms),
            blocks: 6,
            flops: 4e9,
            bytes: 1e9,
        }
    }

    fn report(network: &Network) -> TallyReport {
        let tasks = vec![
            task(network, "conv1", "forward", 40),
            task(network, "fc1", "backward_data", 20),
            task(network, "fc1", "update", 10),
            task(network, "pool1", "forward", 5),
        ];
        TallyReport {
            elapsed: Duration::from_millis(50),
            busy: Duration::from_millis(75),
            tasks,
            exchanging: Duration::from_millis(10),
            busy_beside_exchanges: Duration::from_millis(15),
        }
    }

    #[test]
    fn shares_add_up_to_one() {
        let network = zoo::lenet().expect("it is valid");
        let shares = Shares::new(&report(&network), &network, 2);
        let close = |got: f64, want: f64| assert!((got - want).abs() < 1e-12, "{got} {want}");
        close(shares.convolution, 0.4);
        close(shares.linear, 0.2);
        close(shares.update, 0.1);
        close(shares.element_wise, 0.05);
        // Two workers had 20 ms beside exchanges and worked in 15 of them.
        close(shares.exposed_communication, 0.05);
        close(shares.idle, 0.2);
    }

    #[test]
    fn a_task_is_rated_by_the_time_of_its_blocks() {
        let network = zoo::lenet().expect("it is valid");
        let rows = TaskRow::all(&report(&network), 2, 2, 200.0);
        let conv = &rows[0];
        assert!((conv.share - 0.4).abs() < 1e-12, "{conv:?}");
        assert_eq!((conv.ms, conv.blocks), (20.0, 3.0));
        assert_eq!((conv.gflops, conv.peak_fraction, conv.gbytes_per_s), (100.0, 0.5, 25.0));
    }
}
