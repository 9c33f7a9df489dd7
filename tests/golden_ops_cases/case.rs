//! A golden case: parameters and tensors of one file, each of which a check must use.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::str::FromStr;

use lockstep::ops::Maps;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};

/// A tensor in PyTorch's plain layout.
#[derive(Debug)]
pub(crate) struct Tensor {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f32>,
}

impl Tensor {
    fn new(view: &TensorView<'_>) -> Tensor {
        let (chunks, _) = view.data().as_chunks::<4>();
        let values = match view.dtype() {
            Dtype::F32 => chunks.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect(),
            // Labels, which are small enough to be exact.
            Dtype::I32 => chunks.iter().map(|&bytes| i32::from_le_bytes(bytes) as f32).collect(),
            dtype => panic!("tensors of {dtype:?} are not expected"),
        };
        Tensor { shape: view.shape().to_vec(), values }
    }

    /// Samples of an activation.
    pub(crate) fn mb(&self) -> usize {
        self.shape[0]
    }

    /// The shape of a sample: (n, c, h, w), or (n, features).
    pub(crate) fn maps(&self) -> Maps {
        match self.shape[..] {
            [_, c, h, w] => Maps { c, h, w },
            [_, c] => Maps { c, h: 1, w: 1 },
            _ => panic!("{:?} is no activation", self.shape),
        }
    }
}

/// What one file holds, and what of it has been used.
#[derive(Debug)]
pub(crate) struct Case {
    name: String,
    parameters: BTreeMap<String, String>,
    tensors: BTreeMap<String, Tensor>,
    used: RefCell<BTreeSet<String>>,
}

impl Case {
    pub(crate) fn read(file: &Path) -> Case {
        let name = file.display().to_string();
        let bytes = fs::read(file).unwrap_or_else(|error| panic!("cannot read {name}: {error}"));
        let (_, header) = SafeTensors::read_metadata(&bytes)
            .unwrap_or_else(|error| panic!("{name} has no header: {error}"));
        let file = SafeTensors::deserialize(&bytes)
            .unwrap_or_else(|error| panic!("{name} is no safetensors file: {error}"));
        Case {
            parameters: header.metadata().clone().unwrap_or_default().into_iter().collect(),
            tensors: file.iter().map(|(key, view)| (key.to_owned(), Tensor::new(&view))).collect(),
            used: RefCell::default(),
            name,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A parameter that the case must have.
    pub(crate) fn parameter<T: FromStr>(&self, key: &str) -> T {
        self.optional(key).unwrap_or_else(|| panic!("{}: no parameter {key}", self.name))
    }

    /// A parameter that the case may have.
    pub(crate) fn optional<T: FromStr>(&self, key: &str) -> Option<T> {
        let text = self.parameters.get(key)?;
        self.used.borrow_mut().insert(key.to_owned());
        let value = text.parse().ok();
        Some(value.unwrap_or_else(|| panic!("{}: {key} = {text} makes no sense", self.name)))
    }

    /// A parameter that is written as 0 or 1.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.parameter::<u8>(key) != 0
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.tensors.contains_key(key)
    }

    pub(crate) fn tensor(&self, key: &str) -> &Tensor {
        self.used.borrow_mut().insert(key.to_owned());
        self.tensors.get(key).unwrap_or_else(|| panic!("{}: no tensor {key}", self.name))
    }

    /// The names of the inputs, in alphabetical order.
    pub(crate) fn inputs(&self) -> Vec<&str> {
        let names = self.tensors.keys().map(String::as_str);
        names.filter(|name| *name != "out" && !name.starts_with("d_")).collect()
    }

    /// Compares a result with the tensor of that name, as the script that made it allows.
    #[track_caller]
    pub(crate) fn compare(&self, key: &str, got: &[f32]) {
        let want = &self.tensor(key).values;
        assert_eq!(got.len(), want.len(), "{}: the size of {key}", self.name);
        let largest = want.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
        let tolerance = 1e-5 + 1e-4 * largest;
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            let close = (got - want).abs() <= tolerance;
            assert!(close, "{}: {key}[{i}] is {got}, not {want} ± {tolerance}", self.name);
        }
    }

    /// Fails if something of the case has not been used.
    pub(crate) fn finish(&self) {
        let used = self.used.borrow();
        let keys = self.parameters.keys().chain(self.tensors.keys());
        let unknown: Vec<_> = keys.filter(|key| !used.contains(*key)).collect();
        assert!(unknown.is_empty(), "{}: not checked: {unknown:?}", self.name);
    }
}
