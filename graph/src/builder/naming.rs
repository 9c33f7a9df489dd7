//! Names that are safe in files, checkpoints and traces.

use crate::error::GraphError;

const MAX_LEN: usize = 128;

/// Letters, digits, `.`, `_` and `-`; no path can be made of it.
pub(super) fn check_name(name: &str) -> Result<(), GraphError> {
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if starts_well && name.len() <= MAX_LEN && name.chars().all(is_plain) {
        return Ok(());
    }
    Err(GraphError::InvalidName { name: name.to_owned() })
}
