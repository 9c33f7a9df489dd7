//! Starting the ranks of a job: threads of this process, or this process as one rank of an MPI job.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lockstep_comm::{
    CommConfig, Communicator, Completion, Endpoint, LocalEndpoint, LocalJob, Patience, ServiceOrder,
};
use lockstep_scheduler::{Router, flush_denormals, panic_message, pin_current_thread};
use lockstep_traces::{Recorder, merge, rank_file};

use super::observer::Observer;
use super::options::{Job, Ranks};
use super::rank::{Outcome, Rank};
use super::threads::{Threads, record_thread};
use crate::error::RunError;

/// How long a failing rank's message is given to pass through its launcher's pipes, which drop what is in them when the job is
/// ended: without it, MPICH's lost the message once in some twenty runs.
pub(super) const LAST_WORDS: Duration = Duration::from_millis(300);

/// Trains. Returns when all ranks of this process have ended.
///
/// # Errors
/// Whatever went wrong first, with its rank where there are several. All ranks have then ended; with MPI the whole job
/// is being ended.
///
/// # Examples
/// See the crate's example.
pub fn train(job: &Job, observer: &mut dyn Observer) -> Result<Outcome, RunError> {
    match job.options.ranks {
        Ranks::InProcess(ranks) => in_process(job, ranks, observer),
        #[cfg(feature = "mpi")]
        Ranks::Mpi => mpi(job, observer),
        #[cfg(not(feature = "mpi"))]
        Ranks::Mpi => Err(crate::launch::mpi_not_built().into()),
    }
}

/// Merges the traces of a job's ranks into the file that was asked for. Ranks whose file is not here are left out.
///
/// # Errors
/// The files cannot be read or the merged one not be written.
pub fn merge_traces(job: &Job, ranks: usize) -> Result<(), RunError> {
    let Some(trace) = &job.options.trace else { return Ok(()) };
    let files: Vec<_> =
        (0..ranks).map(|rank| rank_file(&trace.path, rank)).filter(|file| file.exists()).collect();
    if !files.is_empty() {
        merge(&files, &trace.path)?;
    }
    Ok(())
}

fn in_process(job: &Job, ranks: usize, observer: &mut dyn Observer) -> Result<Outcome, RunError> {
    if ranks == 0 {
        return Err(RunError::Flag {
            flag: "--ranks",
            value: "0".to_owned(),
            reason: "a job has at least one rank".to_owned(),
        });
    }
    let outcome = if ranks == 1 {
        let threads = Threads::in_process(&job.options, 0, 1);
        guarded(|| {
            let on_recorder = &|_: &Recorder| ();
            Rank { job, threads, comm: None, observer: Some(observer), on_recorder }.run()
        })
    } else {
        local_ranks(job, ranks, observer)
    };
    // Also after an error: the ranks' files are whole, so the merged one can be.
    let merged = merge_traces(job, ranks);
    let outcome = outcome?;
    merged?;
    Ok(outcome)
}

fn local_ranks(job: &Job, ranks: usize, observer: &mut dyn Observer) -> Result<Outcome, RunError> {
    let endpoints = LocalJob::endpoints(ranks);
    let mut observer = Some(observer);
    let outcomes: Vec<Result<Outcome, RunError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = endpoints
            .into_iter()
            .enumerate()
            .map(|(rank, endpoint)| {
                let observer = observer.take();
                let threads = Threads::in_process(&job.options, rank, ranks);
                std::thread::Builder::new()
                    .name(format!("rank {rank}"))
                    .spawn_scoped(scope, move || local_rank(job, threads, endpoint, observer))
                    .expect("the system can start one more thread")
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a rank's panics are caught inside"))
            .collect()
    });
    first_cause(outcomes)
}

fn local_rank(
    job: &Job,
    threads: Threads,
    endpoint: LocalEndpoint,
    observer: Option<&mut dyn Observer>,
) -> Result<Outcome, RunError> {
    guarded(|| communicating_rank(job, threads, endpoint, observer))
}

/// Of several ranks' errors the cause: not the loss of a peer, nor a request to stop, where another rank has more to say.
pub(super) fn first_cause<T>(outcomes: Vec<Result<T, RunError>>) -> Result<T, RunError> {
    let mut first: Option<(bool, usize, RunError)> = None;
    let mut outcome = None;
    for (rank, result) in outcomes.into_iter().enumerate() {
        match result {
            Ok(done) => outcome = outcome.or(Some(done)),
            Err(error) => {
                let consequence = error.is_consequence();
                if first.as_ref().is_none_or(|(known, ..)| *known && !consequence) {
                    first = Some((consequence, rank, error));
                }
            }
        }
    }
    match first {
        Some((_, _, stopped @ RunError::Stopped { .. })) => Err(stopped),
        Some((_, rank, error)) => Err(RunError::Rank { rank, source: Box::new(error) }),
        None => Ok(outcome.expect("a job has at least one rank")),
    }
}

/// Runs a rank that has others to talk to, and ends the job when it fails.
fn communicating_rank(
    job: &Job,
    threads: Threads,
    endpoint: impl Into<Endpoint>,
    mut observer: Option<&mut dyn Observer>,
) -> Result<Outcome, RunError> {
    let (this, alone_here) = (threads.rank, threads.ranks_here == 1);
    let router = Arc::new(Router::default());
    let recording = Arc::new(OnceLock::<Recorder>::new());
    let comm = Arc::new(start_communicator(
        &threads,
        endpoint,
        &router,
        &recording,
        job.options.exchange_order,
    )?);
    let on_recorder = |recorder: &Recorder| {
        // Set once: a rank starts one recording at most.
        let _ = recording.set(recorder.clone());
    };
    let rank = Rank {
        job,
        threads,
        comm: Some((Arc::clone(&comm), Arc::clone(&router))),
        observer: observer.as_deref_mut().filter(|_| this == 0).map(|o| -> &mut dyn Observer { o }),
        on_recorder: &on_recorder,
    };
    let outcome = guarded(|| rank.run());
    match outcome {
        // Ranks that were asked to stop have all stopped at the same step: nobody waits.
        Ok(_) | Err(RunError::Stopped { .. }) => {
            let comm = Arc::into_inner(comm).expect("the rank has given its handles back");
            comm.shutdown()?;
            outcome
        }
        Err(error) => {
            // Said before the job is ended: with MPI this process does not come back from that.
            if let (Some(observer), true) = (observer, alone_here) {
                observer.failed(this, &error);
                std::thread::sleep(LAST_WORDS);
            }
            comm.abort(i32::from(error.exit_code()), &error.to_string());
            Err(error)
        }
    }
}

pub(super) fn start_communicator(
    threads: &Threads,
    endpoint: impl Into<Endpoint>,
    router: &Arc<Router>,
    recording: &Arc<OnceLock<Recorder>>,
    order: ServiceOrder,
) -> Result<Communicator, RunError> {
    let (core, alone_here) = (threads.comm_core(), threads.ranks_here == 1);
    let (completed, failed) = (Arc::clone(router), Arc::clone(router));
    let recording = Arc::clone(recording);
    let config = CommConfig {
        thread_name: threads.prefix("comm"),
        on_thread_start: Box::new(move || {
            if let Some(core) = core {
                pin_current_thread(core);
            }
            flush_denormals();
        }),
        on_complete: Box::new(move |completion: Completion| {
            if let Some(recorder) = recording.get() {
                record_thread(recorder, "comm");
            }
            completed.exchange_done(completion.token);
        }),
        on_failure: Box::new(move |error| {
            failed.failed(error);
            if alone_here {
                // The job is ended when this returns; first the rank's own thread says why.
                std::thread::sleep(2 * LAST_WORDS);
            }
        }),
        on_step: threads
            .hook("comm")
            .map(|hook| -> Box<dyn FnMut(u64) + Send> { Box::new(move |step| hook(step)) }),
        patience: if core.is_some() { Patience::own_core() } else { Patience::shared_core() },
        order,
        ..CommConfig::default()
    };
    Ok(Communicator::start(endpoint, config)?)
}

/// Turns a panic on a rank's own thread into an error: its peers must be told.
pub(super) fn guarded<T>(run: impl FnOnce() -> Result<T, RunError>) -> Result<T, RunError> {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|payload| Err(RunError::Panicked { message: panic_message(&*payload) }))
}

/// This process as one rank: MPI is initialized, used and finalized on the communication thread.
#[cfg(feature = "mpi")]
fn mpi(job: &Job, observer: &mut dyn Observer) -> Result<Outcome, RunError> {
    let threads = Threads::of_this_process(&job.options);
    let (rank, ranks) = (threads.rank, threads.ranks);
    let outcome = communicating_rank(job, threads, lockstep_comm::MpiEndpoint, Some(observer));
    if rank == 0 {
        merge_traces(job, ranks)?;
    }
    outcome
}
