//! The watch of a measured run: which steps warm up, which are timed, which are profiled.

use std::time::Instant;

use lockstep_traces::{Tally, TallyReport};

use super::measure::{Pace, Stretch};
use super::memory::peak_resident_bytes;

/// What is being measured now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    WarmUp,
    Run(usize),
    Profile,
    Done,
}

/// What the watch saw.
#[derive(Debug)]
pub(super) struct Seen {
    /// Seconds of every step of every run.
    pub(super) step_seconds: Vec<Vec<f64>>,
    /// The most memory that was resident up to the last timed step, in bytes.
    pub(super) peak_resident: u64,
    /// Where the workers' time went after the timed steps.
    pub(super) profile: TallyReport,
    /// Steps that the profile covers.
    pub(super) profiled_steps: u64,
}

/// Times steps, counted by their reports, and takes the profile.
#[derive(Debug)]
pub(super) struct Watch {
    pace: Pace,
    phase: Phase,
    /// Steps of this phase.
    steps: u64,
    /// When this phase and its last step began.
    began: Instant,
    last: Instant,
    pub(super) tally: Tally,
    step_seconds: Vec<Vec<f64>>,
    peak_resident: u64,
    profile: Option<(TallyReport, u64)>,
}

/// Steps that a stretch of time has at least.
const FEWEST_STEPS: u64 = 3;

impl Watch {
    pub(super) fn new(pace: Pace) -> Self {
        let now = Instant::now();
        Self {
            pace,
            phase: Phase::WarmUp,
            steps: 0,
            began: now,
            last: now,
            tally: Tally::new(),
            step_seconds: Vec::new(),
            peak_resident: 0,
            profile: None,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    pub(super) fn step_done(&mut self, now: Instant) {
        let seconds = (now - self.last).as_secs_f64();
        self.last = now;
        self.steps += 1;
        if let Phase::Run(run) = self.phase {
            self.step_seconds[run].push(seconds);
        }
        let over = match (self.phase, self.pace.run) {
            (Phase::WarmUp, _) => self.steps >= self.pace.warm_up,
            (Phase::Done, _) => false,
            (_, Stretch::Steps(steps)) => self.steps >= steps,
            (_, Stretch::Time(time)) => self.steps >= FEWEST_STEPS && now - self.began >= time,
        };
        if over {
            self.begin_next_phase(now);
        }
    }

    fn begin_next_phase(&mut self, now: Instant) {
        let next_run = |run| if run < self.pace.runs { Phase::Run(run) } else { Phase::Profile };
        let next = match self.phase {
            Phase::WarmUp => next_run(0),
            Phase::Run(run) => next_run(run + 1),
            Phase::Profile | Phase::Done => Phase::Done,
        };
        match next {
            Phase::Run(_) => self.step_seconds.push(Vec::new()),
            Phase::Profile => {
                self.peak_resident = peak_resident_bytes();
                self.tally.open();
            }
            Phase::Done => self.profile = Some((self.tally.close(), self.steps)),
            Phase::WarmUp => (),
        }
        (self.phase, self.steps, self.began) = (next, 0, now);
    }

    /// What was seen, once the run is over.
    pub(super) fn into_seen(self) -> Seen {
        let (profile, profiled_steps) = self.profile.expect("the run ends with the profile");
        let Self { step_seconds, peak_resident, .. } = self;
        Seen { step_seconds, peak_resident, profile, profiled_steps }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_stretch_of_time_has_three_steps_at_least() {
        let run = Stretch::Time(Duration::from_secs(1));
        let mut watch = Watch::new(Pace { warm_up: 1, runs: 1, run });
        let at = |ms| watch_start() + Duration::from_millis(ms);
        watch.step_done(at(500));
        assert_eq!(watch.phase, Phase::Run(0));
        for ms in [2500, 4500] {
            watch.step_done(at(ms));
            assert_eq!(watch.phase, Phase::Run(0));
        }
        watch.step_done(at(5000));
        assert_eq!(watch.phase, Phase::Profile);
        assert_eq!(watch.step_seconds, [[2.0, 2.0, 0.5]]);
    }

    /// One moment for all calls, after any watch's start.
    fn watch_start() -> Instant {
        static START: OnceLock<Instant> = OnceLock::new();
        *START.get_or_init(|| Instant::now() + Duration::from_secs(1))
    }
}
