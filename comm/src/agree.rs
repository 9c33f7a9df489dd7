//! The start-up agreement: what must be the same on all ranks is compared on all ranks, before the first step.

use std::collections::BTreeMap;

use crate::communicator::Communicator;
use crate::error::{CommError, Difference};

/// Compares named facts over all ranks; blocks until all ranks have called it. Chunk lengths are compared too.
///
/// Every rank, rank 0 included, gets the same error, which names the facts that differ with all their values and ranks.
///
/// # Errors
/// [`CommError::Disagreement`] if a fact differs or is missing somewhere; or the communicator fails.
pub fn agree(comm: &Communicator, facts: &[(String, String)]) -> Result<(), CommError> {
    let own = [("communication chunk, bytes".to_owned(), comm.chunk_bytes().to_string())];
    let facts: Vec<_> = own.iter().chain(facts).cloned().collect();
    let gathered = comm.all_gather(encode(&facts))?;
    let read =
        |(rank, bytes): (usize, &Vec<u8>)| decode(bytes).ok_or(CommError::UnreadableFacts { rank });
    let facts = gathered.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
    let differences = differences(&facts);
    if differences.is_empty() { Ok(()) } else { Err(CommError::Disagreement { differences }) }
}

type Facts = Vec<(String, String)>;

/// Each string as its length in 8 bytes, little endian, and its bytes.
fn encode(facts: &[(String, String)]) -> Vec<u8> {
    let strings = facts.iter().flat_map(|(key, value)| [key, value]);
    let encoded =
        strings.flat_map(|text| (text.len() as u64).to_le_bytes().into_iter().chain(text.bytes()));
    encoded.collect()
}

fn decode(mut bytes: &[u8]) -> Option<Facts> {
    let mut facts = Vec::new();
    while !bytes.is_empty() {
        facts.push((take_string(&mut bytes)?, take_string(&mut bytes)?));
    }
    Some(facts)
}

fn take_string(bytes: &mut &[u8]) -> Option<String> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let (text, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    *bytes = rest;
    String::from_utf8(text.to_vec()).ok()
}

/// The facts that are not the same everywhere, in the order in which the lowest rank that has them lists them.
fn differences(facts: &[Facts]) -> Vec<Difference> {
    let by_rank: Vec<BTreeMap<&str, &str>> = facts
        .iter()
        .map(|facts| facts.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect())
        .collect();
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in facts.iter().flatten() {
        if !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    let difference = |key: &str| {
        let mut values: Vec<(Option<String>, Vec<usize>)> = Vec::new();
        for (rank, facts) in by_rank.iter().enumerate() {
            let value = facts.get(key).map(ToString::to_string);
            match values.iter_mut().find(|(known, _)| *known == value) {
                Some((_, ranks)) => ranks.push(rank),
                None => values.push((value, vec![rank])),
            }
        }
        (values.len() > 1).then(|| Difference { key: key.to_owned(), values })
    };
    keys.into_iter().filter_map(difference).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(facts: &[(&str, &str)]) -> Facts {
        facts.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn facts_survive_encoding() {
        let facts = facts(&[("lr", "0.01"), ("", ""), ("name", "Größe\n")]);
        assert_eq!(decode(&encode(&facts)), Some(facts));
    }

    #[test]
    fn garbage_is_no_facts() {
        let bytes = encode(&facts(&[("lr", "0.01")]));
        assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(decode(&[255; 16]), None);
    }

    #[test]
    fn a_difference_names_values_and_ranks() {
        let same = facts(&[("lr", "0.01"), ("seed", "1")]);
        let ranks = [same.clone(), facts(&[("lr", "0.02"), ("seed", "1")]), same.clone()];
        let error = CommError::Disagreement { differences: differences(&ranks) };
        assert_eq!(
            error.to_string(),
            r#"ranks disagree on lr: "0.01" on ranks 0, 2, "0.02" on rank 1"#
        );
        assert_eq!(differences(&[same.clone(), same]), []);
    }

    #[test]
    fn a_missing_fact_is_a_difference() {
        let ranks = [facts(&[]), facts(&[("layers", "12")])];
        let error = CommError::Disagreement { differences: differences(&ranks) };
        assert_eq!(
            error.to_string(),
            r#"ranks disagree on layers: missing on rank 0, "12" on rank 1"#
        );
    }

    #[test]
    fn long_lists_are_cut() {
        let many = |value: &str| {
            ["a", "b", "c", "d", "e"].map(|key| (key.to_owned(), value.to_owned())).to_vec()
        };
        let error = CommError::Disagreement { differences: differences(&[many("1"), many("2")]) };
        assert!(error.to_string().ends_with("on rank 1; and 2 more"), "{error}");
    }
}
