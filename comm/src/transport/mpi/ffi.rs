//! Every call into MPI, each with its return code checked: the only unsafe file of the transport.
//!
//! Section numbers are those of the MPI 4.0 standard. All functions are called by the communication thread, the one that initialized
//! MPI (`MPI_THREAD_FUNNELED`).

use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use mpi::ffi;

use crate::error::CommError;
use crate::region::Span;

/// A request that MPI works on.
pub(super) type Request = ffi::MPI_Request;

/// One request that [`Mpi::test_some`] found complete.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    /// Its index in the list of requests.
    pub(super) index: usize,
    /// Bytes received; meaningless for a send.
    pub(super) bytes: usize,
}

/// An initialized MPI with a communicator of our own. Not `Send`: MPI belongs to the thread that initialized it.
#[derive(Debug)]
pub(super) struct Mpi {
    comm: ffi::MPI_Comm,
    statuses: Vec<ffi::MPI_Status>,
    indices: Vec<c_int>,
    _thread: PhantomData<*const ()>,
}

/// Turns a return code into a result.
fn check(call: &'static str, code: c_int) -> Result<(), CommError> {
    if is_success(code) {
        Ok(())
    } else {
        Err(CommError::MpiCall { call, code, message: error_string(code) })
    }
}

fn is_success(code: c_int) -> bool {
    code == ffi::MPI_SUCCESS as c_int
}

/// `MPI_Error_string` (9.4).
fn error_string(code: c_int) -> String {
    let mut text = [0; ffi::MPI_MAX_ERROR_STRING as usize];
    let mut len = 0;
    // SAFETY: the buffer is as long as the standard demands.
    let found = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr(), &raw mut len) };
    if is_success(found) { string_of(&text, len) } else { "unknown error".to_owned() }
}

fn string_of(text: &[c_char], len: c_int) -> String {
    let len = usize::try_from(len).unwrap_or(0).min(text.len());
    let bytes: Vec<u8> = text[..len].iter().map(|&byte| byte.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).trim_end_matches(['\0', '\n']).to_owned()
}

/// `MPI_Get_library_version` (9.1.1), its first line.
fn library_version() -> Result<String, CommError> {
    let mut text = vec![0; ffi::MPI_MAX_LIBRARY_VERSION_STRING as usize];
    let mut len = 0;
    // SAFETY: the buffer is as long as the standard demands.
    let code = unsafe { ffi::MPI_Get_library_version(text.as_mut_ptr(), &raw mut len) };
    check("MPI_Get_library_version", code)?;
    let text = string_of(&text, len);
    Ok(text
        .lines()
        .next()
        .unwrap_or_default()
        .split(',')
        .next()
        .unwrap_or_default()
        .replace('\t', " "))
}

/// Name of a thread level, and whether it suffices.
fn thread_level(level: c_int) -> (&'static str, bool) {
    let names = [
        (ffi::MPI_THREAD_SINGLE as c_int, "MPI_THREAD_SINGLE", false),
        (ffi::MPI_THREAD_FUNNELED as c_int, "MPI_THREAD_FUNNELED", true),
        (ffi::MPI_THREAD_SERIALIZED as c_int, "MPI_THREAD_SERIALIZED", true),
        (ffi::MPI_THREAD_MULTIPLE as c_int, "MPI_THREAD_MULTIPLE", true),
    ];
    let known = names.into_iter().find(|&(value, ..)| value == level);
    known.map_or(("of an unknown kind", false), |(_, name, enough)| (name, enough))
}

impl Mpi {
    /// `MPI_Init_thread` (11.6.2) on this thread, errors returned instead of fatal (9.3), and a duplicate of the world
    /// (7.4.2), so that our messages meet nobody else's. Also returns the library's version with its thread level.
    pub(super) fn init() -> Result<(Mpi, String), CommError> {
        let mut used = 0;
        // SAFETY: may be called at any time (11.4.1).
        check("MPI_Initialized", unsafe { ffi::MPI_Initialized(&raw mut used) })?;
        if used != 0 {
            return Err(CommError::MpiReused);
        }
        let mut provided = 0;
        let (argc, argv) = (std::ptr::null_mut(), std::ptr::null_mut());
        let wanted = ffi::MPI_THREAD_FUNNELED as c_int;
        // SAFETY: null arguments are allowed (11.2.1); nobody has initialized MPI in this process.
        check("MPI_Init_thread", unsafe {
            ffi::MPI_Init_thread(argc, argv, wanted, &raw mut provided)
        })?;
        let (level, enough) = thread_level(provided);
        if !enough {
            finalize()?;
            return Err(CommError::ThreadLevel { provided: level.to_owned() });
        }
        // SAFETY: a constant of the library.
        let world = unsafe { ffi::RSMPI_COMM_WORLD };
        return_errors(world)?;
        let mut comm = world;
        // SAFETY: the world is a valid communicator; all ranks come here, as it is collective.
        check("MPI_Comm_dup", unsafe { ffi::MPI_Comm_dup(world, &raw mut comm) })?;
        return_errors(comm)?;
        let mpi = Mpi { comm, statuses: Vec::new(), indices: Vec::new(), _thread: PhantomData };
        Ok((mpi, format!("{} ({level})", library_version()?)))
    }

    /// `MPI_Comm_rank` (7.4.1).
    pub(super) fn rank(&self) -> Result<usize, CommError> {
        let mut rank = 0;
        // SAFETY: the communicator is valid until `finalize`.
        check("MPI_Comm_rank", unsafe { ffi::MPI_Comm_rank(self.comm, &raw mut rank) })?;
        Ok(usize::try_from(rank).expect("ranks count from 0"))
    }

    /// `MPI_Comm_size` (7.4.1).
    pub(super) fn n_ranks(&self) -> Result<usize, CommError> {
        let mut size = 0;
        // SAFETY: the communicator is valid until `finalize`.
        check("MPI_Comm_size", unsafe { ffi::MPI_Comm_size(self.comm, &raw mut size) })?;
        Ok(usize::try_from(size).expect("sizes are positive"))
    }

    /// The attribute `MPI_TAG_UB` (9.1.2); `None` if it is not set. Asked of the world, which is where it is defined.
    pub(super) fn largest_tag(&self) -> Result<Option<usize>, CommError> {
        let mut value: *mut c_int = std::ptr::null_mut();
        let mut found = 0;
        let key = ffi::MPI_TAG_UB as c_int;
        let out = (&raw mut value).cast::<c_void>();
        // SAFETY: a constant of the library.
        let world = unsafe { ffi::RSMPI_COMM_WORLD };
        // SAFETY: the attribute is a pointer to int, stored through `out`.
        check("MPI_Comm_get_attr", unsafe {
            ffi::MPI_Comm_get_attr(world, key, out, &raw mut found)
        })?;
        if found == 0 || value.is_null() {
            return Ok(None);
        }
        // SAFETY: the library's own int, valid while it is initialized.
        let value = unsafe { *value };
        Ok(usize::try_from(value).ok())
    }

    /// `MPI_Isend` (3.7.2). The span's contract keeps the bytes until the request is complete.
    pub(super) fn send(&self, peer: usize, tag: u32, bytes: Span) -> Result<Request, CommError> {
        let (mut request, count, peer, tag) =
            (null_request(), int(bytes.len()), int(peer), tag.cast_signed());
        let ptr = bytes.ptr().cast::<c_void>().cast_const();
        // SAFETY: a constant of the library.
        let byte = unsafe { ffi::RSMPI_UINT8_T };
        // SAFETY: `count` bytes are valid at `ptr` until the request is complete, by the contract of `Span`.
        let code =
            unsafe { ffi::MPI_Isend(ptr, count, byte, peer, tag, self.comm, &raw mut request) };
        check("MPI_Isend", code)?;
        Ok(request)
    }

    /// `MPI_Irecv` (3.7.2). The span's contract keeps the bytes until the request is complete.
    pub(super) fn receive(&self, peer: usize, tag: u32, bytes: Span) -> Result<Request, CommError> {
        let (mut request, count, peer, tag) =
            (null_request(), int(bytes.len()), int(peer), tag.cast_signed());
        let ptr = bytes.ptr().cast::<c_void>();
        // SAFETY: a constant of the library.
        let byte = unsafe { ffi::RSMPI_UINT8_T };
        // SAFETY: `count` bytes are valid at `ptr`, and nobody else's until the request is complete, by the contract of `Span`.
        let code =
            unsafe { ffi::MPI_Irecv(ptr, count, byte, peer, tag, self.comm, &raw mut request) };
        check("MPI_Irecv", code)?;
        Ok(request)
    }

    /// `MPI_Testsome` (3.7.5): makes progress on all requests and appends those that are complete; they become null.
    pub(super) fn test_some(
        &mut self,
        requests: &mut [Request],
        done: &mut Vec<Done>,
    ) -> Result<(), CommError> {
        if requests.is_empty() {
            return Ok(());
        }
        // SAFETY: plain C data, for which all zeros are a value.
        let blank: ffi::MPI_Status = unsafe { MaybeUninit::zeroed().assume_init() };
        self.statuses.resize(requests.len(), blank);
        self.indices.resize(requests.len(), 0);
        let (mut completed, incount) = (0, int(requests.len()));
        let (indices, statuses) = (self.indices.as_mut_ptr(), self.statuses.as_mut_ptr());
        // SAFETY: three arrays of `incount` elements.
        let code = unsafe {
            ffi::MPI_Testsome(incount, requests.as_mut_ptr(), &raw mut completed, indices, statuses)
        };
        // `MPI_UNDEFINED`, a negative number, says that all requests are null.
        let completed = usize::try_from(completed).unwrap_or(0).min(requests.len());
        if !is_success(code) {
            // The code may only say "look at the statuses" (3.7.5); then the first failed one tells more.
            let failed =
                self.statuses[..completed].iter().find(|status| !is_success(status.MPI_ERROR));
            return check("MPI_Testsome", failed.map_or(code, |status| status.MPI_ERROR));
        }
        for (&index, status) in self.indices.iter().zip(&self.statuses).take(completed) {
            let index = usize::try_from(index).expect("indices count from 0");
            done.push(Done { index, bytes: received_bytes(status)? });
        }
        Ok(())
    }

    /// `MPI_Cancel` and `MPI_Wait` (3.8.4) of a receive, which completes locally.
    pub(super) fn cancel(&self, mut request: Request) -> Result<(), CommError> {
        // SAFETY: an active request.
        check("MPI_Cancel", unsafe { ffi::MPI_Cancel(&raw mut request) })?;
        // SAFETY: a constant of the library.
        let ignore = unsafe { ffi::RSMPI_STATUS_IGNORE };
        // SAFETY: an active request.
        check("MPI_Wait", unsafe { ffi::MPI_Wait(&raw mut request, ignore) })
    }

    /// `MPI_Ibarrier` (6.12.1): complete when all ranks have come.
    pub(super) fn barrier(&self) -> Result<Request, CommError> {
        let mut request = null_request();
        // SAFETY: the communicator is valid; all ranks come here, as it is collective.
        check("MPI_Ibarrier", unsafe { ffi::MPI_Ibarrier(self.comm, &raw mut request) })?;
        Ok(request)
    }

    /// `MPI_Ireduce_scatter_block` (6.12.8) with `MPI_SUM`: `own` becomes this rank's block of the sum of all ranks' `all`.
    ///
    /// The caller keeps both until the request is complete.
    pub(super) fn reduce_scatter(
        &self,
        all: &mut [f32],
        own: &mut [f32],
    ) -> Result<Request, CommError> {
        assert!(all.len() / own.len().max(1) >= self.n_ranks()?, "a block for each rank");
        let (mut request, count) = (null_request(), int(own.len()));
        let (from, to) = (all.as_ptr().cast::<c_void>(), own.as_mut_ptr().cast::<c_void>());
        // SAFETY: a constant of the library.
        let float = unsafe { ffi::RSMPI_FLOAT };
        // SAFETY: a constant of the library.
        let sum = unsafe { ffi::RSMPI_SUM };
        // SAFETY: `count` elements for each rank at `from`, `count` at `to`; the caller keeps them, as `wait_for` does.
        let code = unsafe {
            ffi::MPI_Ireduce_scatter_block(from, to, count, float, sum, self.comm, &raw mut request)
        };
        check("MPI_Ireduce_scatter_block", code)?;
        Ok(request)
    }

    /// `MPI_Iallgather` (6.12.5): `all` becomes all ranks' `own`, by rank.
    ///
    /// The caller keeps both until the request is complete.
    pub(super) fn all_gather(
        &self,
        own: &mut [f32],
        all: &mut [f32],
    ) -> Result<Request, CommError> {
        assert!(all.len() / own.len().max(1) >= self.n_ranks()?, "a block for each rank");
        let (mut request, count) = (null_request(), int(own.len()));
        let (from, to) = (own.as_ptr().cast::<c_void>(), all.as_mut_ptr().cast::<c_void>());
        // SAFETY: a constant of the library.
        let float = unsafe { ffi::RSMPI_FLOAT };
        // SAFETY: `count` elements at `from`, `count` for each rank at `to`; the caller keeps them, as `wait_for` does.
        let code = unsafe {
            ffi::MPI_Iallgather(from, count, float, to, count, float, self.comm, &raw mut request)
        };
        check("MPI_Iallgather", code)?;
        Ok(request)
    }

    /// `MPI_Abort` (9.7). Normally does not return.
    pub(super) fn abort(&self, code: i32) {
        // SAFETY: a constant of the library.
        let world = unsafe { ffi::RSMPI_COMM_WORLD };
        // SAFETY: the world is valid until `finalize`.
        let returned = unsafe { ffi::MPI_Abort(world, code) };
        tracing::error!(returned, "MPI_Abort came back");
    }

    /// `MPI_Comm_free` (7.4.3) and `MPI_Finalize` (11.2.2). No request may be left.
    pub(super) fn finalize(&mut self) -> Result<(), CommError> {
        // SAFETY: the communicator is our own, and no request uses it any more.
        check("MPI_Comm_free", unsafe { ffi::MPI_Comm_free(&raw mut self.comm) })?;
        finalize()
    }
}

/// `MPI_Finalize` (11.2.2).
fn finalize() -> Result<(), CommError> {
    // SAFETY: called by the thread that initialized MPI, once.
    check("MPI_Finalize", unsafe { ffi::MPI_Finalize() })
}

/// `MPI_Comm_set_errhandler` (9.3.1) with `MPI_ERRORS_RETURN`.
fn return_errors(comm: ffi::MPI_Comm) -> Result<(), CommError> {
    // SAFETY: a constant of the library.
    let handler = unsafe { ffi::RSMPI_ERRORS_RETURN };
    // SAFETY: a valid communicator and a predefined handler.
    check("MPI_Comm_set_errhandler", unsafe { ffi::MPI_Comm_set_errhandler(comm, handler) })
}

/// `MPI_Get_count` (3.2.5) in bytes; 0 where the status is of a send.
fn received_bytes(status: &ffi::MPI_Status) -> Result<usize, CommError> {
    let mut count = 0;
    // SAFETY: a constant of the library.
    let byte = unsafe { ffi::RSMPI_UINT8_T };
    // SAFETY: a status that `MPI_Testsome` filled.
    check("MPI_Get_count", unsafe { ffi::MPI_Get_count(status, byte, &raw mut count) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

fn null_request() -> Request {
    // SAFETY: a constant of the library.
    unsafe { ffi::RSMPI_REQUEST_NULL }
}

/// Counts, ranks and tags fit C's int: chunks are at most 1 GiB, and ranks come from MPI.
fn int(value: usize) -> c_int {
    c_int::try_from(value).expect("chunks, ranks and requests are counted by C's int")
}
