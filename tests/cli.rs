//! The program as a user meets it: what it prints, what it leaves, what it refuses and how.
#![expect(clippy::unwrap_used, reason = "in tests, helpers included, a panic is the report")]

#[path = "support/small_mnist.rs"]
mod small_mnist;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

fn lockstep() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    // A test must not think that it was started by mpirun because the test runner was.
    for name in ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_NTASKS", "LOCKSTEP_ISA"] {
        command.env_remove(name);
    }
    command
}

fn data(train: usize, test: usize) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    small_mnist::write(folder.path(), train, test);
    let choice = format!("mnist:{}", folder.path().display());
    (folder, choice)
}

fn run(args: &[&str]) -> Output {
    lockstep().args(args).output().unwrap()
}

#[track_caller]
fn succeeds(args: &[&str]) -> String {
    let output = run(args);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{args:?}\n{out}\n{err}");
    out
}

/// Runs, expects an exit code and one sentence with all the given words.
#[track_caller]
fn refuses(args: &[&str], code: i32, words: &[&str]) {
    let output = run(args);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}\n{err}");
    for word in words {
        assert!(err.contains(word), "{args:?}: no {word:?} in\n{err}");
    }
    assert!(!err.contains("panicked"), "{err}");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn metrics(path: &Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The losses of a run's steps.
fn losses(data: &str, more: &[&str]) -> Vec<f64> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("m.jsonl");
    let path = file.to_str().unwrap();
    let mut args = vec!["train", "--data", data, "--batch", "13", "--metrics", path];
    args.extend(more);
    succeeds(&args);
    let lines = metrics(&file);
    let steps = lines.iter().filter(|line| line["kind"] == "step");
    steps.map(|line| line["loss"].as_f64().unwrap()).collect()
}

#[test]
fn a_run_learns_reports_and_leaves_a_checkpoint_that_scores_the_same() {
    let (_folder, data) = data(640, 101);
    let out = tempfile::tempdir().unwrap();
    let (metrics_file, checkpoint) = (out.path().join("m.jsonl"), out.path().join("ckpt"));
    let printed = succeeds(&[
        "train",
        "--data",
        &data,
        "--batch",
        "32",
        "--epochs",
        "2",
        "--metrics",
        metrics_file.to_str().unwrap(),
        "--checkpoint",
        checkpoint.to_str().unwrap(),
    ]);
    assert!(printed.contains("2 epochs") || printed.contains("40 steps"), "{printed}");
    let lines = metrics(&metrics_file);
    let steps: Vec<_> = lines.iter().filter(|l| l["kind"] == "step").collect();
    let evals: Vec<_> = lines.iter().filter(|l| l["kind"] == "eval").collect();
    assert_eq!((steps.len(), evals.len()), (40, 2));
    assert_eq!(steps[39]["step"], 40);
    assert_eq!(steps[39]["epoch"], 2);
    assert_eq!(evals[1]["samples"], 101);
    let top1 = evals[1]["top1"].as_f64().unwrap();
    assert!(top1 > 0.95, "{top1}");
    let json = succeeds(&[
        "score",
        "--data",
        &data,
        "--checkpoint",
        checkpoint.to_str().unwrap(),
        "--batch",
        "7",
        "--json",
    ]);
    let score: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(score["top1"].as_f64().unwrap(), top1);
    let difference = score["loss"].as_f64().unwrap() / evals[1]["loss"].as_f64().unwrap() - 1.0;
    assert!(difference.abs() < 1e-5, "{difference}");
}

#[test]
fn ranks_give_the_losses_of_one_rank() {
    let (_folder, data) = data(101, 21);
    // 101 samples in minibatches of 13: the last one has 10, and with 8 ranks some have one sample.
    let one = losses(&data, &["--epochs", "2"]);
    assert_eq!(one.len(), 16);
    for ranks in ["2", "3", "5", "8"] {
        let several = losses(&data, &["--epochs", "2", "--ranks", ranks]);
        assert_eq!(several.len(), one.len());
        for (step, (a, b)) in several.iter().zip(&one).take(10).enumerate() {
            assert!((a / b - 1.0).abs() < 1e-5, "{ranks} ranks, step {}: {a}, {b}", step + 1);
        }
    }
}

#[test]
fn a_last_minibatch_smaller_than_the_ranks_ends() {
    let (_folder, data) = data(29, 7);
    // Minibatches of 13, 13 and 3 on 5 ranks: two ranks have nothing to do in the last one.
    assert_eq!(losses(&data, &["--ranks", "5", "--epochs", "1"]).len(), 3);
    let (_folder, data) = self::data(5, 3);
    assert_eq!(losses(&data, &["--ranks", "8", "--epochs", "2"]).len(), 2);
}

#[test]
fn workers_and_loader_threads_do_not_change_a_bit() {
    let (_folder, data) = data(60, 7);
    let one = losses(&data, &["--epochs", "2", "--workers", "1"]);
    assert_eq!(losses(&data, &["--epochs", "2", "--workers", "3"]), one);
    assert_eq!(losses(&data, &["--epochs", "2", "--loader-threads", "3"]), one);
    assert_eq!(losses(&data, &["--epochs", "2", "--no-eval"]), one);
}

#[test]
fn instruction_sets_agree_and_an_unknown_one_is_refused() {
    let (_folder, data) = data(60, 7);
    let with = |isa: &str| {
        let out = tempfile::tempdir().unwrap();
        let file = out.path().join("m");
        let output = lockstep()
            .env("LOCKSTEP_ISA", isa)
            .args(["train", "--data", &data, "--steps", "5", "--metrics"])
            .arg(&file)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains(&format!(" {isa},")), "{}", text(&output.stdout));
        let lines = metrics(&file);
        let steps = lines.iter().filter(|line| line["kind"] == "step");
        steps.map(|line| line["loss"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    let base = with("portable");
    for isa in lockstep::ops::Isa::all_available() {
        for (a, b) in with(isa.name()).iter().zip(&base) {
            assert!((a / b - 1.0).abs() < 1e-4, "{}: {a} {b}", isa.name());
        }
    }
    let output = lockstep().env("LOCKSTEP_ISA", "mmx").args(["info"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("mmx"));
}

#[test]
fn wrong_requests_are_refused_with_a_reason() {
    let (folder, data) = data(20, 5);
    let missing = folder.path().join("none");
    refuses(&["train", "--net", "lenett"], 2, &["lenett", "lenet"]);
    refuses(&["train", "--data", "cifar"], 2, &["--data", "cifar"]);
    refuses(&["train", "--data", &format!("mnist:{}", missing.display())], 1, &["none"]);
    refuses(&["train", "--net", "small-vgg"], 2, &["3x32x32", "1x28x28"]);
    refuses(&["train", "--strategy", "magic"], 2, &["magic", "data", "model", "G=n"]);
    refuses(&["train", "--schedule", "linear"], 2, &["linear", "cosine"]);
    refuses(&["train", "--batch", "0"], 2, &["--batch"]);
    refuses(&["train", "--ranks", "0"], 2, &["--ranks"]);
    refuses(&["train", "--lr", "nan"], 2, &["--lr"]);
    refuses(&["train", "--steps", "0"], 2, &["--steps"]);
    refuses(&["train", "--trace-steps", "5..2", "--trace", "x.json"], 2, &["5..2"]);
    let late = ["train", "--steps", "3", "--trace", "x.json", "--trace-steps", "10..20"];
    refuses(&late, 2, &["--trace-steps 10..20", "3 step"]);
    refuses(&["train", "--nesterov", "--momentum", "0"], 2, &["--nesterov", "--momentum 0"]);
    refuses(&["train", "--steps", "9", "--checkpoint", "/proc/none"], 1, &["create /proc/none"]);
    refuses(&["graph", "--tasks", "--ranks", "0"], 2, &["--ranks 0"]);
    refuses(&["train", "--data", &data, "--trace", "/"], 1, &["/"]);
    refuses(&["score", "--checkpoint", missing.to_str().unwrap()], 1, &["none"]);
    fs::write(folder.path().join("bad.safetensors"), "git-lfs").unwrap();
    let bad = folder.path().join("bad.safetensors");
    refuses(&["score", "--checkpoint", bad.to_str().unwrap()], 1, &["bad.safetensors"]);
    refuses(&["trace", "check", bad.to_str().unwrap()], 1, &["bad.safetensors"]);
    refuses(&["graph", "--net", bad.with_extension("json").to_str().unwrap()], 2, &["bad.json"]);
}

#[test]
fn a_diverging_run_stops_and_keeps_the_last_good_checkpoint() {
    let (_folder, data) = data(64, 5);
    let out = tempfile::tempdir().unwrap();
    let checkpoint = out.path().to_str().unwrap();
    succeeds(&["train", "--data", &data, "--epochs", "1", "--checkpoint", checkpoint]);
    let before = fs::read(out.path().join("last/weights.safetensors")).unwrap();
    refuses(
        &[
            "train",
            "--data",
            &data,
            "--lr",
            "1e30",
            "--epochs",
            "9",
            "--checkpoint",
            checkpoint,
            "--batch",
            "8",
        ],
        1,
        &["diverged", "--lr", "step"],
    );
    assert_eq!(fs::read(out.path().join("last/weights.safetensors")).unwrap(), before);
}

#[test]
fn a_trace_of_two_ranks_is_whole_nested_and_shows_the_exchanges() {
    let (_folder, data) = data(200, 5);
    let out = tempfile::tempdir().unwrap();
    let trace = out.path().join("deep/trace.json");
    let path = trace.to_str().unwrap();
    succeeds(&[
        "train",
        "--data",
        &data,
        "--batch",
        "16",
        "--ranks",
        "2",
        "--steps",
        "8",
        "--trace",
        path,
        "--trace-steps",
        "3..6",
    ]);
    let report = succeeds(&["trace", "check", path]);
    assert!(report.contains("part-reduce") || report.contains("part_reduce"), "{report}");
    let document: serde_json::Value = serde_json::from_slice(&fs::read(&trace).unwrap()).unwrap();
    let events = document["traceEvents"].as_array().or(document.as_array()).unwrap();
    let names: Vec<&str> = events
        .iter()
        .filter(|e| e["name"] == "thread_name")
        .filter_map(|e| e["args"]["name"].as_str())
        .collect();
    // Steps 3 to 5 of the scoring after the epoch are not part of it: each rank has each pass of a layer once a step.
    let conv1 = events.iter().filter(|e| e["args"]["layer"] == "conv1");
    let steps: std::collections::BTreeSet<_> =
        conv1.clone().filter_map(|e| e["args"]["step"].as_u64()).collect();
    assert_eq!(steps.into_iter().collect::<Vec<_>>(), [3, 4, 5]);
    let first_blocks = conv1.filter(|e| {
        e["args"]["pass"] == "forward"
            && e["args"]["blocks"].as_str().is_none_or(|b| b.starts_with('0'))
    });
    assert_eq!(first_blocks.count(), 6);
    for name in ["worker 0", "comm", "loader 0"] {
        assert!(names.contains(&name), "{names:?}");
    }
    for rank in 0..2 {
        let file = fs::read(out.path().join(format!("deep/trace.rank{rank}.json"))).unwrap();
        serde_json::from_slice::<serde_json::Value>(&file).unwrap();
    }
}

#[test]
fn sigterm_ends_the_run_with_whole_traces_and_a_checkpoint() {
    let (_folder, data) = data(2000, 5);
    let out = tempfile::tempdir().unwrap();
    let trace = out.path().join("t.json");
    let mut child = lockstep()
        .args([
            "train",
            "--data",
            &data,
            "--epochs",
            "100000",
            "--ranks",
            "2",
            "--no-eval",
            "--trace",
        ])
        .arg(&trace)
        .arg("--checkpoint")
        .arg(out.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let began = Instant::now();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(143));
    assert!(began.elapsed() < Duration::from_secs(10));
    serde_json::from_slice::<serde_json::Value>(&fs::read(&trace).unwrap()).unwrap();
    succeeds(&["trace", "check", trace.to_str().unwrap()]);
    succeeds(&["score", "--data", &data, "--checkpoint", out.path().to_str().unwrap()]);
}

#[test]
fn networks_and_task_graphs_are_printed_in_every_form() {
    assert!(succeeds(&["graph"]).contains("conv1"));
    assert!(succeeds(&["graph", "--format", "dot"]).starts_with("digraph"));
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("net.json");
    fs::write(&file, succeeds(&["graph", "--format", "json"])).unwrap();
    assert_eq!(
        succeeds(&["graph", "--net", file.to_str().unwrap()]),
        succeeds(&["graph", "--net", "lenet"])
    );
    let tasks = succeeds(&["graph", "--tasks", "--ranks", "2", "--format", "json"]);
    let tasks: serde_json::Value = serde_json::from_str(&tasks).unwrap();
    assert_eq!(tasks["format"], "lockstep-task-graph");
    assert!(succeeds(&["graph", "--tasks", "--format", "dot"]).contains("conv1.backward_weights"));
    assert!(succeeds(&["graph", "--list"]).contains("small-resnet"));
    assert!(succeeds(&["info"]).contains("instruction sets"));
}

#[test]
fn under_mpirun_without_mpi_it_refuses_to_run_as_separate_copies() {
    if cfg!(feature = "mpi") {
        return;
    }
    let output = lockstep()
        .env("OMPI_COMM_WORLD_SIZE", "4")
        .env("OMPI_COMM_WORLD_RANK", "1")
        .args(["train", "--steps", "1"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("--features mpi"), "{}", text(&output.stderr));
}

#[test]
fn the_predicted_peak_memory_is_within_ten_percent_of_the_measured() {
    let number_after = |text: &str, words: &str| -> f64 {
        let rest = text.split(words).nth(1).unwrap_or_else(|| panic!("no {words:?} in {text}"));
        rest.trim().split(' ').next().unwrap().parse().unwrap()
    };
    for args in [
        &["train", "--steps", "100"][..],
        &["train", "--net", "small-vgg", "--data", "synthetic", "--batch", "128", "--steps", "10"],
        &["train", "--steps", "100", "--ranks", "2"],
    ] {
        let printed = succeeds(args);
        let predicted = number_after(&printed, "predicted peak memory");
        let measured = number_after(&printed, "done, peak memory");
        assert!((predicted / measured - 1.0).abs() < 0.1, "{args:?}: {predicted} {measured}");
    }
}

#[test]
fn what_a_killed_process_traced_can_be_merged() {
    let (_folder, data) = data(2000, 5);
    let out = tempfile::tempdir().unwrap();
    let trace = out.path().join("t.json");
    let mut child = lockstep()
        .args(["train", "--data", &data, "--epochs", "100000", "--no-eval", "--trace"])
        .arg(&trace)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    child.kill().unwrap();
    child.wait().unwrap();
    let raw = out.path().join("t.rank0.raw");
    succeeds(&["trace", "merge", "-o", trace.to_str().unwrap(), raw.to_str().unwrap()]);
    let report = succeeds(&["trace", "check", trace.to_str().unwrap()]);
    assert!(report.contains("sound"), "{report}");
}

/// The rows that a benchmark leaves with `--json`, and what it printed.
#[track_caller]
fn bench_rows(args: &[&str]) -> (Vec<serde_json::Value>, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.json");
    let mut all = vec!["bench"];
    all.extend(args);
    all.extend(["--json", path.to_str().unwrap()]);
    let printed = succeeds(&all);
    let rows = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    (rows, printed)
}

#[test]
fn a_network_is_measured_in_both_modes() {
    let quick = ["--batch", "4", "--workers", "2", "--runs", "2", "--steps", "3"];
    for (mode, passes) in [("train", 3.0), ("score", 1.0)] {
        let mut args = vec!["net", "--net", "lenet", "--mode", mode, "--layers"];
        args.extend(quick);
        let (rows, printed) = bench_rows(&args);
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!(
            (&row["net"], &row["mode"], &row["batch"]),
            (&"lenet".into(), &mode.into(), &4.into())
        );
        let number = |key: &str| row[key].as_f64().unwrap();
        // 4.586 MFLOP a forward pass of a sample.
        let expected = number("per_s") * passes * 4.586e-3;
        assert!((number("gflops") / expected - 1.0).abs() < 1e-9, "{row}");
        assert!(number("peak_rss_mb") > 1.0, "{row}");
        let shares = row["shares"].as_object().unwrap();
        let sum: f64 = shares.values().map(|share| share.as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{row}");
        assert!(shares["convolution"].as_f64().unwrap() > 0.0, "{row}");
        // Without an exchange parameters make their step along with their gradient.
        assert_eq!(shares["update"].as_f64(), Some(0.0), "{row}");
        let tasks = row["tasks"].as_array().unwrap();
        assert!(tasks.iter().any(|task| task["layer"] == "conv2" && task["pass"] == "forward"));
        assert!(printed.contains("exposed communication"), "{printed}");
    }
}

#[test]
fn layers_are_measured_pass_by_pass() {
    let args = ["ops", "--only", "lenet", "--batch", "2", "--linear-batch", "1,3"];
    let (rows, printed) =
        bench_rows(&[&args[..], &["--workers", "2", "--runs", "1", "--run-ms", "1"]].concat());
    let names: Vec<String> =
        rows.iter().map(|r| format!("{} {} {}", r["layer"], r["pass"], r["batch"])).collect();
    let names: Vec<String> = names.into_iter().map(|name| name.replace('"', "")).collect();
    let mut expected = Vec::new();
    for layer in ["lenet_conv1 B 2", "lenet_conv2 B 2", "lenet_fc1 B 1", "lenet_fc1 B 3"] {
        for pass in ["forward", "backward_data", "backward_weights"] {
            expected.push(layer.replace('B', pass));
        }
    }
    assert_eq!(names, expected);
    for row in &rows {
        for key in ["gflops", "peak_fraction", "roofline_fraction", "gbytes_per_s", "blocks"] {
            assert!(row[key].as_f64().unwrap() > 0.0, "{key} of {row}");
        }
        assert_eq!(row["workers"], 2);
    }
    assert!(printed.contains("lenet_conv2"), "{printed}");
}

#[test]
fn a_network_is_measured_on_ranks() {
    let args = ["net", "--net", "lenet", "--ranks", "2", "--workers", "1"];
    let more = ["--batch-per-rank", "4", "--runs", "1", "--steps", "3"];
    let (rows, printed) = bench_rows(&[&args[..], &more].concat());
    let row = &rows[0];
    assert_eq!(row["workers"], 1);
    assert!(row["shares"]["linear"].as_f64().unwrap() > 0.0, "{row}");
    assert_eq!(
        (&row["ranks"], &row["batch"], &row["transport"]),
        (&2.into(), &8.into(), &"local".into())
    );
    assert!(row["exchanges"]["exposed_ms"].as_f64().unwrap() >= 0.0, "{row}");
    // Every parameter goes once as a partial sum and once as a new value.
    assert!(row["exchanges"]["bytes_sent"].as_f64().unwrap() > 2.0 * 4.0 * 431_080.0, "{row}");
    assert!(printed.contains("exchanges, a step"), "{printed}");
}

#[test]
fn benchmarks_refuse_what_makes_no_sense() {
    refuses(&["bench", "net", "--batch", "0"], 2, &["--batch"]);
    refuses(&["bench", "net", "--batch-per-rank", "0"], 2, &["--batch-per-rank"]);
    refuses(&["bench", "net", "--strategy", "none"], 2, &["none"]);
    refuses(&["bench", "net", "--steps", "0"], 2, &["--steps"]);
    refuses(&["bench", "net", "--seconds=-1"], 2, &["--seconds"]);
    refuses(&["bench", "ops", "--layer", "vgg_c99"], 2, &["vgg_c99", "--list"]);
    let listed = succeeds(&["bench", "ops", "--list", "--only", "vgg"]);
    let names: Vec<&str> = listed.lines().collect();
    assert_eq!(names, ["vgg_c1", "vgg_c2", "vgg_c4", "vgg_c6", "vgg_c7", "fc_vgg6"]);
}

#[test]
fn dispatch_is_measured_beside_rayon_and_deques() {
    let args = ["sched", "--tasks", "6", "--chains", "1", "--block-us", "2", "--workers", "2"];
    let (rows, printed) = bench_rows(&[&args[..], &["--runs", "1"]].concat());
    let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap().to_owned();
    let names: Vec<_> = rows.iter().map(|row| (text(row, "case"), text(row, "system"))).collect();
    let mut expected = Vec::new();
    for case in ["block", "task", "work"] {
        for system in ["lockstep", "rayon", "rayon-scope", "deque"] {
            expected.push((case.to_owned(), system.to_owned()));
        }
    }
    assert_eq!(names, expected);
    for row in &rows {
        assert!(row["ns_per_block"].is_f64() && row["ns_per_task"].is_f64(), "{row}");
        assert_eq!(row["efficiency"].as_f64().unwrap() > 0.0, row["case"] == "work", "{row}");
        let tasks = if row["case"] == "task" { 600 } else { 6 };
        assert_eq!((&row["tasks"], &row["workers"]), (&tasks.into(), &2.into()));
    }
    assert!(printed.contains("of perfect"), "{printed}");
    refuses(&["bench", "sched", "--tasks", "4"], 2, &["--tasks", "5"]);
    refuses(&["bench", "sched", "--chains", "0"], 2, &["--chains"]);
}

#[test]
fn exchanges_are_measured_by_size_and_algorithm() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("comm.json");
    let sizes = ["--min-bytes", "4096", "--max-bytes", "65536", "--runs", "1"];
    let args = ["bench", "comm", "--ranks", "4", "--json", path.to_str().unwrap()];
    let printed = succeeds(&[&args[..], &sizes].concat());
    let results: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let rows = results["rows"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| (&row["bytes"], &row["system"])).collect();
    let mut expected = Vec::new();
    for bytes in [4096, 16_384, 65_536] {
        expected.extend(["direct", "ring", "halving"].map(|system| (bytes.into(), system.into())));
    }
    let expected: Vec<_> = expected.iter().map(|(bytes, system)| (bytes, system)).collect();
    assert_eq!(names, expected);
    for row in rows {
        // A rank sends three quarters of the tensor twice.
        let sent = 1.5 * row["bytes"].as_f64().unwrap();
        let rate = sent / row["pair_us"].as_f64().unwrap();
        assert!((rate / row["mbytes_per_s"].as_f64().unwrap() - 1.0).abs() < 1e-9, "{row}");
    }
    // On a busy machine the time of so short messages may not grow with their length: then a byte costs nothing.
    let link = &results["link"];
    let (latency, byte) = (link["latency"].as_f64(), link["seconds_per_byte"].as_f64());
    assert!(latency.is_some_and(|s| s >= 0.0) && byte.is_some_and(|s| s >= 0.0), "{results}");
    assert!(printed.contains("urgent: "), "{printed}");
    refuses(&["bench", "comm", "--max-bytes", "100"], 2, &["--max-bytes", "1024"]);
    refuses(&["bench", "comm", "--window", "0"], 2, &["--window"]);
}

#[test]
fn a_plan_tells_blocking_and_time_of_each_layer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    let args = ["plan", "--net", "lenet", "--batch", "7", "--ranks", "2", "--workers", "1"];
    let printed = succeeds(&[&args[..], &["--json", path.to_str().unwrap()]].concat());
    let plan: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!((&plan["local_batch"], &plan["ranks"]), (&4.into(), &2.into()));
    let layers = plan["layers"].as_array().unwrap();
    let names: Vec<_> = layers.iter().map(|row| row["layer"].as_str().unwrap()).collect();
    assert_eq!(names, ["conv1", "conv2", "fc1", "fc2"]);
    let mut sum = plan["other_ms"].as_f64().unwrap();
    for row in layers {
        assert!(printed.contains(row["layer"].as_str().unwrap()), "{printed}");
        assert_eq!(row["strategy"], "data");
        assert_eq!(row["backward_data_blocks"].is_null(), row["layer"] == "conv1");
        for key in ["mb", "ic", "oc", "oh", "ow", "forward_blocks", "backward_weights_blocks"] {
            assert!(row[key].as_u64().unwrap() > 0, "{key} of {row}");
        }
        sum += row["ms"].as_f64().unwrap();
    }
    assert!((sum / plan["step_ms"].as_f64().unwrap() - 1.0).abs() < 1e-9, "{plan}");
    // 4 samples of 2 * 24 * 24 * 20 * 25 operations; 4 (24^2 + 28^2 + 5^2) bytes to 2 * 25 * 24^2 operations.
    let conv1 = &layers[0];
    assert!((conv1["gflop"].as_f64().unwrap() - 2.304e-3).abs() < 1e-12, "{conv1}");
    let unblocked = conv1["unblocked_bytes_per_flop"].as_f64().unwrap();
    assert!((unblocked - 5540.0 / 28800.0).abs() < 1e-12, "{conv1}");
    assert!(conv1["bytes_per_flop"].as_f64().unwrap() < unblocked, "{conv1}");
    assert!(plan["sharing"].is_object());
    refuses(&["plan", "--batch", "0"], 2, &["--batch"]);
    refuses(&["plan", "--strategy", "magic"], 2, &["magic"]);
}

#[test]
fn a_plan_tells_the_method_of_each_layer() {
    let plan = |tile| {
        let machine = ["--gflops", "100", "--memory-gb-s", "20", "--workers", "1"];
        let args = ["plan", "--net", "small-vgg", "--batch", "8", "--winograd", tile];
        let printed = succeeds(&[&args[..], &machine].concat());
        let line = printed.lines().find(|line| line.starts_with("conv2_1")).unwrap().to_owned();
        line.split_whitespace().nth(2).unwrap().to_owned()
    };
    assert_eq!(["off", "2", "4"].map(plan), ["direct", "F(2x2)", "F(4x4)"]);
    refuses(&["plan", "--winograd", "3"], 2, &["--winograd"]);
}

/// The plan of CD-DNN on two ranks of a machine that need not be there, and what was printed.
fn cd_dnn_plan(options: &[&str]) -> (serde_json::Value, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    let args = ["plan", "--net", "cd-dnn", "--minibatch", "512", "--ranks", "2", "--gflops", "100"];
    let machine = ["--memory-gb-s", "20", "--workers", "1", "--json", path.to_str().unwrap()];
    let printed = succeeds(&[&args[..], &machine[..], options].concat());
    (serde_json::from_slice(&fs::read(&path).unwrap()).unwrap(), printed)
}

#[test]
fn a_plan_of_several_ranks_tells_mesh_exchange_and_bubble_of_each_layer() {
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let (data, _) = cd_dnn_plan(&["--strategy", "data"]);
    let (auto, printed) = cd_dnn_plan(&["--strategy", "auto"]);
    for (plan, strategy, groups) in [(&data, "data", 2), (&auto, "model", 1)] {
        let sharing = &plan["sharing"];
        let layers = sharing["layers"].as_array().unwrap();
        let fc3 = layers.iter().find(|row| row["layer"] == "fc3").unwrap();
        assert_eq!((&fc3["strategy"], &fc3["groups"]), (&strategy.into(), &groups.into()));
        for (total, part) in [
            ("compute_ms", "compute_ms"),
            ("exchange_ms", "exchange_ms"),
            ("bubble_ms", "bubble_ms"),
            ("sent_bytes", "sent_bytes"),
        ] {
            let sum: f64 = layers.iter().map(|row| number(&row[part])).sum();
            assert!((sum - number(&sharing[total])).abs() <= 1e-6 * sum.max(1.0), "{sharing}");
        }
        let step = number(&sharing["compute_ms"]) + number(&sharing["bubble_ms"]);
        assert!((step / number(&sharing["step_ms"]) - 1.0).abs() < 1e-6, "{sharing}");
        assert!((0.0..=1.0).contains(&number(&sharing["overlap"])));
    }
    // Half of 2048 * 2048 weights and 2048 biases there and back, or half of 512 samples of 2048 features.
    let sent = |plan: &serde_json::Value| {
        let layers = plan["sharing"]["layers"].as_array().unwrap().clone();
        number(&layers.iter().find(|row| row["layer"] == "fc3").unwrap()["sent_bytes"])
    };
    assert_eq!((sent(&data), sent(&auto)), (4.0 * 2048.0 * 2049.0, 4.0 * 2048.0 * 512.0));
    assert!(number(&auto["sharing"]["step_ms"]) < 0.8 * number(&data["sharing"]["step_ms"]));
    for words in
        ["bubble ms", "hidden", "by strategy, best first: auto", "fc3: model sends 4.19 MB"]
    {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    let (fifo, _) = cd_dnn_plan(&["--order", "fifo", "--link-gbit", "0.1"]);
    assert!(number(&fifo["sharing"]["step_ms"]) > 2.0 * number(&data["sharing"]["step_ms"]));
    refuses(&["plan", "--ranks", "2", "--link-gbit", "0"], 2, &["--link-gbit"]);
    refuses(&["plan", "--latency-us", "-1"], 2, &["--latency-us"]);
    refuses(&["plan", "--gflops", "nan"], 2, &["--gflops"]);
}

#[test]
fn a_plan_tells_which_layers_share_an_exchange() {
    let args = ["plan", "--net", "small-resnet", "--batch", "64", "--ranks", "2"];
    let machine = ["--gflops", "100", "--memory-gb-s", "20", "--workers", "1"];
    let plan = |switch| succeeds(&[&args[..], &machine, &["--fuse-exchanges", switch]].concat());
    let (on, off) = (plan("on"), plan("off"));
    assert!(on.contains("exchanged together, in the row of the first: block1.conv1"), "{on}");
    assert!(!off.contains("exchanged together"), "{off}");
    // The same bytes in fewer messages.
    let line = |text: &str, words: &str| {
        text.lines().find(|line| line.contains(words)).unwrap().to_owned()
    };
    assert_eq!(line(&on, "bytes sent a step"), line(&off, "bytes sent a step"));
    assert_ne!(line(&on, "messages a rank"), line(&off, "messages a rank"));
    refuses(&[&args[..], &["--fuse-exchanges", "maybe"]].concat(), 2, &["--fuse-exchanges"]);
}

#[test]
fn training_gives_the_same_losses_whichever_layers_share_an_exchange() {
    let folder = tempfile::tempdir().unwrap();
    let losses = |switch: &str| {
        let path = folder.path().join(switch);
        let (_data, choice) = data(64, 5);
        let args = ["train", "--data", &choice, "--steps", "4", "--batch", "16", "--no-eval"];
        let more =
            ["--ranks", "3", "--fuse-exchanges", switch, "--metrics", path.to_str().unwrap()];
        succeeds(&[&args[..], &more].concat());
        let text = fs::read_to_string(&path).unwrap();
        let steps = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let steps = steps.filter(|line: &serde_json::Value| line["kind"] == "step");
        steps.map(|line| line["loss"].as_f64().unwrap().to_bits()).collect::<Vec<_>>()
    };
    let (on, off) = (losses("on"), losses("off"));
    assert_eq!((on.len(), &on), (4, &off));
}
