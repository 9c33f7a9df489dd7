//! The random numbers behind a mask: counters, hashed.
//!
//! Seed, layer, step and sample are mixed into a 64-bit sample key, whose halves key the hash of the element's index. The
//! elements' hash uses 32-bit arithmetic only, so that plain code on a row of lanes compiles to vector code.

/// What the masks of one layer in one step depend on. Any change of any field gives unrelated masks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DropoutKey {
    /// The seed of the run.
    pub seed: u64,
    /// A number that no other dropout layer of the network has.
    pub layer: u64,
    /// The step or the epoch; the backward pass must be given that of the forward pass.
    pub step: u64,
}

impl DropoutKey {
    /// The key of one sample's mask.
    pub(super) fn sample(self, id: u64) -> SampleKey {
        let mut key = 0;
        for word in [self.seed, self.layer, self.step, id] {
            key = mix(key ^ word);
        }
        SampleKey { low: key as u32, high: (key >> 32) as u32 }
    }
}

/// The key of one sample's mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SampleKey {
    low: u32,
    high: u32,
}

impl SampleKey {
    /// The random number of the element with this index in c, h, w order.
    #[inline(always)]
    pub(super) fn random(self, index: u32) -> u32 {
        // The second half of the key enters between two rounds: masks whose first halves differ by a small number are
        // not shifted copies of each other.
        scramble(scramble(index ^ self.low).wrapping_add(self.high))
    }
}

/// Adds a step of the golden ratio and scrambles: one step of SplitMix64 (Steele, Lea and Flood 2014).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A permutation of 32 bits in which every input bit changes every output bit with a probability close to one half: the
/// finalizer of MurmurHash3 with the constants that C. Wellons' search of 2018 found to be the least biased.
#[inline(always)]
fn scramble(x: u32) -> u32 {
    let x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
    let x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}
