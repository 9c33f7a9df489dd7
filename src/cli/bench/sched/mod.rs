//! `lockstep bench sched`: what it costs to hand blocks and tasks to workers, beside rayon and a plain loop over deques.
//!
//! The job is a chain of tasks: each is a number of equal blocks and may begin when all blocks of the one before are done.
//! Lockstep runs it through its executor, as the tasks of a network whose layers follow one another.

mod chain;
mod peers;

use std::hint::spin_loop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use lockstep::RunError;
use lockstep::scheduler::Cores;
use serde::Serialize;

use self::chain::{Chain, OTHER_TASKS};
use self::peers::{RayonTask, deque_chain, rayon_chain};
use super::rows::write_json;
use super::{Common, median};
use crate::cli::{at_least_one, bad_flag};

/// Arguments of `lockstep bench sched`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Compute threads [default: by cores]
    #[arg(long, value_name = "W")]
    workers: Option<usize>,
    /// Tasks of a chain
    #[arg(long, default_value_t = 64, value_name = "T")]
    tasks: usize,
    /// Chains that are run one after another and timed together
    #[arg(long, default_value_t = 20, value_name = "C")]
    chains: usize,
    /// Microseconds of work in a block, where blocks do work
    #[arg(long, default_value_t = 50.0, value_name = "US")]
    block_us: f64,
    #[command(flatten)]
    common: Common,
}

/// One way of sharing one kind of work out.
#[derive(Debug, Serialize)]
struct Row {
    system: &'static str,
    /// What is looked for: the cost of a `block`, of a `task`, or how well `work` is shared.
    case: &'static str,
    workers: usize,
    /// Blocks of a task.
    blocks: usize,
    /// Tasks that were timed together.
    tasks: usize,
    /// Work in a block.
    block_us: f64,
    /// What all workers spent beyond the work, for each block.
    ns_per_block: f64,
    /// What passed beyond the work, for each task.
    ns_per_task: f64,
    /// Work done, of what the workers could have done; 0 where there was none.
    efficiency: f64,
}

impl Row {
    const HEADER: &str =
        "system       case   blocks/task  block us   ns/block    ns/task   of perfect";

    /// For people.
    fn line(&self) -> String {
        format!(
            "{:<12} {:<6} {:>11} {:>9.1} {:>10.1} {:>10.1} {:>10.1} %",
            self.system,
            self.case,
            self.blocks,
            self.block_us,
            self.ns_per_block,
            self.ns_per_task,
            100.0 * self.efficiency
        )
    }
}

/// What is looked for: the cost of a block, that of a task, or how well workers share work.
struct Case {
    name: &'static str,
    blocks_per_task: usize,
    /// Of each block.
    work: Duration,
    /// How many times as many chains as were asked for: tasks of nothing are soon done.
    repeated: usize,
}

/// Who runs the chain; `rayon` is a parallel iterator over each task's blocks, `rayon-scope` a scope with a spawn a block.
const SYSTEMS: [&str; 4] = ["lockstep", "rayon", "rayon-scope", "deque"];

/// A chain of tasks of equal blocks.
struct Job {
    workers: usize,
    tasks: usize,
    blocks_per_task: usize,
    /// Chains, one after another.
    chains: usize,
    block: Arc<dyn Fn() + Send + Sync>,
}

impl Job {
    /// What `seconds` for all chains mean.
    fn row(&self, system: &'static str, case: &'static str, work: Duration, seconds: f64) -> Row {
        let tasks = self.tasks * self.chains;
        let (n_workers, n_blocks) = (self.workers as f64, (tasks * self.blocks_per_task) as f64);
        let perfect = work.as_secs_f64() * n_blocks / n_workers;
        Row {
            system,
            case,
            workers: self.workers,
            blocks: self.blocks_per_task,
            tasks,
            block_us: work.as_secs_f64() * 1e6,
            ns_per_block: (seconds - perfect) * n_workers / n_blocks * 1e9,
            ns_per_task: (seconds - perfect) / tasks as f64 * 1e9,
            efficiency: perfect / seconds,
        }
    }
}

/// Measures.
pub(super) fn run(args: &Args) -> Result<(), RunError> {
    at_least_one(&[
        ("--workers", args.workers),
        ("--tasks", Some(args.tasks)),
        ("--chains", Some(args.chains)),
        ("--runs", Some(args.common.runs)),
    ])?;
    if args.tasks <= OTHER_TASKS {
        return Err(bad_flag("--tasks", &args.tasks, "must be at least 5: a network has as many"));
    }
    let workers = args.workers.unwrap_or_else(|| Cores::detect().default_workers(1, false));
    let work = Duration::from_nanos((args.block_us.max(0.0) * 1e3) as u64);
    let case =
        |name, blocks_per_task, work, repeated| Case { name, blocks_per_task, work, repeated };
    let cases = [
        case("block", 1000, Duration::ZERO, 1),
        case("task", 1, Duration::ZERO, 100),
        case("work", 20, work, 1),
    ];
    say!("{workers} worker(s), chains of {} tasks", args.tasks);
    say!("{}", Row::HEADER);
    let mut rows = Vec::new();
    for Case { name: case, blocks_per_task, work, repeated } in cases {
        let block: Arc<dyn Fn() + Send + Sync> =
            if work.is_zero() { Arc::new(|| ()) } else { Arc::new(move || spin(work)) };
        let (tasks, chains) = (args.tasks, args.chains * repeated);
        let job = Job { workers, tasks, blocks_per_task, chains, block };
        let mut lockstep = Chain::new(&job)?;
        // By turns, so that what else the machine does meets all alike.
        let mut seconds: [Vec<f64>; SYSTEMS.len()] = Default::default();
        for _ in 0..args.common.runs {
            seconds[0].push(lockstep.run(&job)?);
            seconds[1].push(rayon_chain(&job, RayonTask::Iterator));
            seconds[2].push(rayon_chain(&job, RayonTask::Scope));
            seconds[3].push(deque_chain(&job));
        }
        for (system, seconds) in SYSTEMS.into_iter().zip(&mut seconds) {
            let row = job.row(system, case, work, median(seconds));
            say!("{}", row.line());
            rows.push(row);
        }
    }
    write_json(args.common.json.as_deref(), &rows)
}

/// Keeps a core busy.
fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        spin_loop();
    }
}
