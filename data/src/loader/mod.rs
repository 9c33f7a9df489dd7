//! Minibatches, prepared ahead by threads of their own and handed out in step order.
//!
//! ```text
//! consumer: next() ---- takes step t, orders step t + depth ----> rayon pool: `loader 0`, `loader 1`, ..
//!              ^                                                       | (a minibatch is read by all of them)
//!              +---- waits for step t, puts later ones aside <---- channel
//!           recycle() -> spare buffers -> the next order
//! ```
//! Nothing is read that was not ordered, so a slow consumer finds at most `depth` minibatches waiting, and idle loader
//! threads sleep. The pool is apart from the compute workers: decoding never takes a worker's turn.

mod batch;
mod config;
mod prepare;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crossbeam::channel::{Receiver, Sender, unbounded};
use rayon::{ThreadPool, ThreadPoolBuilder};

pub use batch::Batch;
pub use config::{LoaderConfig, StepHook, ThreadHook};
use prepare::Recipe;

use crate::{DataError, Dataset, Order, Schedule};

/// What a loader thread sends: a step and what became of it.
type Prepared = (u64, Result<Batch, DataError>);

/// An iterator over one rank's part of each step's minibatch.
///
/// A batch given out is the caller's; [`recycle`](Loader::recycle) gives its buffers back, so that a steady run allocates
/// nothing. Memory is bounded either way: the loader holds `depth` batches at most, and as many spare buffers as the caller
/// had batches at one time. After an error the iterator ends. Dropping it stops and joins the threads; each only
/// finishes the sample in hand.
pub struct Loader {
    recipe: Arc<Recipe>,
    canceled: Arc<AtomicBool>,
    /// Taken when the loader is dropped.
    pool: Option<ThreadPool>,
    threads: Vec<JoinHandle<()>>,
    sender: Sender<Prepared>,
    prepared: Receiver<Prepared>,
    /// Steps that were ready before their turn.
    early: BTreeMap<u64, Result<Batch, DataError>>,
    spare: Vec<Batch>,
    depth: u64,
    next_step: u64,
    next_order: u64,
    last_step: u64,
}

impl Loader {
    /// Starts the threads and orders the first `depth` steps.
    ///
    /// # Errors
    /// [`DataError::Config`] for a count that must not be 0, a rank beyond the ranks or a first step of 0,
    /// [`DataError::OtherLength`] for a schedule of another data set, [`DataError::Threads`] if the system has no threads left.
    pub fn start(
        dataset: Arc<dyn Dataset>,
        schedule: Schedule,
        order: Order,
        config: LoaderConfig,
    ) -> Result<Self, DataError> {
        config.check(&schedule)?;
        if dataset.len() != schedule.n_samples {
            return Err(DataError::OtherLength {
                schedule: schedule.n_samples,
                dataset: dataset.name().to_owned(),
                samples: dataset.len(),
            });
        }
        let (pool, threads) = start_threads(&config)?;
        let (sender, prepared) = unbounded();
        let mut loader = Self {
            canceled: Arc::new(AtomicBool::new(false)),
            pool: Some(pool),
            threads,
            sender,
            prepared,
            early: BTreeMap::new(),
            spare: Vec::new(),
            depth: config.depth as u64,
            next_step: config.first_step,
            next_order: config.first_step,
            last_step: config.last_step.unwrap_or(u64::MAX),
            recipe: Arc::new(Recipe::new(dataset, schedule, order, config)),
        };
        loader.order_ahead();
        Ok(loader)
    }

    /// Gives a batch's buffers back for a later step.
    pub fn recycle(&mut self, batch: Batch) {
        if (self.spare.len() as u64) < self.depth {
            self.spare.push(batch);
        }
    }

    /// Orders steps until `depth` are on their way.
    fn order_ahead(&mut self) {
        let Some(pool) = &self.pool else { return };
        while self.next_order <= self.last_step && self.next_order - self.next_step < self.depth {
            let step = self.next_order;
            let batch = self.spare.pop().unwrap_or_default();
            let (recipe, sender) = (Arc::clone(&self.recipe), self.sender.clone());
            let canceled = Arc::clone(&self.canceled);
            pool.spawn_fifo(move || {
                let outcome = recipe.prepare_guarded(step, batch, &canceled);
                // Fails only when the loader is gone, and nobody waits any more.
                let _ = sender.send((step, outcome));
            });
            self.next_order += 1;
        }
    }

    /// Waits for a step that was ordered.
    fn wait_for(&mut self, step: u64) -> Result<Batch, DataError> {
        loop {
            if let Some(outcome) = self.early.remove(&step) {
                return outcome;
            }
            let (ready, outcome) =
                self.prepared.recv().expect("the loader holds a sender of the channel itself");
            self.early.insert(ready, outcome);
        }
    }
}

impl Iterator for Loader {
    type Item = Result<Batch, DataError>;

    /// The next step's batch; `None` after the last step, or after an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.next_step == self.next_order {
            return None;
        }
        let outcome = self.wait_for(self.next_step);
        self.next_step += 1;
        if outcome.is_ok() {
            self.order_ahead();
        } else {
            self.canceled.store(true, Ordering::Relaxed);
            self.next_order = self.next_step;
        }
        Some(outcome)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.canceled.store(true, Ordering::Relaxed);
        // The pool's threads end once what was ordered is done, which it now is at once.
        drop(self.pool.take());
        for thread in self.threads.drain(..) {
            // rayon aborts the process where one of its threads panics outside of a job: there is no panic to report.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader")
            .field("recipe", &self.recipe)
            .field("next_step", &self.next_step)
            .field("last_step", &self.last_step)
            .finish_non_exhaustive()
    }
}

/// A pool whose threads have our names, and can be joined: rayon's own are neither.
fn start_threads(config: &LoaderConfig) -> Result<(ThreadPool, Vec<JoinHandle<()>>), DataError> {
    let mut threads = Vec::with_capacity(config.threads);
    let on_start = Arc::clone(&config.on_thread_start);
    let pool = ThreadPoolBuilder::new()
        .num_threads(config.threads)
        .start_handler(move |index| on_start(index))
        .spawn_handler(|thread| {
            let name = format!("{} {}", config.thread_name, thread.index());
            threads.push(thread::Builder::new().name(name).spawn(move || thread.run())?);
            Ok(())
        })
        .build()
        .map_err(|source| DataError::Threads { threads: config.threads, source })?;
    Ok((pool, threads))
}

#[cfg(test)]
mod tests;
