//! Why samples could not be read.

use std::io;
use std::path::PathBuf;

/// Why a data set could not be opened, or a minibatch not be prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The directory of a data set is not there. Name one that is, or fetch the files.
    #[error("no directory {}: give the one that holds {wanted}", path.display())]
    NoDirectory {
        /// What was asked for.
        path: PathBuf,
        /// The files that should be in it.
        wanted: &'static str,
    },
    /// The bundled MNIST is in none of the places where it could be. Name its directory.
    #[error(
        "the bundled MNIST is in none of {}: run from a checkout, or give its directory as mnist:DIRECTORY",
        shown(tried)
    )]
    NotBundled {
        /// Where it was looked for.
        tried: Vec<PathBuf>,
    },
    /// One of a data set's files is not there under any of its usual names.
    #[error("no {wanted} in {} (looked for {})", directory.display(), candidates.join(", "))]
    NoFile {
        /// Where it should be.
        directory: PathBuf,
        /// What it holds.
        wanted: String,
        /// The names it may have.
        candidates: Vec<String>,
    },
    /// The system could not read a file.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A gzip file does not decompress. Fetch it again.
    #[error("{} is a damaged gzip file ({source}): fetch it again", path.display())]
    DamagedGzip {
        /// The file.
        path: PathBuf,
        /// What the decompressor said.
        source: io::Error,
    },
    /// A file is not an IDX file of bytes with the dimensions wanted.
    #[error(
        "{} starts with {got:#010x} where an IDX file of {dimensions}-dimensional bytes starts with {expected:#010x}",
        path.display()
    )]
    WrongMagic {
        /// The file.
        path: PathBuf,
        /// Dimensions wanted: 3 of images, 1 of labels.
        dimensions: usize,
        /// The first four bytes wanted.
        expected: u32,
        /// The first four bytes there, big-endian.
        got: u32,
    },
    /// A file ends early. Fetch it again.
    #[error(
        "{} is cut short: its header promises {expected_bytes} bytes, {got_bytes} are there; fetch it again",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Uncompressed bytes, header included, by the header.
        expected_bytes: u64,
        /// Uncompressed bytes there.
        got_bytes: u64,
    },
    /// A file goes on where its header says it ends.
    #[error("{} holds more than the {expected_bytes} bytes that its header promises", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Uncompressed bytes, header included, by the header.
        expected_bytes: u64,
    },
    /// The header's dimensions multiply to more bytes than a file can have.
    #[error("{} has a header with impossible dimensions {dimensions:?}", path.display())]
    ImpossibleSize {
        /// The file.
        path: PathBuf,
        /// The dimensions in the header.
        dimensions: Vec<usize>,
    },
    /// A file holds no sample, or samples of no size.
    #[error("{} holds no samples (dimensions {dimensions:?})", path.display())]
    NoSamples {
        /// The file.
        path: PathBuf,
        /// The dimensions in the header.
        dimensions: Vec<usize>,
    },
    /// Images and labels are not of one data set.
    #[error(
        "{images} images in {} but {labels} labels in {}: the two files do not belong together",
        images_path.display(), labels_path.display()
    )]
    CountMismatch {
        /// The file of images.
        images_path: PathBuf,
        /// Images in it.
        images: usize,
        /// The file of labels.
        labels_path: PathBuf,
        /// Labels in it.
        labels: usize,
    },
    /// A label is no class of the data set.
    #[error(
        "label {label} of sample {index} in {} is out of range: there are {classes} classes, counted from 0",
        path.display()
    )]
    LabelOutOfRange {
        /// The file of labels.
        path: PathBuf,
        /// The first sample with such a label.
        index: usize,
        /// The label.
        label: u32,
        /// How many classes there are.
        classes: usize,
    },
    /// A loader was configured with a value that it cannot work with.
    #[error("loader {field} is {value}, but {rule}")]
    Config {
        /// The field of [`LoaderConfig`](crate::LoaderConfig) or [`Schedule`](crate::Schedule).
        field: &'static str,
        /// Its value.
        value: u64,
        /// What it must be.
        rule: &'static str,
    },
    /// A schedule was made for another number of samples than the data set has.
    #[error("the schedule is for {schedule} samples, but {dataset} has {samples}")]
    OtherLength {
        /// Samples by the schedule.
        schedule: usize,
        /// The data set's name.
        dataset: String,
        /// Samples in it.
        samples: usize,
    },
    /// The system gave no threads for loading. Ask for fewer.
    #[error("cannot start {threads} loader threads: {source}")]
    Threads {
        /// Threads wanted.
        threads: usize,
        /// What the system said.
        source: rayon::ThreadPoolBuildError,
    },
    /// Code that ran on a loader thread panicked: a fault of a reader, or of a hook.
    #[error("a loader thread panicked at step {step}: {message}")]
    LoaderPanicked {
        /// The step that it was preparing.
        step: u64,
        /// What it said.
        message: String,
    },
}

fn shown(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
