//! The blocking all-gather of bytes: two of the crate's own part-broadcasts, first of the lengths, then of the bytes.
//!
//! Bytes travel as `f32` elements because exchanges are made of these. They are only ever copied, so any bit pattern survives.

use std::sync::Arc;
use std::sync::mpsc::channel;

use crate::communicator::Communicator;
use crate::error::CommError;
use crate::exchange::{Exchange, ExchangeKind, ExchangeLabel, MAX_EXCHANGE_ID, Message, Receive};
use crate::region::Region;
use crate::submission::Notify;

const LENGTHS_ID: u32 = MAX_EXCHANGE_ID + 1;
const BYTES_ID: u32 = MAX_EXCHANGE_ID + 2;

/// Words (4 bytes) of a length.
const LENGTH_WORDS: usize = 2;

/// Every rank's bytes, by rank.
pub(crate) fn all_gather(comm: &Communicator, bytes: &[u8]) -> Result<Vec<Vec<u8>>, CommError> {
    let words = bytes.len().div_ceil(4);
    let length = (bytes.len() as u64).to_le_bytes();
    let lengths = broadcast(comm, LENGTHS_ID, &vec![LENGTH_WORDS; comm.n_ranks()], &length)?;
    let lengths: Vec<usize> = lengths.chunks_exact(8).map(length_of).collect();
    let strips: Vec<usize> = lengths.iter().map(|length| length.div_ceil(4)).collect();
    debug_assert_eq!(strips[comm.rank()], words, "own length comes back");
    let all = broadcast(comm, BYTES_ID, &strips, bytes)?;
    let mut start = 0;
    let mut of_rank = |(&length, &words): (&usize, &usize)| {
        let mine = all[start..start + length].to_vec();
        start += words * 4;
        mine
    };
    Ok(lengths.iter().zip(&strips).map(&mut of_rank).collect())
}

fn length_of(bytes: &[u8]) -> usize {
    let bytes: [u8; 8] = bytes.try_into().expect("chunks of 8 bytes");
    usize::try_from(u64::from_le_bytes(bytes))
        .expect("what another rank holds in memory fits in usize")
}

/// Part-broadcasts strips of so many words each, of which `own` fills this rank's, and returns the bytes of them all.
fn broadcast(
    comm: &Communicator,
    id: u32,
    strips: &[usize],
    own: &[u8],
) -> Result<Vec<u8>, CommError> {
    let rank = comm.rank();
    let start_of = |rank: usize| strips[..rank].iter().sum::<usize>();
    let mut words = vec![0.0_f32; start_of(strips.len())];
    for (word, bytes) in words[start_of(rank)..].iter_mut().zip(own.chunks(4)) {
        let mut padded = [0; 4];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = f32::from_ne_bytes(padded);
    }
    // Least urgent, so that a checkpoint does not delay gradients.
    let label = ExchangeLabel { id, priority: u32::MAX, rank };
    let strip = |rank: usize| start_of(rank)..start_of(rank) + strips[rank];
    let peers = || (0..comm.n_ranks()).filter(|&peer| peer != rank);
    let sends = peers().map(|peer| Message { peer, range: strip(rank) }).collect();
    let receives = peers().map(|peer| Receive { peer, range: strip(peer), add: false }).collect();
    let region = Region::owned_by_caller(&mut words);
    let exchange = Exchange::reserved(
        ExchangeKind::PartBroadcast,
        label,
        (region, region),
        (sends, receives),
        Vec::new(),
    )?;
    let (reply, answer) = channel();
    comm.serve(Arc::new(exchange), 0, Notify::Caller(reply));
    if let Err(error) = comm.wait_for(&answer) {
        // MPI may still write here until the job is aborted, which is about to happen.
        std::mem::forget(words);
        return Err(error);
    }
    Ok(words.iter().flat_map(|word| word.to_ne_bytes()).collect())
}
