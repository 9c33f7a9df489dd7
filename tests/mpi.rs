//! Jobs under a real `mpirun`: the losses of one rank, failures that end the whole job, refusals.
//!
//! Needs the features `mpi` and `faults`. `LOCKSTEP_MPIRUN` names the launcher (default `mpirun`), which must belong to the MPI
//! that the program was built with; `./test.sh` runs this file for Open MPI and for MPICH.
#![cfg(all(feature = "mpi", feature = "faults"))]
#![expect(clippy::unwrap_used, reason = "in tests, helpers included, a panic is the report")]

#[path = "support/small_mnist.rs"]
mod small_mnist;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// No job here may take longer; a hang is a failure.
const LIMIT: Duration = Duration::from_secs(120);

fn launcher() -> String {
    std::env::var("LOCKSTEP_MPIRUN").unwrap_or_else(|_| "mpirun".to_owned())
}

fn is_open_mpi() -> bool {
    let version = Command::new(launcher()).arg("--version").output().unwrap();
    // Open MPI 4 calls itself OpenRTE here under some names; MPICH's launcher is Hydra.
    !String::from_utf8_lossy(&version.stdout).contains("HYDRA")
}

/// `mpirun -n RANKS lockstep ARGS`, ended by `timeout` when it hangs.
fn mpirun(ranks: usize, environment: &[(&str, &str)], args: &[&str]) -> (Output, Duration) {
    let mut command = Command::new("timeout");
    command.arg(LIMIT.as_secs().to_string()).arg(launcher());
    if is_open_mpi() {
        command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
        for (name, _) in environment {
            command.args(["-x", name]);
        }
    }
    command.args(["-n", &ranks.to_string(), env!("CARGO_BIN_EXE_lockstep")]).args(args);
    command.envs(environment.iter().copied());
    let began = Instant::now();
    (command.output().unwrap(), began.elapsed())
}

fn data(train: usize, test: usize) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    small_mnist::write(folder.path(), train, test);
    let choice = format!("mnist:{}", folder.path().display());
    (folder, choice)
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Losses of the steps, and the last evaluation.
fn results(path: &Path) -> (Vec<f64>, Option<(f64, f64)>) {
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let loss = |line: &serde_json::Value| line["loss"].as_f64().unwrap();
    let steps = lines.iter().filter(|l| l["kind"] == "step").map(loss).collect();
    let mut evals = lines.iter().filter(|l| l["kind"] == "eval");
    (steps, evals.next_back().map(|line| (loss(line), line["top1"].as_f64().unwrap())))
}

fn train(ranks: usize, data: &str, more: &[&str]) -> (Vec<f64>, Option<(f64, f64)>) {
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("m.jsonl");
    let path = file.to_str().unwrap();
    let mut args = vec!["train", "--data", data, "--batch", "13", "--metrics", path];
    args.extend(more);
    let (output, _) = mpirun(ranks, &[], &args);
    assert!(output.status.success(), "{ranks} ranks: {}", text(&output));
    results(&file)
}

#[test]
fn any_number_of_ranks_gives_the_losses_and_the_score_of_one() {
    let (_folder, data) = data(101, 21);
    let (one, score) = train(1, &data, &["--epochs", "2"]);
    assert_eq!(one.len(), 16);
    for ranks in [2, 3, 4, 5] {
        let (several, several_score) = train(ranks, &data, &["--epochs", "2"]);
        assert_eq!(several.len(), one.len());
        for (step, (a, b)) in several.iter().zip(&one).take(10).enumerate() {
            assert!((a / b - 1.0).abs() < 1e-5, "{ranks} ranks, step {}: {a}, {b}", step + 1);
        }
        let ((loss, top1), (loss_1, top1_1)) = (several_score.unwrap(), score.unwrap());
        assert!((loss / loss_1 - 1.0).abs() < 1e-2 && (top1 - top1_1).abs() < 0.05);
    }
}

#[test]
fn the_bundled_mnist_on_four_ranks_follows_one_rank_and_the_in_process_ranks() {
    let common = ["train", "--steps", "50", "--no-eval", "--metrics"];
    let out = tempfile::tempdir().unwrap();
    let run = |name: &str, ranks: usize, more: &[&str]| {
        let file = out.path().join(name);
        let mut args = common.to_vec();
        args.push(file.to_str().unwrap());
        args.extend(more);
        let output = if ranks == 0 {
            Command::new(env!("CARGO_BIN_EXE_lockstep")).args(&args).output().unwrap()
        } else {
            mpirun(ranks, &[], &args).0
        };
        assert!(output.status.success(), "{}", text(&output));
        results(&file).0
    };
    let one = run("one", 1, &[]);
    let last = |losses: &[f64]| losses[40..].iter().sum::<f64>() / 10.0;
    for (name, ranks, more) in [("mpi", 4, &[][..]), ("local", 0, &["--ranks", "4"][..])] {
        let four = run(name, ranks, more);
        for (step, (a, b)) in four.iter().zip(&one).take(10).enumerate() {
            assert!((a / b - 1.0).abs() < 1e-5, "{name}, step {}: {a}, {b}", step + 1);
        }
        assert!((last(&four) / last(&one) - 1.0).abs() < 0.02, "{name}: {four:?} {one:?}");
    }
}

/// All networks, strategies and numbers of ranks: `cargo xtask agree`.
#[test]
fn every_strategy_gives_the_losses_of_one_rank() {
    for net in ["lenet", "small-resnet"] {
        let common = ["--net", net, "--steps", "10", "--no-eval", "--workers", "1", "--lr", "0.01"];
        let (one, _) = train(1, "synthetic", &common);
        assert_eq!(one.len(), 10);
        for (ranks, strategy) in
            [(2, "model"), (2, "auto"), (3, "model"), (4, "G=2"), (4, "auto"), (5, "data")]
        {
            let more = [&common[..], &["--strategy", strategy]].concat();
            let (several, _) = train(ranks, "synthetic", &more);
            assert_eq!(several.len(), one.len());
            for (step, (a, b)) in several.iter().zip(&one).enumerate() {
                let close = (a / b - 1.0).abs() < 1e-5;
                assert!(close, "{net}, {ranks} ranks, {strategy}, step {}: {a}, {b}", step + 1);
            }
        }
    }
}

/// A rank that fails takes the job down within ten seconds with its message and a non-zero code.
#[track_caller]
fn ends_with(ranks: usize, fault: &str, words: &[&str]) {
    let (_folder, data) = data(400, 21);
    let args = ["train", "--data", &data, "--batch", "8", "--epochs", "2000", "--no-eval"];
    let began = Instant::now();
    let (output, took) = mpirun(ranks, &[("LOCKSTEP_FAULT", fault)], &args);
    let text = text(&output);
    assert!(!output.status.success(), "{fault}: exit code 0\n{text}");
    assert!(took < Duration::from_secs(10), "{fault}: took {took:?}\n{text}");
    for word in words {
        assert!(text.contains(word), "{fault}: no {word:?} in\n{text}");
    }
    // A killed process may take a moment to go.
    while !Command::new("pgrep").args(["-f", &data]).output().unwrap().stdout.is_empty() {
        assert!(began.elapsed() < Duration::from_secs(15), "{fault}: processes left behind");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_panic_in_a_worker_ends_the_job_with_task_rank_and_step() {
    ends_with(3, "panic@rank=2,step=5,thread=worker", &["[rank 2]", "step 5", "on purpose"]);
}

#[test]
fn a_panic_in_the_communication_thread_ends_the_job() {
    ends_with(3, "panic@rank=1,step=5,thread=comm", &["rank 1", "on purpose"]);
}

#[test]
fn a_panic_in_a_loader_ends_the_job() {
    ends_with(2, "panic@rank=1,step=5,thread=loader", &["[rank 1]", "on purpose"]);
}

#[test]
fn a_process_that_dies_ends_the_job() {
    ends_with(3, "exit@rank=2,step=5,thread=worker", &[]);
}

#[test]
fn ranks_that_disagree_are_told_so_before_the_first_step() {
    let (_folder, data) = data(60, 21);
    let (_other, other) = self::data(61, 21);
    // Each rank sees its own folder under the same name: a link that its rank decides.
    let script = format!(
        "exec {} train --batch 8 --steps 3 --data $(test ${{PMI_RANK:-$OMPI_COMM_WORLD_RANK}} = 0 && echo {data} || echo {other})",
        env!("CARGO_BIN_EXE_lockstep")
    );
    let mut command = Command::new("timeout");
    command.arg(LIMIT.as_secs().to_string()).arg(launcher());
    if is_open_mpi() {
        command.args(["--allow-run-as-root", "--oversubscribe"]);
    }
    let output = command.args(["-n", "2", "sh", "-c", &script]).output().unwrap();
    let text = text(&output);
    assert!(!output.status.success());
    assert!(text.contains("training samples") || text.contains("training data"), "{text}");
    assert!(text.contains("60") && text.contains("61"), "{text}");
}

#[test]
fn a_trace_of_two_processes_is_merged_on_one_clock() {
    let (_folder, data) = data(200, 5);
    let out = tempfile::tempdir().unwrap();
    let trace = out.path().join("t.json");
    let path = trace.to_str().unwrap();
    let args = ["train", "--data", &data, "--steps", "8", "--no-eval", "--trace", path];
    let (output, _) = mpirun(2, &[], &args);
    assert!(output.status.success(), "{}", text(&output));
    let check = Command::new(env!("CARGO_BIN_EXE_lockstep"))
        .args(["trace", "check", path])
        .output()
        .unwrap();
    assert!(check.status.success(), "{}", text(&check));
}

#[test]
fn in_process_ranks_inside_an_mpi_job_are_refused() {
    let (output, _) = mpirun(2, &[], &["train", "--ranks", "2", "--steps", "1"]);
    assert!(!output.status.success());
    assert!(text(&output).contains("--ranks"), "{}", text(&output));
}

#[test]
fn the_rank_that_fails_leaves_a_whole_trace() {
    let (_folder, data) = data(400, 21);
    let out = tempfile::tempdir().unwrap();
    let trace = out.path().join("t.json");
    let args = [
        "train",
        "--data",
        &data,
        "--epochs",
        "2000",
        "--batch",
        "8",
        "--no-eval",
        "--trace",
        trace.to_str().unwrap(),
        "--trace-steps",
        "2..9",
    ];
    let fault = [("LOCKSTEP_FAULT", "panic@rank=1,step=5,thread=worker")];
    let (output, _) = mpirun(2, &fault, &args);
    assert!(!output.status.success());
    let file = fs::read(out.path().join("t.rank1.json")).unwrap();
    serde_json::from_slice::<serde_json::Value>(&file).unwrap();
}

#[test]
fn another_mpis_launcher_is_found_out() {
    let other = if is_open_mpi() { "mpirun.mpich" } else { "mpirun.openmpi" };
    let output = Command::new("timeout")
        .args([&LIMIT.as_secs().to_string(), other, "-n", "2", env!("CARGO_BIN_EXE_lockstep")])
        .args(["train", "--steps", "1"])
        .output()
        .unwrap();
    let text = text(&output);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("built against another MPI"), "{text}");
}

#[test]
fn a_network_is_measured_over_all_ranks_and_told_by_the_first() {
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("rows.json");
    let args = ["bench", "net", "--net", "lenet", "--batch-per-rank", "8", "--steps", "4"];
    let more = ["--runs", "1", "--workers", "1", "--json", file.to_str().unwrap()];
    let (output, _) = mpirun(3, &[], &[&args[..], &more].concat());
    assert!(output.status.success(), "{}", text(&output));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(printed.matches("samples/s").count(), 1, "{printed}");
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!((&rows[0]["ranks"], &rows[0]["batch"]), (&3.into(), &24.into()));
    // Partial sums of two strips out of three, and its own strip to two others: 431 080 parameters of four bytes.
    let sent = rows[0]["exchanges"]["most_bytes_sent"].as_f64().unwrap();
    let expected = 431_080.0 * 4.0 * 4.0 / 3.0;
    assert!((sent / expected - 1.0).abs() < 0.1, "{sent} bytes, some {expected} expected");
}

#[test]
fn a_plan_says_to_the_byte_what_ranks_send() {
    let out = tempfile::tempdir().unwrap();
    let file = |name: &str| out.path().join(name).to_str().unwrap().to_owned();
    let read = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&fs::read(file(name)).unwrap()).unwrap()
    };
    for (net, strategy, switch) in
        [("lenet", "data", "on"), ("lenet", "model", "off"), ("small-resnet", "data", "on")]
    {
        let common = ["--net", net, "--batch", "25", "--strategy", strategy];
        let common = [&common[..], &["--fuse-exchanges", switch, "--workers", "1"]].concat();
        let (rows, plan) = (file("rows.json"), file("plan.json"));
        let bench = ["bench", "net", "--steps", "4", "--runs", "1", "--json", &rows];
        let (output, _) = mpirun(3, &[], &[&bench[..], &common].concat());
        assert!(output.status.success(), "{}", text(&output));
        let machine = ["plan", "--ranks", "3", "--gflops", "50", "--memory-gb-s", "10"];
        let output = Command::new(env!("CARGO_BIN_EXE_lockstep"))
            .args(machine)
            .args(["--json", &plan])
            .args(&common)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output));
        let counted = read("rows.json")[0]["exchanges"].clone();
        let planned = read("plan.json")["sharing"]["rank_sent_bytes"].clone();
        let planned: Vec<f64> =
            planned.as_array().unwrap().iter().map(|bytes| bytes.as_f64().unwrap()).collect();
        let what = format!("{net}, {strategy}: {counted} {planned:?}");
        assert_eq!(counted["bytes_sent"], planned.iter().sum::<f64>(), "{what}");
        let most = planned.iter().copied().fold(0.0, f64::max);
        assert_eq!(counted["most_bytes_sent"], most, "{what}");
    }
}
