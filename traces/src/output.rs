//! A file that appears under its name only when it is whole.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::TraceError;

/// A file under way: written beside its final path, renamed when done, removed when given up.
pub(crate) struct WholeFile {
    path: PathBuf,
    partial: PathBuf,
    out: BufWriter<File>,
    renamed: bool,
}

impl WholeFile {
    /// Starts to write what will be `path`.
    pub(crate) fn create(path: &Path) -> Result<WholeFile, TraceError> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".partial");
        let partial = path.with_file_name(name);
        let file = File::create(&partial).map_err(TraceError::writing(&partial))?;
        Ok(WholeFile { path: path.to_owned(), partial, out: BufWriter::new(file), renamed: false })
    }

    /// Gives the file its name, replacing what had it before.
    pub(crate) fn commit(mut self) -> Result<(), TraceError> {
        self.out.flush().map_err(TraceError::writing(&self.path))?;
        fs::rename(&self.partial, &self.path).map_err(TraceError::writing(&self.path))?;
        self.renamed = true;
        Ok(())
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if !self.renamed {
            // An error is already on its way to the caller; the remains are harmless.
            let _ = fs::remove_file(&self.partial);
        }
    }
}
