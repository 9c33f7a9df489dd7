//! What happens in a loader thread: one step's batch is filled.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use super::{Batch, LoaderConfig, StepHook};
use crate::{DataError, Dataset, Order, Schedule, share};

/// Samples are handed to threads in pieces of about this many bytes: small ones (MNIST) several at a time, as passing one
/// on costs about as much as reading it; large ones one by one.
const PIECE_BYTES: usize = 64 * 1024;

/// All that a step's batch is a function of.
pub(super) struct Recipe {
    dataset: Arc<dyn Dataset>,
    schedule: Schedule,
    order: Order,
    rank: usize,
    n_ranks: usize,
    on_step: Option<StepHook>,
}

impl Recipe {
    pub(super) fn new(
        dataset: Arc<dyn Dataset>,
        schedule: Schedule,
        order: Order,
        config: LoaderConfig,
    ) -> Self {
        let LoaderConfig { rank, n_ranks, on_step, .. } = config;
        Self { dataset, schedule, order, rank, n_ranks, on_step }
    }

    /// Fills `batch` for `step`; a panic on the way becomes an error. Gives up, with any content, when `canceled`.
    pub(super) fn prepare_guarded(
        &self,
        step: u64,
        batch: Batch,
        canceled: &AtomicBool,
    ) -> Result<Batch, DataError> {
        // Unwind safe: the batch is lost with the panic, and what else is reached is read only.
        catch_unwind(AssertUnwindSafe(|| self.prepare(step, batch, canceled))).unwrap_or_else(
            |panic| Err(DataError::LoaderPanicked { step, message: message_of(&*panic) }),
        )
    }

    fn prepare(
        &self,
        step: u64,
        mut batch: Batch,
        canceled: &AtomicBool,
    ) -> Result<Batch, DataError> {
        if canceled.load(Ordering::Relaxed) {
            return Ok(batch);
        }
        if let Some(hook) = &self.on_step {
            hook(step);
        }
        let positions = self.schedule.positions(step);
        batch.step = step;
        batch.epoch = self.schedule.epoch(step);
        batch.minibatch = positions.len();
        let order = self.order.epoch(batch.epoch, self.schedule.n_samples);
        let own = share(positions.len(), self.n_ranks, self.rank);
        let sample_len = self.dataset.shape().values();
        // What a recycled batch still holds is overwritten below, so it need not be cleared.
        batch.samples.resize(own.len() * sample_len, 0.0);
        batch.labels.resize(own.len(), 0);
        batch.ids.clear();
        batch.ids.extend(positions.map(|position| order.index(position) as u64));
        let piece = (PIECE_BYTES / (sample_len * size_of::<f32>())).max(1);
        batch
            .samples
            .par_chunks_mut(sample_len)
            .zip(&mut batch.labels)
            .zip(&batch.ids[own])
            .with_min_len(piece)
            .try_for_each(|((dst, label), &id)| {
                if !canceled.load(Ordering::Relaxed) {
                    *label = self.dataset.read(id as usize, dst)?;
                }
                Ok(())
            })?;
        Ok(batch)
    }
}

impl fmt::Debug for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recipe")
            .field("dataset", &self.dataset.name())
            .field("schedule", &self.schedule)
            .field("order", &self.order)
            .field("rank", &self.rank)
            .field("n_ranks", &self.n_ranks)
            .finish_non_exhaustive()
    }
}

/// What a panic said; `panic!` leaves a string of one of two types.
fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
        .to_owned()
}
