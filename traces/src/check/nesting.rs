//! Whether the slices of a thread nest: of two that touch, one holds the other.

use super::problem::Problem;
use super::tables::{Names, Slice, ThreadKey};

/// Sorts a thread's slices by start, the outer first, and reports each that outlasts one it starts
/// within. O(n log n).
pub(super) fn check(
    (pid, tid): ThreadKey,
    slices: &mut [Slice],
    names: &Names,
    problems: &mut Vec<Problem>,
) {
    slices.sort_unstable_by_key(|slice| (slice.start, -slice.end));
    let mut open: Vec<Slice> = Vec::new();
    for &slice in slices.iter() {
        while open.last().is_some_and(|outer| outer.end <= slice.start) {
            open.pop();
        }
        if let Some(outer) = open.last()
            && slice.end > outer.end
        {
            problems.push(Problem::Overlap {
                pid,
                tid,
                first: names.text(outer.name).to_owned(),
                second: names.text(slice.name).to_owned(),
                first_end_ns: outer.end,
                second_end_ns: slice.end,
            });
        }
        open.push(slice);
    }
}
