//! Checkpoints on disk: PyTorch's names, plain layouts, safetensors.
//!
//! `DIR/last/weights.safetensors` is written beside its place and renamed, so that a crash leaves the
//! previous file whole.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use lockstep_graph::{Layer, Network, Param};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::error::RunError;

/// A named tensor in plain order.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedTensor {
    /// PyTorch-style name, `conv1.weight`.
    pub name: String,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Values in row-major order.
    pub values: Vec<f32>,
}

/// Where a checkpoint's weights are.
#[must_use]
pub fn weights_path(directory: &Path) -> PathBuf {
    directory.join("last").join("weights.safetensors")
}

/// Writes `DIR/last/weights.safetensors`.
///
/// # Errors
/// The directory cannot be made or the file cannot be written; the previous file is then still there.
///
/// # Panics
/// A tensor has another number of values than its shape, or two have the same name.
pub fn save_weights(directory: &Path, tensors: &[NamedTensor]) -> Result<PathBuf, RunError> {
    let path = weights_path(directory);
    let fail = |source| RunError::File { action: "write", path: path.clone(), source };
    let folder = directory.join("last");
    fs::create_dir_all(&folder).map_err(fail)?;
    let bytes: Vec<Vec<u8>> =
        tensors.iter().map(|t| t.values.iter().flat_map(|v| v.to_le_bytes()).collect()).collect();
    let mut views = Vec::with_capacity(tensors.len());
    for (tensor, bytes) in tensors.iter().zip(&bytes) {
        let view = TensorView::new(Dtype::F32, tensor.shape.clone(), bytes)
            .expect("shape and values of a parameter agree");
        views.push((tensor.name.as_str(), view));
    }
    let file = safetensors::serialize(views, None).expect("names are unique");
    let partial = folder.join("weights.safetensors.partial");
    let write = || -> std::io::Result<()> {
        let mut out = File::create(&partial)?;
        out.write_all(&file)?;
        out.sync_all()?;
        fs::rename(&partial, &path)?;
        // Makes the renaming itself durable.
        File::open(&folder)?.sync_all()
    };
    write().map_err(|source| {
        // What is left of the attempt is of no use; the error that matters is the first.
        let _ = fs::remove_file(&partial);
        fail(source)
    })?;
    Ok(path)
}

/// Reads a weights file: the path itself, or the file that [`save_weights`] leaves under a directory.
///
/// # Errors
/// The file cannot be read, is not safetensors, or holds something else than 32-bit floats; the message names it.
pub fn load_weights(path: &Path) -> Result<BTreeMap<String, NamedTensor>, RunError> {
    let path = if path.is_dir() { weights_path(path) } else { path.to_owned() };
    let bytes = fs::read(&path).map_err(|source| RunError::File {
        action: "read",
        path: path.clone(),
        source,
    })?;
    let bad = |reason: String| RunError::BadCheckpoint { path: path.clone(), reason };
    let file = SafeTensors::deserialize(&bytes).map_err(|e| bad(e.to_string()))?;
    let mut tensors = BTreeMap::new();
    for (name, view) in file.tensors() {
        if view.dtype() != Dtype::F32 {
            return Err(bad(format!("{name} is {:?}, expected F32", view.dtype())));
        }
        // Chunks of four bytes need no alignment, so files of any header length load.
        let (chunks, _) = view.data().as_chunks::<4>();
        let values = chunks.iter().map(|&c| f32::from_le_bytes(c)).collect();
        let tensor = NamedTensor { name: name.clone(), shape: view.shape().to_vec(), values };
        tensors.insert(name, tensor);
    }
    Ok(tensors)
}

/// A parameter among named tensors: under the name of the layer that keeps it, or of one that is tied to that. A file of PyTorch's
/// may have tied parameters under any of their names.
#[must_use]
pub fn find_tensor<'a>(
    network: &Network,
    tensors: &'a BTreeMap<String, NamedTensor>,
    layer: &Layer,
    param: &Param,
) -> Option<&'a NamedTensor> {
    tensor_names(network, layer, param).find_map(|name| tensors.get(&name))
}

/// The names that a parameter of a layer may have, its own first.
pub(crate) fn tensor_names<'a>(
    network: &'a Network,
    layer: &'a Layer,
    param: &'a Param,
) -> impl Iterator<Item = String> + 'a {
    let tied = network.tied(layer.id).filter(|_| param.role.is_trainable());
    std::iter::once(layer).chain(tied).map(|layer| format!("{}.{}", layer.name, param.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, shape: &[usize], values: &[f32]) -> NamedTensor {
        NamedTensor { name: name.to_owned(), shape: shape.to_vec(), values: values.to_vec() }
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let tensors =
            [tensor("fc.bias", &[2], &[1.5, -0.0]), tensor("fc.weight", &[2, 1], &[f32::MIN, 3.0])];
        let path = save_weights(folder.path(), &tensors).unwrap();
        assert_eq!(path, weights_path(folder.path()));
        let loaded: Vec<_> = load_weights(folder.path()).unwrap().into_values().collect();
        assert_eq!(loaded, tensors);
    }

    #[test]
    fn a_failed_write_leaves_the_previous_file() {
        let folder = tempfile::tempdir().unwrap();
        let old = [tensor("a", &[1], &[1.0])];
        save_weights(folder.path(), &old).unwrap();
        // A folder where the partial file should go makes the write fail.
        fs::create_dir(folder.path().join("last/weights.safetensors.partial")).unwrap();
        assert!(save_weights(folder.path(), &[tensor("a", &[1], &[2.0])]).is_err());
        assert_eq!(load_weights(folder.path()).unwrap()["a"], old[0]);
    }

    #[test]
    fn damaged_files_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        let huge_header = (1_u64 << 60).to_le_bytes();
        for content in [&b""[..], b"version https://git-lfs", &huge_header] {
            fs::write(&path, content).unwrap();
            let message = load_weights(&path).unwrap_err().to_string();
            assert!(message.contains("x.safetensors"), "{message}");
        }
    }
}
