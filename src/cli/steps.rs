//! Ranges of steps on the command line: `A..B` without B, `A..=B` with it.

use std::ops::Range;
use std::str::FromStr;

/// Steps, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Steps(pub(super) Range<u64>);

impl FromStr for Steps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a range of steps like 3..6 or 3..=5");
        let (start, end) = text.split_once("..").ok_or_else(bad)?;
        let start: u64 = start.parse().map_err(|_| bad())?;
        let end = match end.strip_prefix('=') {
            Some(last) => last.parse::<u64>().map_err(|_| bad())?.checked_add(1).ok_or_else(bad)?,
            None => end.parse().map_err(|_| bad())?,
        };
        if start == 0 || start >= end {
            return Err(format!(
                "{text:?} holds no step: steps count from 1, and the end comes after the start"
            ));
        }
        Ok(Self(start..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        assert_eq!("3..6".parse(), Ok(Steps(3..6)));
        assert_eq!("3..=6".parse(), Ok(Steps(3..7)));
        for text in ["", "3", "6..3", "0..4", "a..b", "3..3", "-1..2"] {
            assert!(text.parse::<Steps>().is_err(), "{text}");
        }
    }
}
