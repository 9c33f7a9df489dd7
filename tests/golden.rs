//! Every operator, and whole training runs, against PyTorch's values and gradients, computed in double precision, on every
//! instruction set of this CPU.
//!
//! Reads `ops/*.safetensors` and `runs/*.safetensors` of the directory that `LOCKSTEP_GOLDEN` names (default: `tests/golden`); a case of an unknown
//! operator, or with a parameter or tensor that its check does not use, is a failure. `tests/golden/make_golden.py` made
//! the values. The runs are in `golden_runs`.
#![expect(clippy::unwrap_used, reason = "in tests, helpers included, a panic is the report")]

mod golden_ops_cases;
mod golden_runs;
mod support;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use golden_ops_cases::{Case, check};
use lockstep::ops::Isa;

fn case_files() -> Vec<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let golden = std::env::var_os("LOCKSTEP_GOLDEN").map_or(default, PathBuf::from);
    let folder = golden.join("ops");
    let entries = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    files.sort();
    files
}

#[test]
fn every_operator_agrees_with_pytorch_on_every_isa() {
    let files = case_files();
    assert!(!files.is_empty(), "no cases");
    let mut failed = Vec::new();
    for file in &files {
        for isa in Isa::all_available() {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let case = Case::read(file);
                check(&case, isa);
                case.finish();
            }));
            if outcome.is_err() {
                failed.push(format!("{} on {}", file.display(), isa.name()));
            }
        }
    }
    assert!(failed.is_empty(), "of {} cases these fail:\n{}", files.len(), failed.join("\n"));
}

/// Whether the check of a file panics.
fn is_refused(file: &Path) -> bool {
    catch_unwind(|| {
        let case = Case::read(file);
        check(&case, Isa::detect());
        case.finish();
    })
    .is_err()
}

#[test]
fn unknown_operators_and_tensors_are_refused() {
    use safetensors::tensor::{Dtype, TensorView};

    let folder = tempfile::tempdir().unwrap();
    let bytes = [1.0_f32.to_le_bytes(), (-2.0_f32).to_le_bytes()].concat();
    let zeros = [0; 8];
    let relu_of_x = [1.0_f32.to_le_bytes(), 0.0_f32.to_le_bytes()].concat();
    let view = |data| TensorView::new(Dtype::F32, vec![1, 2], data).unwrap();
    let whole = [("x", &bytes[..]), ("out", &relu_of_x), ("d_out", &zeros), ("d_x", &zeros)];
    let extra = [&whole[..], &[("hidden", &bytes[..])]].concat();
    let wrong = [("x", &bytes[..]), ("out", &bytes), ("d_out", &zeros), ("d_x", &zeros)];
    for (op, extra_parameter, tensors, refused) in [
        ("relu", None, &whole[..], false),
        ("gelu", None, &whole, true),
        ("relu", Some("slope"), &whole, true),
        ("relu", None, &extra, true),
        ("relu", None, &whole[..3], true),
        ("relu", None, &wrong, true),
    ] {
        let parameters = [("op", Some(op)), ("slope", extra_parameter)].into_iter();
        let metadata =
            parameters.filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
        let tensors: Vec<_> = tensors.iter().map(|&(name, data)| (name, view(data))).collect();
        let file = folder.path().join("case.safetensors");
        safetensors::serialize_to_file(tensors, Some(metadata.collect()), &file).unwrap();
        assert_eq!(is_refused(&file), refused, "{op}, {extra_parameter:?}");
    }
}
