//! Jobs that start and end again and again, and a rank that stands still for a while: in process, and under a real `mpirun`.
//!
//! `LOCKSTEP_MPIRUN` names the launcher, as for `tests/mpi.rs`; the tests under it need the feature `mpi`. `cargo xtask soak`
//! starts hundreds of jobs where this starts ten.
#![expect(clippy::unwrap_used, reason = "in tests, helpers included, a panic is the report")]

use std::process::{Command, Output, Stdio};

/// Seconds; no job here may take longer, a hang is a failure.
const LIMIT: &str = "120";

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Ten jobs of one step on two to five ranks, each ended by its time limit if it hangs.
#[track_caller]
fn ten_starts_end_cleanly(job: impl Fn(usize, &[&str]) -> Command) {
    let args = ["train", "--data=synthetic", "--batch=13", "--steps=1", "--no-eval", "--workers=1"];
    for (start, ranks) in (1..=10).zip((2..=5).cycle()) {
        let output = job(ranks, &args).output().unwrap();
        let text = text(&output);
        let clean = output.status.success() && !text.contains("error");
        assert!(clean, "start {start}, {ranks} ranks: {}\n{text}", output.status);
    }
}

#[test]
fn starts_in_process_end_cleanly() {
    ten_starts_end_cleanly(|ranks, args| {
        let mut command = Command::new("timeout");
        command.args([LIMIT, env!("CARGO_BIN_EXE_lockstep")]).args(args);
        command.arg(format!("--ranks={ranks}"));
        command
    });
}

/// `| head` closes the pipe after the first lines. The run goes on: its results are in files.
#[test]
fn a_run_whose_output_nobody_reads_ends_cleanly() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = folder.path().join("checkpoint");
    let mut command = Command::new("timeout");
    command.args([LIMIT, env!("CARGO_BIN_EXE_lockstep"), "train", "--data=synthetic"]);
    command.args(["--steps=3", "--no-eval", "--ranks=2", "--checkpoint"]).arg(&checkpoint);
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(run.stdout.take());
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{}", output.status, text(&output));
    assert!(!text(&output).contains("panicked"), "{}", text(&output));
    assert!(checkpoint.join("last/weights.safetensors").exists());
    for args in [&["graph"][..], &["plan", "--ranks=2"], &["info"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
        let command = command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut run = command.spawn().unwrap();
        drop(run.stdout.take());
        let output = run.wait_with_output().unwrap();
        assert!(output.status.success(), "{args:?} {}\n{}", output.status, text(&output));
    }
}

#[cfg(feature = "mpi")]
mod mpi {
    use std::fs;
    use std::process::Child;
    use std::time::{Duration, Instant};

    use super::*;

    fn launcher() -> String {
        std::env::var("LOCKSTEP_MPIRUN").unwrap_or_else(|_| "mpirun".to_owned())
    }

    /// `mpirun -n RANKS lockstep ARGS`.
    fn mpirun(ranks: usize, args: &[&str]) -> Command {
        let version = Command::new(launcher()).arg("--version").output().unwrap();
        let mut command = Command::new("timeout");
        command.args([LIMIT, &launcher()]);
        // MPICH's launcher is Hydra; it needs no leave for any of this.
        if !String::from_utf8_lossy(&version.stdout).contains("HYDRA") {
            command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
        }
        command.args(["-n", &ranks.to_string(), env!("CARGO_BIN_EXE_lockstep")]).args(args);
        command
    }

    #[test]
    fn starts_under_mpirun_end_cleanly() {
        ten_starts_end_cleanly(mpirun);
    }

    /// A running rank's process.
    #[derive(Debug, Clone, Copy)]
    struct Process {
        pid: u32,
        rank: usize,
    }

    impl Process {
        /// Ticks (10 ms) of all its threads on a core so far.
        fn cpu_ticks(self) -> u64 {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap();
            // The second field is a name in parentheses; user and system time are the 14th and 15th.
            let after_name = stat.rsplit_once(')').unwrap().1;
            let fields: Vec<&str> = after_name.split_whitespace().collect();
            fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum()
        }

        fn signal(self, signal: &str) {
            let sent = Command::new("kill").args([signal, &self.pid.to_string()]).status().unwrap();
            assert!(sent.success(), "{signal} to rank {}", self.rank);
        }
    }

    /// The ranks of a job whose command lines hold `mark`, in rank order.
    fn ranks_of(mark: &str) -> Vec<Process> {
        let found = Command::new("pgrep").args(["-f", mark]).output().unwrap();
        let mut ranks = Vec::new();
        for pid in String::from_utf8_lossy(&found.stdout).lines() {
            let Ok(name) = fs::read_to_string(format!("/proc/{pid}/comm")) else { continue };
            let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { continue };
            let variable = |name: &str| {
                let text = String::from_utf8_lossy(&environment).into_owned();
                let mut entries = text.split('\0').filter_map(|entry| entry.split_once('='));
                entries.find(|(known, _)| *known == name)?.1.parse::<usize>().ok()
            };
            // The launcher's own command line holds the mark as well.
            let rank = variable("OMPI_COMM_WORLD_RANK").or_else(|| variable("PMI_RANK"));
            if let (Some(rank), "lockstep") = (rank, name.trim_end()) {
                ranks.push(Process { pid: pid.parse().unwrap(), rank });
            }
        }
        ranks.sort_by_key(|process| process.rank);
        ranks
    }

    /// Ends the job if the test fails before it has ended.
    struct Job(Option<Child>);

    impl Drop for Job {
        fn drop(&mut self) {
            if let Some(child) = &mut self.0 {
                // `timeout` hands this on to the launcher, which ends the ranks.
                let _ = Command::new("kill").arg(child.id().to_string()).status();
                let _ = child.wait();
            }
        }
    }

    fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
        let began = Instant::now();
        while !reached() {
            assert!(began.elapsed() < Duration::from_secs(240), "{what} did not come");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[test]
    fn a_rank_that_stands_still_holds_the_others_up_without_work_for_their_cores() {
        let out = tempfile::tempdir().unwrap();
        let metrics = out.path().join("steps.jsonl");
        let mark = metrics.to_str().unwrap();
        // The exchanges come behind the steps.
        let is_step = |line: &&str| line.contains("\"kind\":\"step\"");
        let steps =
            || fs::read_to_string(&metrics).map_or(0, |t| t.lines().filter(is_step).count());
        let mut args = vec!["train", "--data=synthetic", "--batch=24", "--steps=500", "--no-eval"];
        args.extend(["--workers=1", "--metrics", mark]);
        let child = mpirun(3, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut job = Job(Some(child));
        wait_until("the tenth step", || steps() >= 10);
        let ranks = ranks_of(mark);
        assert_eq!(ranks.iter().map(|process| process.rank).collect::<Vec<_>>(), [0, 1, 2]);

        ranks[1].signal("-STOP");
        // The others finish what they can without it.
        std::thread::sleep(Duration::from_secs(1));
        let before = [0, 2].map(|rank| ranks[rank].cpu_ticks());
        let began = Instant::now();
        std::thread::sleep(Duration::from_secs(5));
        let elapsed = began.elapsed().as_secs_f64();
        let after = [0, 2].map(|rank| ranks[rank].cpu_ticks());
        ranks[1].signal("-CONT");

        for (rank, (before, after)) in [0, 2].into_iter().zip(before.into_iter().zip(after)) {
            let share = (after - before) as f64 / 100.0 / elapsed;
            assert!(share < 0.3, "rank {rank} used {:.0} % of a core waiting", 100.0 * share);
        }
        let output = job.0.take().unwrap().wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        assert_eq!(steps(), 500);
    }
}
