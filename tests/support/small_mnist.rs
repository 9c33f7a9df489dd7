//! A small data set in MNIST's file format: blurred bars whose place tells the class.

use std::fs;
use std::path::Path;

/// Writes `train` and `test` samples into a folder.
pub(crate) fn write(folder: &Path, train: usize, test: usize) {
    for (prefix, n, seed) in [("train", train, 1), ("t10k", test, 2)] {
        let (images, labels) = idx(n, seed);
        fs::write(folder.join(format!("{prefix}-images-idx3-ubyte")), images).unwrap();
        fs::write(folder.join(format!("{prefix}-labels-idx1-ubyte")), labels).unwrap();
    }
}

fn idx(n: usize, seed: u32) -> (Vec<u8>, Vec<u8>) {
    let count = u32::try_from(n).unwrap().to_be_bytes();
    let size = 28_u32.to_be_bytes();
    let mut images = [0x803_u32.to_be_bytes(), count, size, size].concat();
    let mut labels = [0x801_u32.to_be_bytes(), count].concat();
    let mut random = seed;
    for i in 0..n {
        let class = (i * 7 + seed as usize) % 10;
        labels.push(u8::try_from(class).unwrap());
        for y in 0..28 {
            for x in 0..28 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let noise = (random >> 24) / 4;
                let on_bar = if class < 5 { y / 5 == class } else { x / 5 == class - 5 };
                images.push(u8::try_from(if on_bar { 190 + noise } else { noise }).unwrap());
            }
        }
    }
    (images, labels)
}
