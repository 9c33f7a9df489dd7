//! The caches of this machine's cores, as the system tells them.

use std::fs;

use lockstep_ops::blocking::Caches;

/// One level of caches for data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLevel {
    /// 1 is nearest to the core.
    pub level: usize,
    /// Size in bytes; of a cache that cores share, all of it.
    pub bytes: usize,
}

/// The first core's caches for data, nearest first; empty where the system does not tell.
#[must_use]
pub fn cache_levels() -> Vec<CacheLevel> {
    let read = |index: usize, file: &str| {
        fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{file}"))
            .map(|text| text.trim().to_owned())
            .ok()
    };
    let level = |index| {
        let (level, kind, size) =
            (read(index, "level")?, read(index, "type")?, read(index, "size")?);
        let found = CacheLevel { level: level.parse().ok()?, bytes: bytes(&size)? };
        (kind != "Instruction").then_some(found)
    };
    (0..8).filter_map(level).collect()
}

/// The caches that a core has to itself, for cache blocking; common sizes where the system does not tell.
#[must_use]
pub fn detect_caches() -> Caches {
    let levels = cache_levels();
    let size = |wanted| levels.iter().find(|found| found.level == wanted).map(|l| l.bytes);
    let unknown = Caches::default();
    Caches {
        l1_bytes: size(1).unwrap_or(unknown.l1_bytes),
        l2_bytes: size(2).unwrap_or(unknown.l2_bytes),
    }
}

/// A size as the system writes it: `48K`, `2M`, or bytes.
fn bytes(text: &str) -> Option<usize> {
    let (number, unit) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    number.parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_the_system_writes_them() {
        assert_eq!(bytes("48K"), Some(48 << 10));
        assert_eq!(bytes("2M"), Some(2 << 20));
        assert_eq!(bytes("512"), Some(512));
        assert_eq!(bytes("K"), None);
        assert_eq!(bytes(""), None);
    }

    #[test]
    fn a_core_has_caches_that_grow_with_their_distance() {
        let Caches { l1_bytes, l2_bytes } = detect_caches();
        assert!(l1_bytes >= 8 << 10 && l2_bytes > l1_bytes);
        assert!(cache_levels().windows(2).all(|pair| pair[0].level < pair[1].level));
    }
}
