//! A measured link decides how ranks share the work; what exchanges took, alone and in the steps, is told.
#![expect(clippy::unwrap_used, reason = "in tests, helpers included, a panic is the report")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn lockstep(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    // A test must not think that it was started by mpirun because the test runner was.
    for name in ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_NTASKS", "LOCKSTEP_ISA"] {
        command.env_remove(name);
    }
    command.args(args).output().unwrap()
}

#[track_caller]
fn succeeds(args: &[&str]) -> String {
    let output = lockstep(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A file such as `lockstep bench comm --json` writes.
fn link(folder: &Path, name: &str, latency: f64, bytes_per_s: f64) -> PathBuf {
    let path = folder.join(name);
    let link = serde_json::json!({
        "latency": latency, "seconds_per_byte": 1.0 / bytes_per_s,
        "seconds_per_added_byte": 1e-10, "congestion": 0.0,
    });
    fs::write(&path, serde_json::json!({ "library": "x", "link": link }).to_string()).unwrap();
    path
}

fn json_lines(path: &Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

#[test]
fn auto_follows_the_measured_link() {
    let folder = tempfile::tempdir().unwrap();
    let plan = |link: &Path| {
        let json = folder.path().join("plan.json");
        let (link, path) = (link.to_str().unwrap(), json.to_str().unwrap());
        let machine = ["--gflops", "100", "--memory-gb-s", "20", "--link", link, "--json", path];
        let net = ["plan", "--net", "cd-dnn", "--batch", "128", "--ranks", "2"];
        succeeds(&[&net[..], &["--strategy", "auto"], &machine].concat());
        let plan: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        let layers = plan["sharing"]["layers"].as_array().unwrap();
        let groups = layers.iter().map(|row| row["groups"].as_u64().unwrap()).collect::<Vec<_>>();
        (groups, plan["sharing"]["link_gbit"].as_f64().unwrap())
    };
    // Where latency is all, one exchange of parameters a layer is better than one of activations a part and layer.
    let (slow, gbit) = plan(&link(folder.path(), "slow.json", 1e-5, 12.5e6));
    assert_eq!(gbit, 0.1);
    let (far, gbit) = plan(&link(folder.path(), "far.json", 50e-3, 125e9));
    assert_eq!(gbit, 1000.0);
    assert!(slow.iter().any(|&groups| groups < 2), "{slow:?}");
    assert!(far.iter().all(|&groups| groups == 2), "{far:?}");
}

#[test]
fn what_bench_comm_writes_is_a_link_to_train_by() {
    let folder = tempfile::tempdir().unwrap();
    let (comm, metrics) = (folder.path().join("comm.json"), folder.path().join("m.jsonl"));
    let sizes = ["--min-bytes", "4096", "--max-bytes", "4194304", "--runs", "1"];
    let bench = ["bench", "comm", "--ranks", "2", "--json", comm.to_str().unwrap()];
    succeeds(&[&bench[..], &sizes].concat());
    let steps = ["train", "--data", "synthetic", "--no-eval", "--steps", "3", "--ranks", "2"];
    let more = ["--fuse-exchanges", "off", "--link", comm.to_str().unwrap()];
    let more = [&more[..], &["--metrics", metrics.to_str().unwrap()]].concat();
    let printed = succeeds(&[&steps[..], &more].concat());
    assert!(printed.contains("alone before the first step"), "{printed}");
    let lines = json_lines(&metrics);
    let exchanges: Vec<_> = lines.iter().filter(|line| line["kind"] == "exchange").collect();
    let name = |name: &str| exchanges.iter().find(|e| e["name"] == name).unwrap();
    let fc1 = name("fc1.part_reduce");
    assert!(fc1["alone_us"].as_f64().unwrap() > 0.0 && fc1["mean_us"].as_f64().unwrap() > 0.0);
    assert_eq!(fc1["times"], 3);
    // Half of 500 x 800 weights and 500 biases, each rounded up to whole vectors.
    let bytes = fc1["bytes_sent"].as_u64().unwrap();
    assert!((802_000..850_000).contains(&bytes), "{bytes}");
}

#[test]
fn a_file_that_is_no_link_is_refused_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("bad.json");
    let texts = [
        "{}",
        "nonsense",
        r#"{"link": {"latency": -1, "seconds_per_byte": 1e-9, "seconds_per_added_byte": 0, "congestion": 0}}"#,
        r#"{"link": {"latency": 0, "seconds_per_byte": 0, "seconds_per_added_byte": 0, "congestion": 0}}"#,
    ];
    for text in texts {
        fs::write(&bad, text).unwrap();
        for command in [&["train", "--ranks", "2"][..], &["plan"], &["bench", "net"]] {
            let output = lockstep(&[command, &["--link", bad.to_str().unwrap()]].concat());
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{command:?} {text}: {error}");
            assert!(error.contains("--link") && error.contains("bad.json"), "{error}");
        }
    }
}
