//! Learning-rate schedules: the rate as a function of the step.

use std::fmt;
use std::str::FromStr;

use crate::error::RunError;

/// How the learning rate changes over a run.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum LrSchedule {
    /// Always the base rate.
    Constant,
    /// Half a cosine from the base rate down to zero over the whole run.
    Cosine,
    /// The base rate times `factor` for every `every` epochs that are over.
    Step {
        /// Epochs between two changes.
        every: u64,
        /// Factor of each change.
        factor: f32,
    },
}

/// Where in a run a step lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Step, counted from 1.
    pub step: u64,
    /// Steps of the whole run.
    pub total_steps: u64,
    /// Epoch of the step, counted from 1.
    pub epoch: u64,
}

impl LrSchedule {
    /// The rate of a step; `base` is the rate of the first.
    ///
    /// # Examples
    /// ```
    /// use lockstep::{LrSchedule, Progress};
    /// let halved: LrSchedule = "step:2:0.5".parse().unwrap();
    /// let progress = Progress { step: 401, total_steps: 600, epoch: 3 };
    /// assert_eq!(halved.rate(0.1, progress), 0.05);
    /// ```
    #[must_use]
    pub fn rate(&self, base: f32, progress: Progress) -> f32 {
        match *self {
            Self::Constant => base,
            Self::Cosine => {
                let done = (progress.step - 1) as f64 / progress.total_steps.max(1) as f64;
                let factor = (1.0 + (std::f64::consts::PI * done).cos()) / 2.0;
                (f64::from(base) * factor) as f32
            }
            Self::Step { every, factor } => {
                let changes = (progress.epoch - 1) / every;
                base * factor.powi(i32::try_from(changes).unwrap_or(i32::MAX))
            }
        }
    }
}

impl fmt::Display for LrSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant => f.write_str("constant"),
            Self::Cosine => f.write_str("cosine"),
            Self::Step { every, factor } => write!(f, "step:{every}:{factor}"),
        }
    }
}

impl FromStr for LrSchedule {
    type Err = RunError;

    fn from_str(text: &str) -> Result<Self, RunError> {
        let unknown = || RunError::UnknownSchedule { name: text.to_owned() };
        match text.split(':').collect::<Vec<_>>()[..] {
            ["constant"] => Ok(Self::Constant),
            ["cosine"] => Ok(Self::Cosine),
            ["step", every, factor] => {
                let every: u64 = every.parse().map_err(|_| unknown())?;
                let factor: f32 = factor.parse().map_err(|_| unknown())?;
                if every == 0 || !factor.is_finite() {
                    return Err(unknown());
                }
                Ok(Self::Step { every, factor })
            }
            _ => Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(step: u64, epoch: u64) -> Progress {
        Progress { step, total_steps: 100, epoch }
    }

    #[test]
    fn cosine_starts_at_the_base_rate_and_is_half_way_down_in_the_middle() {
        assert_eq!(LrSchedule::Cosine.rate(0.1, at(1, 1)), 0.1);
        assert!((LrSchedule::Cosine.rate(0.1, at(51, 2)) - 0.05).abs() < 1e-7);
        assert!(LrSchedule::Cosine.rate(0.1, at(100, 2)) > 0.0);
    }

    #[test]
    fn text_and_value_agree() {
        for text in ["constant", "cosine", "step:2:0.1"] {
            assert_eq!(text.parse::<LrSchedule>().unwrap().to_string(), text);
        }
        for text in ["", "step", "step:0:0.1", "step:1:x", "linear"] {
            assert!(text.parse::<LrSchedule>().is_err(), "{text}");
        }
    }
}
