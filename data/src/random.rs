//! Counter-based random numbers: functions of a key and a counter, with no state to share or to get out of step.
//!
//! The mixing function is the finalizer of SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number
//! Generators", OOPSLA 2014, with Stafford's constants, variant 13).

/// 2^64 divided by the golden ratio, odd: SplitMix64's increment.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A bijection on 64 bits, each bit of the result depending on every bit of `x`.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The `counter`-th 64 random bits of the stream `key`.
pub(crate) fn random(key: u64, counter: u64) -> u64 {
    mix(key.wrapping_add(counter.wrapping_add(1).wrapping_mul(GOLDEN)))
}

/// A hash of several numbers, their order included; also the key of a stream named by them.
pub(crate) fn hash_words(words: &[u64]) -> u64 {
    words.iter().fold(words.len() as u64, |hash, &word| random(hash, word))
}

/// A hash of bytes, eight at a time.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let hash =
        words.iter().fold(bytes.len() as u64, |hash, &word| random(hash, u64::from_le_bytes(word)));
    random(hash, u64::from_le_bytes(last))
}

/// Random bits as a number below `bound`; uneven by less than `bound` in 2^64.
pub(crate) fn below(bits: u64, bound: u64) -> u64 {
    ((u128::from(bits) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_split_mix_64() {
        // First outputs for seed 1234567, as published with the reference implementation's ports.
        let published = [
            6457827717110365317,
            3203168211198807973,
            9817491932198370423,
            4593380528125082431,
            16408922859458223821,
        ];
        for (counter, expected) in published.into_iter().enumerate() {
            assert_eq!(random(1_234_567, counter as u64), expected);
        }
    }

    #[test]
    fn one_changed_byte_or_an_added_zero_changes_the_hash() {
        let bytes: Vec<u8> = (0..37).collect();
        let hash = hash_bytes(&bytes);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_ne!(hash_bytes(&changed), hash, "byte {at}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_ne!(hash_bytes(&longer), hash);
        assert_ne!(hash_words(&[1, 2]), hash_words(&[2, 1]));
    }

    #[test]
    fn below_covers_its_range_and_nothing_else() {
        assert_eq!(below(0, 10), 0);
        assert_eq!(below(u64::MAX, 10), 9);
        assert_eq!(below(1 << 63, 10), 5);
    }
}
