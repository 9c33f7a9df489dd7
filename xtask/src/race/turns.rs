//! Two sides by turns, and what becomes of their figures: ratios with their spread.

use crate::failure::Failure;

/// Runs both sides `runs` times. Who begins changes, so that neither always finds the machine as the other left it.
pub(super) fn by_turns<T>(
    runs: usize,
    mut own: impl FnMut() -> Result<T, Failure>,
    mut peer: impl FnMut() -> Result<T, Failure>,
) -> Result<Vec<(T, T)>, Failure> {
    let mut pairs = Vec::new();
    for run in 0..runs {
        pairs.push(if run % 2 == 0 {
            let own = own()?;
            (own, peer()?)
        } else {
            let peer = peer()?;
            (own()?, peer)
        });
    }
    Ok(pairs)
}

/// The middle of some figures, and the extremes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// Not a number if there are no figures.
    pub(super) fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let median = match sorted.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => sorted[n / 2],
            n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
        };
        let end = |end: Option<&f64>| end.copied().unwrap_or(f64::NAN);
        Self { median, min: end(sorted.first()), max: end(sorted.last()) }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn who_begins_changes() {
        let order = RefCell::new(String::new());
        let side = |name: char| {
            order.borrow_mut().push(name);
            Ok(name)
        };
        let pairs = by_turns(3, || side('o'), || side('p')).unwrap();
        assert_eq!(*order.borrow(), "oppoop");
        assert_eq!(pairs, [('o', 'p'); 3]);
    }

    #[test]
    fn a_spread_has_its_middle_and_its_extremes() {
        assert_eq!(Spread::of([3.0, 1.5, 2.0]), Spread { median: 2.0, min: 1.5, max: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert!(Spread::of([]).median.is_nan());
    }
}
