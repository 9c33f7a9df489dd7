//! SIGTERM and Ctrl-C: end the run at a step boundary, and in any case leave whole trace files.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lockstep::{Job, RunError, merge_traces};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// How long a run may take to end at a step boundary before the process ends without it. MPI launchers kill a few seconds
/// after their first signal, and a rank whose peers are gone never reaches the boundary.
const PATIENCE: Duration = Duration::from_millis(700);

/// From now on, SIGTERM and SIGINT end the job.
///
/// # Errors
/// The system refuses the handlers.
pub(super) fn end_on_signals(job: &Job) -> Result<(), RunError> {
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|source| RunError::File {
        action: "watch",
        path: "SIGTERM".into(),
        source,
    })?;
    let job = job.clone();
    let stop = Arc::clone(&job.options.stop);
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let Some(signal) = signals.forever().next() else { return };
            stop.store(true, Ordering::Relaxed);
            // A run that ends in time takes the process with it; a second signal does not wait.
            let mut waited = Duration::ZERO;
            while waited < PATIENCE && signals.pending().next().is_none() {
                std::thread::sleep(Duration::from_millis(20));
                waited += Duration::from_millis(20);
            }
            job.options.finishers.finish_all();
            if job.options.finishers.is_single() {
                // Whether it can be merged or not, the process ends now.
                let _ = merge_traces(&job, 1);
            }
            std::process::exit(128 + signal);
        })
        .map_err(|source| RunError::File { action: "start", path: "signals".into(), source })?;
    Ok(())
}
