//! How much memory this process has used.

use std::fs;

/// The most memory that this process has had resident, in MB; 0 where the system does not tell.
pub(super) fn peak_resident_mb() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    kib.unwrap_or(0.0) * 1024.0 / 1e6
}
