//! What a data set must offer.

use std::fmt;

use crate::DataError;

/// The shape of one sample. Samples without maps (a vector of features) have `h = w = 1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SampleShape {
    /// Channels.
    pub c: usize,
    /// Rows.
    pub h: usize,
    /// Columns.
    pub w: usize,
}

impl SampleShape {
    /// Values in a sample.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(lockstep_data::SampleShape { c: 3, h: 224, w: 224 }.values(), 150_528);
    /// ```
    #[must_use]
    pub fn values(self) -> usize {
        self.c * self.h * self.w
    }
}

impl fmt::Display for SampleShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.c, self.h, self.w)
    }
}

/// Labeled samples, each to be had by its index, from any thread, in any order.
///
/// Reading is a function of the index alone: the same index gives the same values on every rank and thread, in every epoch.
pub trait Dataset: Send + Sync {
    /// Samples. At least one.
    fn len(&self) -> usize;

    /// False: a data set has samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shape of every sample. No side is zero.
    fn shape(&self) -> SampleShape;

    /// Classes; labels are less.
    fn classes(&self) -> usize;

    /// What to call it in messages, such as `MNIST train`.
    fn name(&self) -> &str;

    /// Writes sample `index`, normalized, as plain `(c, h, w)` into `dst` and returns its label.
    ///
    /// # Errors
    /// The sample cannot be read or decoded; the error names the file.
    ///
    /// # Panics
    /// If `index` is not below [`len`](Self::len), or `dst` has another length than [`SampleShape::values`].
    fn read(&self, index: usize, dst: &mut [f32]) -> Result<u32, DataError>;

    /// Bytes it keeps in memory.
    fn resident_bytes(&self) -> usize;

    /// A number that is the same on two ranks if they have the same samples, and almost surely only then.
    fn fingerprint(&self) -> u64;
}

/// Panics when a caller of [`Dataset::read`] breaks its contract.
pub(crate) fn check_read(dataset: &impl Dataset, index: usize, dst: &[f32]) {
    assert!(
        index < dataset.len(),
        "sample {index} of {}, which has {} samples",
        dataset.name(),
        dataset.len()
    );
    assert!(
        dst.len() == dataset.shape().values(),
        "dst of {} values for a sample of {} ({})",
        dst.len(),
        dataset.name(),
        dataset.shape()
    );
}
