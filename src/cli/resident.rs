//! How much memory this process has used.

/// The most memory that this process has had resident, in MB; 0 where the system does not tell.
pub(super) fn peak_resident_mb() -> f64 {
    lockstep::peak_resident_bytes() as f64 / 1e6
}
