//! The caches of a core, and how much of one a block may take.

/// Sizes of one core's caches in bytes.
///
/// Finding them out is the caller's task; the default is what every x86-64 server core of the last ten years has at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Caches {
    /// The first level's, for data.
    pub l1_bytes: usize,
    /// The second level's.
    pub l2_bytes: usize,
}

impl Default for Caches {
    fn default() -> Self {
        Self { l1_bytes: 32 << 10, l2_bytes: 256 << 10 }
    }
}

/// Bytes that a block may touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheBudget {
    /// Bytes of the block at work.
    pub live_bytes: usize,
}

impl CacheBudget {
    /// Half of a cache: the other half takes the next block while this one is computed.
    #[must_use]
    pub fn double_buffered(cache_bytes: usize) -> Self {
        Self { live_bytes: cache_bytes / 2 }
    }
}
