//! MNIST files: the bundled ones, both kinds in all namings, and everything that can be wrong with them.

use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use super::*;
use crate::bundled_mnist;

const IMAGES: &str = "train-images-idx3-ubyte";
const LABELS: &str = "train-labels-idx1-ubyte";

/// An IDX file of bytes.
fn idx(dimensions: &[u32], values: &[u8]) -> Vec<u8> {
    let mut file = vec![0, 0, 8, dimensions.len() as u8];
    file.extend(dimensions.iter().flat_map(|size| size.to_be_bytes()));
    file.extend(values);
    file
}

/// Three images of 2 x 2 pixels.
fn images() -> Vec<u8> {
    idx(&[3, 2, 2], &[0, 255, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100])
}

fn labels() -> Vec<u8> {
    idx(&[3], &[9, 0, 4])
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn directory(files: &[(&str, &[u8])]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in files {
        fs::write(directory.path().join(name), content).unwrap();
    }
    directory
}

fn open(files: &[(&str, &[u8])]) -> Result<Mnist, DataError> {
    Mnist::open(directory(files).path(), Split::Train)
}

#[track_caller]
fn check_reads(files: &[(&str, &[u8])]) {
    let mnist = open(files).unwrap();
    assert_eq!((mnist.len(), mnist.shape()), (3, SampleShape { c: 1, h: 2, w: 2 }));
    let mut image = [0.0; 4];
    assert_eq!(mnist.read(0, &mut image).unwrap(), 9);
    let expected = [0.0, 255.0, 10.0, 20.0].map(|x: f32| (x / 255.0 - 0.1307) / 0.3081);
    assert_eq!(image, expected);
    assert_eq!(mnist.read(2, &mut image).unwrap(), 4);
    assert_eq!(image[3], (100.0_f32 / 255.0 - 0.1307) / 0.3081);
}

/// Checks that opening fails, with a message that names the file at fault and says the rest.
#[track_caller]
fn check_fails(files: &[(&str, &[u8])], at_fault: &str, says: &str) {
    let message = open(files).unwrap_err().to_string();
    assert!(message.contains(at_fault), "{message} (should name {at_fault})");
    assert!(message.contains(says), "{message} (should say {says})");
}

#[test]
fn the_bundled_files_hold_what_is_published() {
    let cases = [(Split::Train, 60_000, [5, 0, 4, 1, 9]), (Split::Test, 10_000, [7, 2, 1, 0, 4])];
    for (split, len, first) in cases {
        let mnist = Mnist::open(&bundled_mnist().unwrap(), split).unwrap();
        assert_eq!(mnist.len(), len);
        assert_eq!((mnist.shape(), mnist.classes()), (SampleShape { c: 1, h: 28, w: 28 }, 10));
        let mut image = vec![0.0; 784];
        let labels: [u32; 5] = std::array::from_fn(|index| mnist.read(index, &mut image).unwrap());
        assert_eq!(labels, first);
        assert!((len * 785..len * 785 + 4096).contains(&mnist.resident_bytes()));
    }
}

#[test]
fn bundled_training_pixels_are_normalized() {
    let mnist = Mnist::open(&bundled_mnist().unwrap(), Split::Train).unwrap();
    let (mut image, mut sum, mut squares) = (vec![0.0; 784], 0.0, 0.0);
    for index in 0..mnist.len() {
        mnist.read(index, &mut image).unwrap();
        for &value in &image {
            sum += f64::from(value);
            squares += f64::from(value) * f64::from(value);
        }
    }
    let n = 60_000.0 * 784.0;
    // The constants are rounded to four digits.
    assert!((sum / n).abs() < 2e-4, "mean {}", sum / n);
    assert!((squares / n - 1.0).abs() < 4e-4, "mean square {}", squares / n);
}

#[test]
fn plain_and_gzip_files_read_alike_under_every_name() {
    let (raw, raw_labels) = (images(), labels());
    let (zipped, zipped_labels) = (gzip(&raw), gzip(&raw_labels));
    check_reads(&[(IMAGES, &raw), (LABELS, &raw_labels)]);
    check_reads(&[(&format!("{IMAGES}.gz"), &zipped), (&format!("{LABELS}.gz"), &zipped_labels)]);
    check_reads(&[("train-images.idx3-ubyte", &raw), ("train-labels.idx1-ubyte", &raw_labels)]);
    check_reads(&[
        ("train-images.idx3-ubyte.gz", &zipped),
        ("train-labels.idx1-ubyte.gz", &zipped_labels),
    ]);
}

#[test]
fn content_decides_not_the_name() {
    // A browser that unpacked on the way leaves the first, a careless rename the second.
    check_reads(&[(&format!("{IMAGES}.gz"), &images()), (LABELS, &gzip(&labels()))]);
}

#[test]
fn a_missing_directory_says_what_it_should_hold() {
    let error = Mnist::open(Path::new("no/such/place"), Split::Test).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no directory no/such/place: give the one that holds train-images-idx3-ubyte, train-labels-idx1-ubyte, \
         t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte (plain or .gz)"
    );
}

#[test]
fn a_missing_file_is_named_with_the_names_it_may_have() {
    check_fails(&[(LABELS, &labels())], "no train-images in", "train-images.idx3-ubyte.gz");
    check_fails(&[(IMAGES, &images())], "no train-labels in", "train-labels-idx1-ubyte.gz");
}

#[test]
fn another_kind_of_file_is_told_by_its_magic() {
    check_fails(
        &[(IMAGES, &labels()), (LABELS, &labels())],
        IMAGES,
        "starts with 0x00000801 where an IDX file of 3-dimensional bytes starts with 0x00000803",
    );
    check_fails(&[(IMAGES, &images()), (LABELS, b"<!DOCTYPE html>")], LABELS, "0x3c21444f");
    check_fails(&[(IMAGES, &gzip(b"BMbm")), (LABELS, &labels())], IMAGES, "0x424d626d");
}

#[test]
fn short_files_say_how_much_is_missing() {
    let whole = images();
    for end in 0..whole.len() {
        let expected = if end < 16 { "16 bytes" } else { "28 bytes" };
        check_fails(&[(IMAGES, &whole[..end]), (LABELS, &labels())], IMAGES, expected);
        check_fails(
            &[(IMAGES, &whole[..end]), (LABELS, &labels())],
            IMAGES,
            &format!("{end} are there"),
        );
    }
}

#[test]
fn gzip_files_that_end_early_are_cut_short() {
    let whole = gzip(&images());
    for end in 2..whole.len() {
        check_fails(&[(IMAGES, &whole[..end]), (LABELS, &labels())], IMAGES, "is cut short");
    }
}

#[test]
fn damaged_gzip_files_are_noticed() {
    let mut whole = gzip(&images());
    let checksum = whole.len() - 8;
    whole[checksum] ^= 1;
    check_fails(&[(IMAGES, &whole), (LABELS, &labels())], IMAGES, "is a damaged gzip file");
}

#[test]
fn longer_files_are_refused() {
    let mut longer = images();
    longer.push(0);
    check_fails(&[(IMAGES, &longer), (LABELS, &labels())], IMAGES, "more than the 28 bytes");
    check_fails(&[(IMAGES, &gzip(&longer)), (LABELS, &labels())], IMAGES, "more than the 28");
}

#[test]
fn impossible_headers_reserve_no_memory() {
    let most = idx(&[u32::MAX, u32::MAX, u32::MAX], &[]);
    check_fails(&[(IMAGES, &most), (LABELS, &labels())], IMAGES, "impossible dimensions");
    // 16 TB promised, 12 bytes there.
    let many = idx(&[u32::MAX, 64, 64], &[0; 12]);
    check_fails(&[(IMAGES, &many), (LABELS, &labels())], IMAGES, "28 are there");
    check_fails(&[(IMAGES, &gzip(&many)), (LABELS, &labels())], IMAGES, "28 are there");
}

#[test]
fn images_and_labels_must_be_equally_many() {
    let two = idx(&[2], &[1, 2]);
    let says = format!("{LABELS}: the two files do not belong together");
    check_fails(&[(IMAGES, &images()), (LABELS, &two)], "3 images in", &says);
    check_fails(&[(IMAGES, &images()), (LABELS, &two)], IMAGES, "but 2 labels in");
}

#[test]
fn labels_are_below_ten() {
    let wrong = idx(&[3], &[9, 10, 255]);
    check_fails(&[(IMAGES, &images()), (LABELS, &wrong)], LABELS, "label 10 of sample 1");
}

#[test]
fn data_sets_without_samples_or_pixels_are_refused() {
    let says = "holds no samples (dimensions [0, 28, 28])";
    check_fails(&[(IMAGES, &idx(&[0, 28, 28], &[])), (LABELS, &idx(&[0], &[]))], IMAGES, says);
    let flat = idx(&[3, 0, 28], &[]);
    check_fails(&[(IMAGES, &flat), (LABELS, &labels())], IMAGES, "[3, 0, 28]");
}

#[test]
fn the_fingerprint_depends_on_every_pixel_and_label() {
    let whole = open(&[(IMAGES, &images()), (LABELS, &labels())]).unwrap().fingerprint();
    let zipped = open(&[(IMAGES, &gzip(&images())), (LABELS, &labels())]).unwrap().fingerprint();
    assert_eq!(whole, zipped);
    for at in 16..28 {
        let mut other = images();
        other[at] ^= 1;
        let other = open(&[(IMAGES, &other), (LABELS, &labels())]).unwrap();
        assert_ne!(other.fingerprint(), whole, "pixel at byte {at}");
    }
    let other = open(&[(IMAGES, &images()), (LABELS, &idx(&[3], &[9, 0, 5]))]).unwrap();
    assert_ne!(other.fingerprint(), whole);
    let turned = idx(&[3, 1, 4], &images()[16..]);
    let other = open(&[(IMAGES, &turned), (LABELS, &labels())]).unwrap();
    assert_ne!(other.fingerprint(), whole);
}

#[test]
#[should_panic(expected = "dst of 3 values for a sample of MNIST train (1x2x2)")]
fn a_dst_of_another_size_panics() {
    let _ = open(&[(IMAGES, &images()), (LABELS, &labels())]).unwrap().read(0, &mut [0.0; 3]);
}
