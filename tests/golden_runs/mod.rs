//! Whole training runs against PyTorch's, computed in double precision: losses of every step and the final parameters.
//!
//! Reads `runs/*.safetensors` of the directory that `LOCKSTEP_GOLDEN` names (default: `tests/golden`); a run of an unknown
//! network is a failure. `tests/golden/make_golden.py` made the values.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lockstep::graph::{Strategy, WinogradLayers, WinogradTile, zoo};
use lockstep::ops::Isa;
use lockstep::ops::sgd::SgdHyper;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};

use crate::support::{Minibatch, Run};

/// What the script that made the values allows between f32 and f64 runs.
const LOSS_TOLERANCE: f64 = 1e-4;

fn floats(view: &TensorView<'_>) -> Vec<f32> {
    assert_eq!(view.dtype(), Dtype::F32);
    let (chunks, _) = view.data().as_chunks::<4>();
    chunks.iter().map(|&c| f32::from_le_bytes(c)).collect()
}

fn labels(view: &TensorView<'_>) -> Vec<u32> {
    assert_eq!(view.dtype(), Dtype::I32);
    let (chunks, _) = view.data().as_chunks::<4>();
    chunks.iter().map(|&c| u32::try_from(i32::from_le_bytes(c)).unwrap()).collect()
}

/// A golden run: what to do and what must come out.
struct Golden {
    run: Run,
    losses: Vec<f32>,
    last: BTreeMap<String, Vec<f32>>,
}

fn read(path: &Path) -> Golden {
    let bytes = fs::read(path).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let meta = header.metadata().clone().unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let number = |key: &str| meta[key].parse::<f32>().unwrap();
    let network = match meta["net"].as_str() {
        "mlp" => zoo::golden::mlp(),
        "lenet" => zoo::golden::lenet(),
        "small_vgg" => zoo::golden::small_vgg(),
        "small_resnet" => zoo::golden::small_resnet(),
        "tied" => zoo::golden::tied(),
        unknown => panic!("{} is a run of an unknown network: {unknown}", path.display()),
    };
    let network = network.unwrap();
    let steps: usize = meta["steps"].parse().unwrap();
    let tensors = |prefix: &str| {
        file.tensors()
            .into_iter()
            .filter_map(|(name, view)| Some((name.strip_prefix(prefix)?.to_owned(), floats(&view))))
            .collect::<BTreeMap<_, _>>()
    };
    Golden {
        run: Run {
            strategy: Strategy::Data,
            reproducible: false,
            winograd: None,
            clip_norm: meta.get("clip_norm").map(|norm| norm.parse().unwrap()),
            network: Arc::new(network),
            initial: tensors("init."),
            minibatches: (0..steps)
                .map(|s| Minibatch {
                    values: floats(&file.tensor(&format!("x.{s}")).unwrap()),
                    labels: labels(&file.tensor(&format!("y.{s}")).unwrap()),
                })
                .collect(),
            hyper: SgdHyper {
                lr: number("lr"),
                momentum: number("momentum"),
                weight_decay: number("weight_decay"),
                nesterov: meta["nesterov"] == "1",
            },
            ranks: 1,
            workers: 2,
            isa: Isa::detect(),
        },
        losses: floats(&file.tensor("losses").unwrap()),
        last: tensors("final."),
    }
}

fn golden_runs() -> Vec<PathBuf> {
    let root = std::env::var("LOCKSTEP_GOLDEN")
        .map_or_else(|_| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden"), PathBuf::from);
    let mut files: Vec<_> =
        fs::read_dir(root.join("runs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no runs in {}", root.display());
    files
}

fn check(golden: &Golden, run: &Run, what: &str) {
    let result = run.train();
    assert_eq!(result.losses.len(), golden.losses.len());
    for (step, (&got, &want)) in result.losses.iter().zip(&golden.losses).enumerate() {
        let want = f64::from(want);
        let error = (got - want).abs() / want.abs();
        assert!(error <= LOSS_TOLERANCE, "{what}, step {}: loss {got}, PyTorch {want}", step + 1);
    }
    assert_eq!(
        result.parameters.keys().collect::<Vec<_>>(),
        golden.last.keys().collect::<Vec<_>>(),
        "{what}"
    );
    for (name, want) in &golden.last {
        let got = &result.parameters[name];
        let largest = want.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
        // Twelve steps of drift on top of the tolerance of one operator.
        let allowed = 1e-4 + 1e-3 * largest;
        for (i, (g, w)) in got.iter().zip(want).enumerate() {
            assert!((g - w).abs() <= allowed, "{what}: {name}[{i}] is {g}, PyTorch {w}");
        }
    }
}

#[test]
fn runs_agree_with_pytorch_on_every_instruction_set_rank_count_and_strategy() {
    for path in golden_runs() {
        let golden = read(&path);
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        for isa in Isa::all_available() {
            for reproducible in [false, true] {
                let run = Run { isa, reproducible, ..golden.run.clone() };
                check(&golden, &run, &format!("{name} {}, {reproducible}", isa.name()));
            }
        }
        for ranks in [2, 3, 4, 5, 8] {
            for strategy in ["data", "model", "G=2", "auto"] {
                let name = format!("{name} on {ranks} ranks, {strategy}");
                let strategy: Strategy = strategy.parse().unwrap();
                let reproducible = strategy == Strategy::Data && [2, 4, 8].contains(&ranks);
                let run = Run { ranks, strategy, workers: 1, ..golden.run.clone() };
                check(&golden, &run, &name);
                if reproducible {
                    let run = Run { reproducible, ..run };
                    check(&golden, &run, &format!("{name}, reproducible"));
                }
            }
        }
    }
}

#[test]
fn runs_agree_with_pytorch_where_convolutions_are_computed_by_minimal_filtering() {
    let mut taking = 0;
    for path in golden_runs() {
        let golden = read(&path);
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        for tile in [WinogradTile::Two, WinogradTile::Four] {
            let network = &golden.run.network;
            let layers = WinogradLayers::new(network, Some(tile));
            if network.layers().iter().all(|layer| layers.tile(layer.id).is_none()) {
                continue;
            }
            taking += 1;
            for isa in Isa::all_available() {
                let run = Run { isa, winograd: Some(tile), ..golden.run.clone() };
                check(&golden, &run, &format!("{name} {tile:?} {}", isa.name()));
            }
        }
    }
    assert!(taking >= 4, "{taking} runs have such layers");
}

#[test]
fn any_number_of_workers_gives_the_same_bits() {
    for path in golden_runs() {
        let golden = read(&path);
        for reproducible in [false, true] {
            let one = Run { workers: 1, reproducible, ..golden.run.clone() }.train();
            for workers in [2, 3, 4] {
                let more = Run { workers, reproducible, ..golden.run.clone() }.train();
                assert_eq!(more, one, "{} with {workers} workers", path.display());
            }
        }
    }
}

#[test]
fn the_same_run_gives_the_same_bits_again_on_three_ranks() {
    for path in golden_runs() {
        let golden = read(&path);
        let run = Run { ranks: 3, ..golden.run.clone() };
        assert_eq!(run.train(), run.train(), "{}", path.display());
    }
}
