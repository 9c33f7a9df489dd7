//! Lines on the standard streams. That nobody reads them any more, as after `| head`, is no reason to end a run: its results are in
//! files, and other ranks wait for it.

use std::fmt::Arguments;
use std::io::{Write, stderr, stdout};

/// Writes a line to the standard output, as `println!` does but for a panic where nobody reads it.
macro_rules! say {
    ($($argument:tt)*) => { $crate::cli::output::line(format_args!($($argument)*)) };
}

/// Writes a line to the standard error, likewise.
macro_rules! complain {
    ($($argument:tt)*) => { $crate::cli::output::complaint(format_args!($($argument)*)) };
}

pub(super) fn line(text: Arguments<'_>) {
    // What cannot be written has nowhere else to go.
    let _ = writeln!(stdout(), "{text}");
}

pub(super) fn complaint(text: Arguments<'_>) {
    let _ = writeln!(stderr(), "{text}");
}
