//! Whole runs of the program under every strategy, on any number of ranks: the same losses as one rank's, the same bits where they
//! are asked for, checkpoints that are whole.
#![expect(clippy::unwrap_used, reason = "in tests, helpers included, a panic is the report")]

use std::fs;
use std::process::Command;

/// Runs the program and gives the losses of its steps and, if there is one, the bytes of its checkpoint.
fn train(more: &[&str]) -> (Vec<f64>, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let (metrics, checkpoint) = (folder.path().join("m.jsonl"), folder.path().join("checkpoint"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    // A test must not think that it was started by mpirun because the test runner was.
    for name in ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_NTASKS", "LOCKSTEP_ISA"] {
        command.env_remove(name);
    }
    command.args(["train", "--data", "synthetic", "--no-eval", "--workers", "1", "--metrics"]);
    command.arg(&metrics).arg("--checkpoint").arg(&checkpoint).args(more);
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{more:?}\n{error}");
    let text = fs::read_to_string(&metrics).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let steps = lines.filter(|line| line["kind"] == "step");
    let losses = steps.map(|line| line["loss"].as_f64().unwrap()).collect();
    (losses, fs::read(checkpoint.join("last/weights.safetensors")).unwrap())
}

#[track_caller]
fn agrees(net: &str, batch: &str) {
    let strategies = ["data", "model", "G=2", "auto"];
    let runs = ["2", "3", "4", "5", "8"].map(|ranks| strategies.map(|strategy| (ranks, strategy)));
    agrees_in(net, batch, runs.as_flattened());
}

/// Runs, each on some ranks by some strategy.
#[track_caller]
fn agrees_in(net: &str, batch: &str, runs: &[(&str, &str)]) {
    let common = ["--net", net, "--batch", batch, "--steps", "10", "--lr", "0.01"];
    let (expected, weights) = train(&common);
    assert_eq!(expected.len(), 10);
    for (ranks, strategy) in runs {
        let more = [&common[..], &["--ranks", ranks, "--strategy", strategy]].concat();
        let (got, split) = train(&more);
        for (step, (a, b)) in got.iter().zip(&expected).enumerate() {
            let close = (a - b).abs() <= 1e-5 * b.abs().max(1.0);
            assert!(close, "{net} on {ranks} ranks, {strategy}: step {}: {a} {b}", step + 1);
        }
        assert_eq!(split.len(), weights.len(), "{net} on {ranks} ranks, {strategy}");
    }
}

/// All numbers of ranks: `cargo xtask agree`.
#[test]
fn alexnet_agrees_split_and_by_auto() {
    agrees_in("alexnet", "13", &[("3", "model"), ("4", "auto")]);
}

#[test]
fn lenet_agrees_under_every_strategy() {
    agrees("lenet", "13");
}

#[test]
fn small_vgg_agrees_under_every_strategy() {
    agrees("small-vgg", "13");
}

#[test]
fn small_resnet_agrees_under_every_strategy() {
    agrees("small-resnet", "13");
}

#[test]
fn mlp_agrees_under_every_strategy() {
    agrees("mlp", "130");
}

#[test]
fn reproducible_runs_have_the_same_losses_and_the_same_checkpoint_on_any_number_of_ranks() {
    let common = ["--batch", "13", "--steps", "200", "--reproducible", "--clip-norm", "2"];
    let expected = train(&common);
    for ranks in ["2", "4", "8"] {
        let more = [&common[..], &["--ranks", ranks, "--check-replicas", "50"]].concat();
        let got = train(&more);
        assert_eq!(got.0, expected.0, "{ranks} ranks");
        assert!(got.1 == expected.1, "the checkpoint of {ranks} ranks differs");
    }
}

#[test]
fn runs_are_reproducible_without_being_asked_wherever_that_is_possible() {
    for net in ["lenet", "small-resnet"] {
        let common = ["--net", net, "--batch", "13", "--steps", "10"];
        let expected = train(&common);
        let asked = train(&[&common[..], &["--reproducible", "--ranks", "4"]].concat());
        let unasked = train(&[&common[..], &["--ranks", "2"]].concat());
        for got in [asked, unasked] {
            assert_eq!(got.0, expected.0, "{net}");
            assert!(got.1 == expected.1, "{net}: the checkpoint differs");
        }
        // Where it is not, or is not wanted, the run goes on without.
        for more in ["--ranks=3", "--ranks=4 --strategy=model", "--ranks=4 --reproducible=off"] {
            let more: Vec<&str> = more.split(' ').collect();
            let (got, _) = train(&[&common[..], &more].concat());
            assert_ne!(got, expected.0, "{net}, {more:?}: rounding shows");
        }
    }
}

#[test]
fn what_cannot_be_reproducible_is_refused_where_it_is_asked_for() {
    for (more, word) in [("--ranks=3", "3 ranks"), ("--ranks=2 --strategy=model", "split")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
        command.args(["train", "--data", "synthetic", "--reproducible"]);
        let output = command.args(more.split(' ')).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("reproducible") && error.contains(word), "{error}");
    }
}

#[test]
fn a_file_gives_each_layer_a_strategy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("layers.json");
    fs::write(&path, r#"{"default": "data", "fc1": "model", "conv2": 1}"#).unwrap();
    let file = path.to_str().unwrap();
    let common = ["--batch", "16", "--steps", "5"];
    let (expected, _) = train(&common);
    let (got, _) = train(&[&common[..], &["--ranks", "2", "--strategy", file]].concat());
    for (a, b) in got.iter().zip(&expected) {
        assert!((a - b).abs() <= 1e-5 * b.abs(), "{a} {b}");
    }
    for (text, word) in
        [(r#"{"pool1": "model"}"#, "pool1"), (r#"{"fc1": "both"}"#, "fc1"), ("[]", "layers.json")]
    {
        fs::write(&path, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
        let output = command.args(["train", "--ranks", "2", "--strategy", file]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(word) && error.contains("layers.json"), "{error}");
    }
}
