//! MNIST, and every data set that comes in its form: IDX images with ten classes (Fashion-MNIST, KMNIST).

use std::path::{Path, PathBuf};

use crate::dataset::check_read;
use crate::idx::Idx;
use crate::random::{hash_bytes, hash_words};
use crate::{DataError, Dataset, SampleShape};

const CLASSES: usize = 10;

/// Mean and standard deviation of MNIST's training pixels, as PyTorch's MNIST example rounds them.
const MEAN: f32 = 0.1307;
const DEVIATION: f32 = 0.3081;

const WANTED: &str = "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and \
                      t10k-labels-idx1-ubyte (plain or .gz)";

/// Which part of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Split {
    /// What is trained on.
    Train,
    /// What is only scored.
    Test,
}

/// MNIST in memory, one byte a pixel; a pixel `x` is delivered as `(x / 255 - 0.1307) / 0.3081`.
///
/// # Examples
/// ```
/// use lockstep_data::{Dataset, Mnist, Split, bundled_mnist};
///
/// let test = Mnist::open(&bundled_mnist()?, Split::Test)?;
/// let mut image = vec![0.0; test.shape().values()];
/// assert_eq!(test.read(0, &mut image)?, 7);
/// // The corners are black.
/// assert_eq!(image[0], -0.1307 / 0.3081);
/// # Ok::<(), lockstep_data::DataError>(())
/// ```
#[derive(Debug)]
pub struct Mnist {
    name: &'static str,
    images: Idx<3>,
    labels: Vec<u8>,
    normalized: Box<[f32; 256]>,
    fingerprint: u64,
}

impl Mnist {
    /// Reads images and labels from a directory. Files may be plain or gzip, and be named `train-images-idx3-ubyte` or
    /// `train-images.idx3-ubyte`, with or without `.gz`; a file's content decides how it is read, not its name.
    ///
    /// # Errors
    /// A file is missing, damaged, cut short, of another kind, or the two do not belong together; the error names it.
    pub fn open(directory: &Path, split: Split) -> Result<Self, DataError> {
        if !directory.is_dir() {
            return Err(DataError::NoDirectory { path: directory.to_owned(), wanted: WANTED });
        }
        let (name, part) = match split {
            Split::Train => ("MNIST train", "train"),
            Split::Test => ("MNIST test", "t10k"),
        };
        let images_path = find(directory, part, "images", 3)?;
        let labels_path = find(directory, part, "labels", 1)?;
        let images = Idx::<3>::read(&images_path)?;
        let labels = Idx::<1>::read(&labels_path)?.values;
        if images.dimensions[0] != labels.len() {
            return Err(DataError::CountMismatch {
                images_path,
                images: images.dimensions[0],
                labels_path,
                labels: labels.len(),
            });
        }
        if let Some(index) = labels.iter().position(|&label| usize::from(label) >= CLASSES) {
            return Err(DataError::LabelOutOfRange {
                path: labels_path,
                index,
                label: u32::from(labels[index]),
                classes: CLASSES,
            });
        }
        let fingerprint = fingerprint(&images, &labels);
        Ok(Self { name, images, labels, normalized: Box::new(normalized()), fingerprint })
    }
}

impl Dataset for Mnist {
    fn len(&self) -> usize {
        self.labels.len()
    }

    fn shape(&self) -> SampleShape {
        let [_, h, w] = self.images.dimensions;
        SampleShape { c: 1, h, w }
    }

    fn classes(&self) -> usize {
        CLASSES
    }

    fn name(&self) -> &str {
        self.name
    }

    fn read(&self, index: usize, dst: &mut [f32]) -> Result<u32, DataError> {
        check_read(self, index, dst);
        let pixels = &self.images.values[index * dst.len()..][..dst.len()];
        for (value, &pixel) in dst.iter_mut().zip(pixels) {
            *value = self.normalized[usize::from(pixel)];
        }
        Ok(u32::from(self.labels[index]))
    }

    fn resident_bytes(&self) -> usize {
        self.images.values.capacity() + self.labels.capacity() + size_of_val(&*self.normalized)
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// Whether a directory has MNIST's training images; the rest is checked when it is opened.
pub(crate) fn is_mnist(directory: &Path) -> bool {
    find(directory, "train", "images", 3).is_ok()
}

fn find(directory: &Path, part: &str, kind: &str, dimensions: usize) -> Result<PathBuf, DataError> {
    let stem = format!("{part}-{kind}");
    let candidates: Vec<String> = ["-", "."]
        .iter()
        .flat_map(|dash| ["", ".gz"].map(|end| format!("{stem}{dash}idx{dimensions}-ubyte{end}")))
        .collect();
    candidates.iter().map(|name| directory.join(name)).find(|path| path.is_file()).ok_or_else(
        || DataError::NoFile { directory: directory.to_owned(), wanted: stem, candidates },
    )
}

/// Every pixel's normalized value, by PyTorch's steps: each rounds to f32.
fn normalized() -> [f32; 256] {
    std::array::from_fn(|pixel| (pixel as f32 / 255.0 - MEAN) / DEVIATION)
}

fn fingerprint(images: &Idx<3>, labels: &[u8]) -> u64 {
    let [n, h, w] = images.dimensions.map(|size| size as u64);
    hash_words(&[n, h, w, hash_bytes(&images.values), hash_bytes(labels)])
}

#[cfg(test)]
mod tests;
