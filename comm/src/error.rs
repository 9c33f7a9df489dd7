//! Why an exchange could not be described, or a communicator could not go on.

use std::fmt;

/// What went wrong in this crate. Cloned freely, because one failure answers every pending caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommError {
    /// The id does not fit in a message tag that every MPI must accept. Number exchanges from 0.
    #[error("exchange id {id} is above {max}, the largest that fits in a message tag")]
    IdTooLarge {
        /// The refused id.
        id: u32,
        /// The largest id allowed.
        max: u32,
    },
    /// A range ends outside its tensor. Fix the range or the region's length.
    #[error("exchange {id}: elements {start}..{end} lie outside a tensor of {len} elements")]
    OutOfBounds {
        /// The exchange.
        id: u32,
        /// First element of the refused range.
        start: usize,
        /// One past its last element.
        end: usize,
        /// Elements in the tensor.
        len: usize,
    },
    /// Members must be distinct and ascending, because their order is the order of summation.
    #[error("exchange {id}: members must be strictly ascending ranks, got {members:?}")]
    MembersNotAscending {
        /// The exchange.
        id: u32,
        /// The members as given.
        members: Vec<usize>,
    },
    /// The rank that described the exchange takes no part in it. Describe it on its members alone.
    #[error("exchange {id}: rank {rank} is not one of its members {members:?}")]
    NotAMember {
        /// The exchange.
        id: u32,
        /// The describing rank.
        rank: usize,
        /// The members as given.
        members: Vec<usize>,
    },
    /// Every member owns exactly one strip (an empty one will do).
    #[error("exchange {id}: {members} members but {strips} strips")]
    StripCount {
        /// The exchange.
        id: u32,
        /// How many members were given.
        members: usize,
        /// How many strips were given.
        strips: usize,
    },
    /// A local copy must have as many elements on both sides.
    #[error("exchange {id}: a local copy of {src} elements into {dst} elements")]
    CopyLength {
        /// The exchange.
        id: u32,
        /// Elements read.
        src: usize,
        /// Elements written.
        dst: usize,
    },
    /// A message to the rank itself. Use a local copy.
    #[error("exchange {id}: rank {rank} sends to or receives from itself; use a local copy")]
    SelfMessage {
        /// The exchange.
        id: u32,
        /// The rank.
        rank: usize,
    },
    /// Two writes without `add` meet, so the result would depend on which comes last.
    #[error("exchange {id}: elements from {start} on are written twice; make the ranges disjoint")]
    WrittenTwice {
        /// The exchange.
        id: u32,
        /// First element that is written twice.
        start: usize,
    },
    /// Memory that is still to be sent or copied would be overwritten by what arrives.
    #[error(
        "exchange {id}: source and destination share memory from element {start} of the source on"
    )]
    ReadAndWritten {
        /// The exchange.
        id: u32,
        /// First element of the source concerned.
        start: usize,
    },
    /// Receives with `add` must cover the same ranges for all peers, or disjoint ones.
    #[error(
        "exchange {id}: adds from ranks {first} and {second} overlap without being the same ranges; \
         split them at their common boundaries"
    )]
    UnevenAdds {
        /// The exchange.
        id: u32,
        /// One of the two peers.
        first: usize,
        /// The other.
        second: usize,
    },
    /// One peer's receives are partly added and partly stored. Use two exchanges.
    #[error(
        "exchange {id}: receives from rank {peer} must all add or all store; use two exchanges"
    )]
    MixedReceive {
        /// The exchange.
        id: u32,
        /// The peer.
        peer: usize,
    },
    /// An exchange names a rank that the job does not have.
    #[error("exchange {id} names rank {rank}, but the job has {n_ranks} ranks")]
    NoSuchRank {
        /// The exchange.
        id: u32,
        /// The rank named.
        rank: usize,
        /// Ranks of the job.
        n_ranks: usize,
    },
    /// An exchange was submitted on another rank than it was described for.
    #[error("exchange {id} was described for rank {described} but submitted on rank {rank}")]
    WrongRank {
        /// The exchange.
        id: u32,
        /// The rank in its label.
        described: usize,
        /// The rank that it was submitted on.
        rank: usize,
    },
    /// An exchange was submitted again before it was completed, or two exchanges share an id.
    #[error("exchange {id} was submitted while an exchange of that id is still in flight")]
    StillInFlight {
        /// The exchange.
        id: u32,
    },
    /// A peer sent another number of bytes than expected: the ranks described the exchange differently.
    #[error("rank {peer} sent {got} bytes under tag {tag} where {expected} were expected")]
    SizeMismatch {
        /// The sender.
        peer: usize,
        /// The message tag: the exchange's id.
        tag: u32,
        /// Bytes expected.
        expected: usize,
        /// Bytes that came.
        got: usize,
    },
    /// Another rank failed or left; the job is over.
    #[error("rank {rank} failed: {message}")]
    PeerFailed {
        /// The rank at fault.
        rank: usize,
        /// What it said.
        message: String,
    },
    /// This rank ended the job through [`crate::Communicator::abort`].
    #[error("rank {rank} ended the job: {message}")]
    Aborted {
        /// This rank.
        rank: usize,
        /// The message given.
        message: String,
    },
    /// The communication thread, or a callback that it ran, panicked.
    #[error("the communication thread of rank {rank} panicked: {message}")]
    ThreadPanicked {
        /// This rank.
        rank: usize,
        /// The panic's message.
        message: String,
    },
    /// The communication thread could not be started, or panicked before it had connected.
    #[error("cannot start the communication thread: {message}")]
    ThreadStart {
        /// What the operating system said, or the panic's message.
        message: String,
    },
    /// The communication thread has ended, so nothing can be exchanged any more.
    #[error("the communication thread has ended")]
    Stopped,
    /// Ranks were started with different settings. Start all of them alike.
    #[error("ranks disagree on {}", Listing(.differences))]
    Disagreement {
        /// Every fact that differs, in the order in which the lowest rank lists them.
        differences: Vec<Difference>,
    },
    /// A message between ranks could not be understood: they run different versions.
    #[error("rank {rank} sent start-up facts that cannot be read; it runs another version")]
    UnreadableFacts {
        /// The rank that sent them.
        rank: usize,
    },
    /// The launcher started other ranks than MPI sees.
    #[error(
        "the launcher started {launcher_ranks} ranks but MPI sees {mpi_ranks}: \
         the program was built against another MPI than this mpirun"
    )]
    LauncherMismatch {
        /// Ranks according to the launcher's environment.
        launcher_ranks: usize,
        /// Ranks according to `MPI_Comm_size`.
        mpi_ranks: usize,
    },
    /// The program runs under an MPI launcher but was built without the `mpi` feature.
    #[error(
        "started by {launcher} as one of {n_ranks} ranks, but this program was built without MPI: \
         rebuild with --features mpi, or start it without the launcher"
    )]
    MpiNotBuilt {
        /// The launcher found.
        launcher: String,
        /// Ranks that it started.
        n_ranks: usize,
    },
    /// MPI offers less thread support than a communication thread needs.
    #[error(
        "MPI provides thread level {provided} but MPI_THREAD_FUNNELED is needed; use an MPI built with threads"
    )]
    ThreadLevel {
        /// Name of the level provided.
        provided: String,
    },
    /// MPI can be initialized once per process.
    #[error("MPI was already initialized in this process; start one MPI communicator per process")]
    MpiReused,
    /// MPI allows fewer tags than the standard demands.
    #[error("this MPI allows tags up to {upper_bound} only, {needed} are needed")]
    TagsTooFew {
        /// `MPI_TAG_UB`.
        upper_bound: usize,
        /// The largest tag used.
        needed: usize,
    },
    /// An MPI call returned an error.
    #[error("{call} failed with code {code}: {message}")]
    MpiCall {
        /// The function.
        call: &'static str,
        /// Its return code.
        code: i32,
        /// `MPI_Error_string` of the code.
        message: String,
    },
}

/// One fact on which ranks disagree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The fact's name.
    pub key: String,
    /// Each value found with the ranks that hold it, ordered by the lowest of them; `None`: those ranks lack the fact.
    pub values: Vec<(Option<String>, Vec<usize>)>,
}

/// At most this many differences are spelled out in a message.
const SPELLED_OUT: usize = 3;

/// Writes differences as one sentence.
struct Listing<'a>(&'a [Difference]);

impl fmt::Display for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, difference) in self.0.iter().take(SPELLED_OUT).enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{difference}")?;
        }
        match self.0.len().saturating_sub(SPELLED_OUT) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.key)?;
        for (i, (value, ranks)) in self.values.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            match value {
                Some(value) => write!(f, "{value:?}")?,
                None => f.write_str("missing")?,
            }
            let plural = if ranks.len() == 1 { "" } else { "s" };
            let ranks = ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            write!(f, " on rank{plural} {ranks}")?;
        }
        Ok(())
    }
}
