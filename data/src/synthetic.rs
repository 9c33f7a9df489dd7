//! Samples made up on the spot: for measurements without files, and tests.

use crate::dataset::check_read;
use crate::random::{below, hash_words, random};
use crate::{DataError, Dataset, SampleShape};

/// Half the difference that a class makes to a value.
const SIGNAL: f32 = 0.5;

/// Noise is even in `-NOISE..NOISE`: with the signal, values have mean 0 and variance 0.25 + 1.5^2 / 3 = 1.
const NOISE: f32 = 1.5;

/// Side of the squares of one sign that a class's pattern is made of, so that convolution and pooling see it as well.
const TILE: usize = 4;

/// Noise around a pattern of squares of its own for each class: a network can learn it, and every sample is a function of
/// (seed, index) alone.
///
/// # Examples
/// ```
/// use lockstep_data::{Dataset, SampleShape, Synthetic};
///
/// let data = Synthetic::new(SampleShape { c: 3, h: 8, w: 8 }, 1000, 64, 1);
/// let (mut once, mut again) = ([0.0; 192], [0.0; 192]);
/// let label = data.read(5, &mut once)?;
/// assert_eq!(label, data.read(5, &mut again)?);
/// assert_eq!(once, again);
/// # Ok::<(), lockstep_data::DataError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synthetic {
    shape: SampleShape,
    classes: usize,
    len: usize,
    seed: u64,
    first: usize,
    name: String,
}

impl Synthetic {
    /// `len` samples of `classes` classes.
    ///
    /// # Panics
    /// If there are no samples, no classes, or a side is 0.
    #[must_use]
    pub fn new(shape: SampleShape, classes: usize, len: usize, seed: u64) -> Self {
        assert!(len > 0, "a data set has at least one sample");
        assert!(classes > 0, "a data set has at least one class");
        assert!(shape.values() > 0, "a sample of {shape} has no values");
        Self { shape, classes, len, seed, first: 0, name: format!("synthetic {shape}") }
    }

    /// Other samples of the same classes: those that a longer data set would have from index `first` on.
    #[must_use]
    pub fn starting_at(self, first: usize) -> Self {
        Self { first, ..self }
    }
}

impl Dataset for Synthetic {
    fn len(&self) -> usize {
        self.len
    }

    fn shape(&self) -> SampleShape {
        self.shape
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read(&self, index: usize, dst: &mut [f32]) -> Result<u32, DataError> {
        check_read(self, index, dst);
        let noise = hash_words(&[self.seed, (self.first + index) as u64]);
        let label = below(random(noise, u64::MAX), self.classes as u64);
        let pattern = hash_words(&[self.seed, label, u64::MAX]);
        let SampleShape { h, w, .. } = self.shape;
        let (mut bits, mut counter) = (0, 0);
        for (row, values) in dst.chunks_exact_mut(w).enumerate() {
            let (channel, y) = (row / h, row % h);
            let tiles = random(pattern, (channel * h.div_ceil(TILE) + y / TILE) as u64);
            for (x, value) in values.iter_mut().enumerate() {
                // Four values share 64 random bits.
                if counter % 4 == 0 {
                    bits = random(noise, counter / 4);
                }
                counter += 1;
                let sign = if (tiles >> (x / TILE % 64)) & 1 == 1 { SIGNAL } else { -SIGNAL };
                *value = sign + noise_of(bits as u16);
                bits >>= 16;
            }
        }
        Ok(label as u32)
    }

    fn resident_bytes(&self) -> usize {
        self.name.capacity()
    }

    fn fingerprint(&self) -> u64 {
        let SampleShape { c, h, w } = self.shape;
        let sizes = [c, h, w, self.classes, self.len, self.first].map(|size| size as u64);
        hash_words(&[self.seed, hash_words(&sizes)])
    }
}

/// One of 65,536 evenly spaced values, symmetric around 0.
fn noise_of(bits: u16) -> f32 {
    (f32::from(bits) + 0.5) * (2.0 * NOISE / 65_536.0) - NOISE
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: SampleShape = SampleShape { c: 2, h: 9, w: 11 };

    fn samples(data: &Synthetic) -> Vec<(u32, Vec<f32>)> {
        let read = |index| {
            let mut values = vec![0.0; data.shape().values()];
            (data.read(index, &mut values).unwrap(), values)
        };
        (0..data.len()).map(read).collect()
    }

    /// The mean sample of each class.
    fn class_means(samples: &[(u32, Vec<f32>)], classes: usize) -> Vec<Vec<f32>> {
        let mean = |class: usize| {
            let of_class: Vec<_> = samples.iter().filter(|s| s.0 as usize == class).collect();
            let sum = |k: usize| of_class.iter().map(|s| s.1[k]).sum::<f32>();
            (0..SHAPE.values()).map(|k| sum(k) / of_class.len() as f32).collect()
        };
        (0..classes).map(mean).collect()
    }

    #[test]
    fn values_have_mean_0_and_variance_1() {
        // Over many seeds: the signs of one seed's ten patterns of 18 tiles do not average out.
        let values: Vec<f64> = (0..40)
            .flat_map(|seed| samples(&Synthetic::new(SHAPE, 10, 200, seed)))
            .flat_map(|(_, values)| values.into_iter().map(f64::from))
            .collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        // The mean of 0.5 times some 140 x 40 even signs deviates by 0.0067: five deviations.
        assert!(mean.abs() < 0.033, "mean {mean}");
        assert!((variance - 1.0).abs() < 0.01, "variance {variance}");
    }

    #[test]
    fn unseen_samples_are_told_apart_by_what_was_seen() {
        let train = Synthetic::new(SHAPE, 10, 1000, 3);
        let means = class_means(&samples(&train), 10);
        let test = samples(&Synthetic::new(SHAPE, 10, 200, 3).starting_at(1000));
        let distance =
            |a: &[f32], b: &[f32]| -> f32 { a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum() };
        let right = test.iter().filter(|(label, values)| {
            let nearest = (0..10).min_by(|&a, &b| {
                distance(&means[a], values).total_cmp(&distance(&means[b], values))
            });
            nearest == Some(*label as usize)
        });
        let right = right.count();
        assert!(right >= 190, "{right} of 200");
    }

    #[test]
    fn starting_later_gives_the_longer_set_s_samples() {
        let long = samples(&Synthetic::new(SHAPE, 10, 30, 8));
        let late = samples(&Synthetic::new(SHAPE, 10, 10, 8).starting_at(20));
        assert_eq!(late, long[20..]);
    }

    #[test]
    fn the_fingerprint_depends_on_everything() {
        let data = Synthetic::new(SHAPE, 10, 30, 8);
        let others = [
            Synthetic::new(SampleShape { c: 2, h: 11, w: 9 }, 10, 30, 8),
            Synthetic::new(SHAPE, 11, 30, 8),
            Synthetic::new(SHAPE, 10, 31, 8),
            Synthetic::new(SHAPE, 10, 30, 9),
            data.clone().starting_at(1),
        ];
        for other in others {
            assert_ne!(other.fingerprint(), data.fingerprint(), "{other:?}");
        }
    }

    #[test]
    #[should_panic(expected = "sample 30 of synthetic 2x9x11, which has 30 samples")]
    fn reading_past_the_end_panics() {
        let _ = Synthetic::new(SHAPE, 10, 30, 8).read(30, &mut [0.0; 198]);
    }
}
