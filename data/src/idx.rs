//! IDX files: a big-endian header (type, dimensions) and bytes; plain or gzip, told apart by content, whatever the name.
//!
//! ```text
//! byte 0-1  zero
//! byte 2    0x08: values are unsigned bytes
//! byte 3    RANK
//! then      RANK sizes, 4 bytes each, big-endian
//! then      the values, last dimension fastest
//! ```
//! Source: "The IDX file format", on the MNIST page of LeCun, Cortes and Burges.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::DataError;

/// The first two bytes of every gzip file (RFC 1952, 2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// DEFLATE cannot expand by more than this (zlib technical notes: 1032:1).
const MAX_EXPANSION: u64 = 1032;

/// An IDX file of bytes with `RANK` dimensions, read and checked: `values` has as many bytes as `dimensions` multiply to.
#[derive(Debug, PartialEq)]
pub(crate) struct Idx<const RANK: usize> {
    pub(crate) dimensions: [usize; RANK],
    pub(crate) values: Vec<u8>,
}

impl<const RANK: usize> Idx<RANK> {
    const MAGIC: u32 = 0x0000_0800 | RANK as u32;
    const HEADER_BYTES: u64 = 4 + 4 * RANK as u64;

    /// Reads a file whole.
    pub(crate) fn read(path: &Path) -> Result<Self, DataError> {
        let fault = |source| fault(path, source);
        let file = File::open(path).map_err(fault)?;
        let file_bytes = file.metadata().map_err(fault)?.len();
        let mut raw = BufReader::new(file);
        if raw.fill_buf().map_err(fault)?.starts_with(&GZIP_MAGIC) {
            let most = file_bytes.saturating_mul(MAX_EXPANSION);
            Self::read_from(path, MultiGzDecoder::new(raw), most)
        } else {
            Self::read_from(path, raw, file_bytes)
        }
    }

    /// Reads from `source`, which cannot give more than `most_bytes`: memory is reserved for no more, whatever a damaged
    /// header promises.
    fn read_from(path: &Path, mut source: impl Read, most_bytes: u64) -> Result<Self, DataError> {
        let magic = read_word(path, &mut source, Self::HEADER_BYTES, 0)?;
        if magic != Self::MAGIC {
            return Err(DataError::WrongMagic {
                path: path.to_owned(),
                dimensions: RANK,
                expected: Self::MAGIC,
                got: magic,
            });
        }
        let mut dimensions = [0; RANK];
        for (number, size) in dimensions.iter_mut().enumerate() {
            let before = 4 + 4 * number as u64;
            *size = read_word(path, &mut source, Self::HEADER_BYTES, before)? as usize;
        }
        if dimensions.contains(&0) {
            let dimensions = dimensions.to_vec();
            return Err(DataError::NoSamples { path: path.to_owned(), dimensions });
        }
        let value_bytes = product(&dimensions).ok_or_else(|| DataError::ImpossibleSize {
            path: path.to_owned(),
            dimensions: dimensions.to_vec(),
        })?;
        let values = read_values(path, source, Self::HEADER_BYTES, value_bytes, most_bytes)?;
        Ok(Self { dimensions, values })
    }
}

/// The values' number of bytes, if it leaves room for a header and one byte more.
fn product(dimensions: &[usize]) -> Option<u64> {
    let bytes = dimensions.iter().try_fold(1_u64, |product, &d| product.checked_mul(d as u64))?;
    (bytes < i64::MAX as u64).then_some(bytes)
}

fn read_word(
    path: &Path,
    source: &mut impl Read,
    header_bytes: u64,
    before: u64,
) -> Result<u32, DataError> {
    let mut word = Vec::with_capacity(4);
    let outcome = source.take(4).read_to_end(&mut word);
    let got_bytes = before + word.len() as u64;
    ended_well(path, outcome, header_bytes, got_bytes)?;
    word.try_into().map(u32::from_be_bytes).map_err(|_| DataError::Truncated {
        path: path.to_owned(),
        expected_bytes: header_bytes,
        got_bytes,
    })
}

fn read_values(
    path: &Path,
    source: impl Read,
    header_bytes: u64,
    value_bytes: u64,
    most_bytes: u64,
) -> Result<Vec<u8>, DataError> {
    let expected_bytes = header_bytes + value_bytes;
    let mut values = Vec::new();
    // One byte more than needed is asked for, so that longer files are noticed and gzip's checksum is reached.
    let room = value_bytes.min(most_bytes) + 1;
    values.reserve_exact(usize::try_from(room).unwrap_or(0));
    let outcome = source.take(value_bytes + 1).read_to_end(&mut values);
    let got_bytes = header_bytes + values.len() as u64;
    ended_well(path, outcome, expected_bytes, got_bytes)?;
    if got_bytes < expected_bytes {
        return Err(DataError::Truncated { path: path.to_owned(), expected_bytes, got_bytes });
    }
    if got_bytes > expected_bytes {
        return Err(DataError::TooLong { path: path.to_owned(), expected_bytes });
    }
    Ok(values)
}

/// A gzip stream that ends early is an error of the decoder, where a plain file just ends: both are reported as cut short.
fn ended_well(
    path: &Path,
    outcome: io::Result<usize>,
    expected_bytes: u64,
    got_bytes: u64,
) -> Result<(), DataError> {
    match outcome {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(DataError::Truncated { path: path.to_owned(), expected_bytes, got_bytes })
        }
        Err(error) => Err(fault(path, error)),
    }
}

/// Decoders report damage as invalid input or data; the rest comes from the system.
fn fault(path: &Path, source: io::Error) -> DataError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            DataError::DamagedGzip { path, source }
        }
        _ => DataError::Io { path, source },
    }
}
