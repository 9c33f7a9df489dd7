//! Tied layers in whole runs of the program: drawn once, saved once, loaded under any of their names.
#![expect(clippy::unwrap_used, reason = "in tests, helpers included, a panic is the report")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use lockstep::graph::zoo;
use lockstep::{NamedTensor, check_weights, load_weights, save_weights};

fn train(folder: &Path, more: &[&str]) -> Output {
    let net = folder.join("tied.json");
    fs::write(&net, zoo::golden::tied().unwrap().to_json()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    // A test must not think that it was started by mpirun because the test runner was.
    for name in ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_NTASKS", "LOCKSTEP_ISA"] {
        command.env_remove(name);
    }
    command.args(["train", "--data", "synthetic", "--no-eval", "--workers", "1", "--net"]);
    command.arg(&net).args(["--batch", "8", "--clip-norm", "1"]).args(more).output().unwrap()
}

/// The tensors of a checkpoint, by name.
fn checkpoint(folder: &Path, name: &str, more: &[&str]) -> BTreeMap<String, NamedTensor> {
    let path = folder.join(name);
    let output = train(folder, &[&["--checkpoint", path.to_str().unwrap()], more].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    load_weights(&path).unwrap()
}

#[test]
fn tied_parameters_are_drawn_and_saved_once_and_loaded_under_any_name() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let short = ["--steps", "3", "--check-replicas", "1", "--ranks", "2", "--strategy", "G=1"];
    let mut weights = checkpoint(folder, "short", &short);
    let names: Vec<&str> = weights.keys().map(String::as_str).collect();
    let layers = ["0", "10", "14", "2", "8"].iter();
    let own: Vec<String> =
        layers.flat_map(|l| ["bias", "weight"].map(|p| format!("{l}.{p}"))).collect();
    assert_eq!(names, own);
    // As a file of PyTorch's may have it: one tied weight under its other name, another one under both.
    let rename = |weights: &mut BTreeMap<String, NamedTensor>, from: &str, to: &str, keep: bool| {
        let tensor = NamedTensor { name: to.to_owned(), ..weights[from].clone() };
        weights.insert(to.to_owned(), tensor);
        if !keep {
            weights.remove(from);
        }
    };
    rename(&mut weights, "2.weight", "4.weight", false);
    rename(&mut weights, "10.weight", "12.weight", true);
    let renamed: Vec<NamedTensor> = weights.values().cloned().collect();
    save_weights(&folder.join("renamed"), &renamed).unwrap();
    let init = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let on_from = |name: &str| {
        let init = init(name);
        checkpoint(folder, "next", &["--steps", "2", "--seed", "5", "--init", &init])
    };
    let expected = on_from("short");
    assert_ne!(expected["2.weight"].values, weights["4.weight"].values, "the run learned nothing");
    assert_eq!(on_from("renamed"), expected);
}

#[test]
fn tied_parameters_with_two_values_are_refused() {
    let (network, folder) = (zoo::golden::tied().unwrap(), tempfile::tempdir().unwrap());
    let mut weights = checkpoint(folder.path(), "start", &["--steps", "1"]);
    check_weights(&network, &weights, Path::new("w")).unwrap();
    let mut other = weights["2.bias"].clone();
    other.name = "4.bias".to_owned();
    other.values[3] += 1.0;
    weights.insert(other.name.clone(), other);
    assert_eq!(
        check_weights(&network, &weights, Path::new("w")).unwrap_err().to_string(),
        "w: 2.bias and 4.bias differ, but they are tied in the network: leave one of them out"
    );
    weights.remove("2.bias");
    check_weights(&network, &weights, Path::new("w")).unwrap();
    weights.remove("4.bias");
    let missing = check_weights(&network, &weights, Path::new("w")).unwrap_err().to_string();
    assert!(missing.contains("2.bias"), "{missing}");
}
