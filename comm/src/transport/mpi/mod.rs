//! Ranks as MPI processes. All of MPI happens on the communication thread, from `MPI_Init_thread` to `MPI_Finalize`.

#[expect(unsafe_code, reason = "calls into the MPI library, audited in one file")]
mod ffi;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::doorbell::Doorbell;
use crate::error::CommError;
use crate::launcher::launcher;
use crate::region::Span;

use super::{Address, Ticket, Transport};
use ffi::{Done, Mpi, Request};

/// The largest tag used; the standard guarantees it (MPI 4.0, 9.1.2).
const LARGEST_TAG: usize = 32_767;

/// Sleep between looks at whether all ranks have come to the end; the last may take minutes (a checkpoint).
const FAREWELL_SLEEP: Duration = Duration::from_millis(1);

/// This process's place in an MPI job; give it to [`crate::Communicator::start`], once per process.
///
/// Starting fails with [`CommError::LauncherMismatch`] if MPI and the launcher do not agree on the number of ranks.
#[derive(Debug, Clone, Copy, Default)]
pub struct MpiEndpoint;

/// Rank and number of ranks, as MPI and the launcher agree on them.
#[derive(Debug, Clone, Copy)]
struct Place {
    rank: usize,
    n_ranks: usize,
}

impl Place {
    fn of(mpi: &Mpi) -> Result<Place, CommError> {
        let place = Place { rank: mpi.rank()?, n_ranks: mpi.n_ranks()? };
        if let Some(upper_bound) = mpi.largest_tag()?
            && upper_bound < LARGEST_TAG
        {
            return Err(CommError::TagsTooFew { upper_bound, needed: LARGEST_TAG });
        }
        match launcher() {
            Some(launcher) if launcher.n_ranks != place.n_ranks => {
                Err(CommError::LauncherMismatch {
                    launcher_ranks: launcher.n_ranks,
                    mpi_ranks: place.n_ranks,
                })
            }
            _ => Ok(place),
        }
    }
}

/// A message whose request MPI works on.
#[derive(Debug, Clone, Copy)]
struct Message {
    ticket: Ticket,
    /// The sender, the tag and the length, for receives.
    receives: Option<(Address, usize)>,
}

/// One rank of an MPI job.
#[derive(Debug)]
pub(super) struct MpiTransport {
    mpi: Mpi,
    library: String,
    place: Place,
    /// Active requests, and beside each what it is.
    requests: Vec<Request>,
    messages: Vec<Message>,
    done: Vec<Done>,
}

impl MpiTransport {
    /// Initializes MPI, on this thread, and checks that it is the launcher's.
    pub(super) fn connect() -> Result<MpiTransport, CommError> {
        let (mut mpi, library) = Mpi::init()?;
        match Place::of(&mpi) {
            Ok(place) => {
                let (requests, messages, done) = (Vec::new(), Vec::new(), Vec::new());
                Ok(MpiTransport { mpi, library, place, requests, messages, done })
            }
            Err(error) => {
                // The mismatch is what the user must hear of, even if leaving fails too.
                let _: Result<(), CommError> = mpi.finalize();
                Err(error)
            }
        }
    }
}

impl MpiTransport {
    /// Starts a collective operation and polls until it is over. Its buffers must outlive the call.
    fn wait_for(
        &mut self,
        start: impl FnOnce(&Mpi) -> Result<Request, CommError>,
    ) -> Result<(), CommError> {
        let mut request = [start(&self.mpi)?];
        self.done.clear();
        while self.done.is_empty() {
            self.mpi.test_some(&mut request, &mut self.done)?;
        }
        Ok(())
    }
}

impl Transport for MpiTransport {
    fn rank(&self) -> usize {
        self.place.rank
    }

    fn n_ranks(&self) -> usize {
        self.place.n_ranks
    }

    fn library(&self) -> String {
        self.library.clone()
    }

    fn take_doorbell(&mut self, _doorbell: &Arc<Doorbell>) -> bool {
        false
    }

    fn has_news(&self) -> bool {
        false
    }

    fn send(&mut self, to: Address, bytes: Span, ticket: Ticket) -> Result<(), CommError> {
        self.requests.push(self.mpi.send(to.peer, to.tag, bytes)?);
        self.messages.push(Message { ticket, receives: None });
        Ok(())
    }

    fn receive(&mut self, from: Address, bytes: Span, ticket: Ticket) -> Result<(), CommError> {
        self.requests.push(self.mpi.receive(from.peer, from.tag, bytes)?);
        self.messages.push(Message { ticket, receives: Some((from, bytes.len())) });
        Ok(())
    }

    fn poll(&mut self, finished: &mut Vec<Ticket>) -> Result<(), CommError> {
        self.done.clear();
        self.mpi.test_some(&mut self.requests, &mut self.done)?;
        for done in &self.done {
            let Message { ticket, receives } = self.messages[done.index];
            match receives {
                Some((Address { peer, tag }, expected)) if expected != done.bytes => {
                    return Err(CommError::SizeMismatch { peer, tag, expected, got: done.bytes });
                }
                _ => finished.push(ticket),
            }
        }
        // From the back, so that the indices of those still to be removed stay right. Order does not matter to MPI here.
        self.done.sort_unstable_by_key(|done| done.index);
        for done in self.done.iter().rev() {
            self.requests.swap_remove(done.index);
            self.messages.swap_remove(done.index);
        }
        Ok(())
    }

    fn baseline(&mut self, len: usize, times: usize) -> Result<Option<Duration>, CommError> {
        let block = len.div_ceil(self.place.n_ranks);
        let (mut all, mut own) = (vec![0.0; block * self.place.n_ranks], vec![0.0; block]);
        let began = Instant::now();
        let mut pair = || {
            self.wait_for(|mpi| mpi.reduce_scatter(&mut all, &mut own))?;
            self.wait_for(|mpi| mpi.all_gather(&mut own, &mut all))
        };
        let done = (0..times).try_for_each(|_| pair());
        let time = began.elapsed();
        if done.is_err() {
            // MPI may still use them until the job is aborted, which is about to happen.
            std::mem::forget((all, own));
        }
        done.map(|()| Some(time))
    }

    fn revoke(&mut self) {
        // MPI gives nothing back; `abort` follows.
    }

    fn abort(&mut self, code: i32, _error: &CommError) {
        self.mpi.abort(code);
    }

    fn finish(&mut self) -> Result<(), CommError> {
        self.messages.clear();
        for request in self.requests.drain(..) {
            self.mpi.cancel(request)?;
        }
        // MPI_Finalize waits for all ranks with a whole core; so wait cheaply before.
        let mut farewell = [self.mpi.barrier()?];
        self.done.clear();
        while self.done.is_empty() {
            self.mpi.test_some(&mut farewell, &mut self.done)?;
            if self.done.is_empty() {
                std::thread::sleep(FAREWELL_SLEEP);
            }
        }
        self.mpi.finalize()
    }
}
