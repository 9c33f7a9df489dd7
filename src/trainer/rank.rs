//! The life of one rank: agree with the others, bind the programs, train, score, save.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockstep_comm::{Communicator, agree};
use lockstep_data::{Dataset, Loader, LoaderConfig, Order, Schedule};
use lockstep_graph::{Mode, Network, Plan, PlanOptions, Platform};
use lockstep_scheduler::{
    Executor, IterationReport, ParameterStore, Program, Router, WorkerConfig,
};
use lockstep_traces::{RankTrace, Recorder, TraceConfig};

use super::exchanges::{ExchangeTimes, exchange_times, isolate};
use super::facts::facts;
use super::feed::{LoaderFeed, Recipe};
use super::memory::{MemoryEstimate, resident_bytes};
use super::observer::{EpochRecord, Observer, RunStart, Score, StepRecord};
use super::options::{Job, Length};
use super::platform::platform;
use super::replicas::check_replicas;
use super::score::{EpochLoss, score_dataset};
use super::threads::Threads;
use crate::checkpoint::{NamedTensor, find_tensor, save_weights};
use crate::error::RunError;
use crate::init::initial_values;

/// Minibatches that a loader prepares ahead.
const PREFETCH: usize = 3;

/// What a rank ends with.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Steps that were trained.
    pub steps: u64,
    /// Epochs and their scores.
    pub epochs: Vec<EpochRecord>,
    /// Final parameters and running statistics, in the network's order.
    pub weights: Vec<NamedTensor>,
    /// Bytes this rank sent to others.
    pub bytes_sent: u64,
    /// The exchanges of a training step, in the order of the plan's tasks; none on one rank.
    pub exchanges: Vec<ExchangeTimes>,
}

/// One rank, ready to run.
pub(super) struct Rank<'a> {
    pub(super) job: &'a Job,
    pub(super) threads: Threads,
    pub(super) comm: Option<(Arc<Communicator>, Arc<Router>)>,
    /// There on rank 0.
    pub(super) observer: Option<&'a mut dyn Observer>,
    /// Called with the recorder once it records, for the threads that started before it.
    pub(super) on_recorder: &'a dyn Fn(&Recorder),
}

/// What a running rank works with.
struct Bench {
    executor: Executor,
    store: Arc<ParameterStore>,
    train: Arc<Program>,
    score: Option<Arc<Program>>,
    /// Prepares the test data, over and over; ready when the next scoring begins.
    test: Option<Loader>,
    recipe: Recipe,
    schedule: Schedule,
    recorder: Recorder,
    /// What each exchange of the training program took alone.
    alone: Vec<Duration>,
}

impl Rank<'_> {
    fn rank(&self) -> usize {
        self.threads.rank
    }

    fn ranks(&self) -> usize {
        self.threads.ranks
    }

    /// Trains.
    pub(super) fn run(mut self) -> Result<Outcome, RunError> {
        let job = self.job;
        let options = &job.options;
        check_fit(&job.network, &*job.train)?;
        if let Some(test) = &job.test {
            check_fit(&job.network, &**test)?;
        }
        let baseline = resident_bytes();
        let schedule = Schedule { n_samples: job.train.len(), minibatch: options.minibatch };
        let total_steps = match options.length {
            Length::Epochs(epochs) => epochs * schedule.steps_per_epoch(),
            Length::Steps(steps) => steps,
        };
        let plans = self.plans()?;
        if let Some((comm, _)) = &self.comm {
            agree(comm, &facts(job, plans[0].meshes()))?;
        }
        let trace = self.start_trace()?;
        let recorder = trace.as_ref().map_or_else(Recorder::off, RankTrace::recorder);
        (self.on_recorder)(&recorder);

        let store = ParameterStore::new(&plans[0], self.rank(), options.isa)?;
        let store = Arc::new(store.for_workers(self.threads.workers));
        self.initialize(&store)?;
        let (train, score) = self.bind(plans, &store)?;
        let alone = isolate(self.comm.as_ref().map(|(comm, _)| &**comm), &train)?;
        let executor = Executor::start(
            &WorkerConfig {
                workers: self.threads.workers,
                cores: self.threads.worker_cores(),
                spins: self.threads.spins(),
                name: self.threads.prefix("worker"),
                recorder: recorder.clone(),
                on_step: self.threads.hook("worker"),
            },
            self.comm.clone(),
            Arc::clone(&options.stop),
        )?;
        let recipe = Recipe { sgd: options.sgd.clone(), seed: options.seed, total_steps };
        let test = self.test_loader()?;
        let bench =
            Bench { executor, store, train, score, test, recipe, schedule, recorder, alone };
        self.announce(&bench, baseline);
        let outcome = self.train(bench)?;
        if let Some(trace) = &trace {
            trace.finish()?;
        }
        Ok(outcome)
    }

    fn start_trace(&self) -> Result<Option<RankTrace>, RunError> {
        let Some(trace) = &self.job.options.trace else { return Ok(None) };
        let clock_offset_ns = match &self.comm {
            Some((comm, _)) => comm.clock_offset()?,
            None => 0,
        };
        let started = RankTrace::start(TraceConfig {
            path: trace.path.clone(),
            rank: self.rank(),
            n_ranks: self.ranks(),
            host: super::threads::host_name(),
            steps: trace.steps.clone(),
            clock_offset_ns,
        })?;
        self.job.options.finishers.add(started.finisher());
        Ok(Some(started))
    }

    fn initialize(&self, store: &ParameterStore) -> Result<(), RunError> {
        let network = &self.job.network;
        for layer in network.layers() {
            for param in &layer.params {
                let initial = self.job.initial.as_ref();
                let given = initial.and_then(|tensors| find_tensor(network, tensors, layer, param));
                match given {
                    Some(tensor) => store.import(network, layer.id, &param.name, &tensor.values)?,
                    None => {
                        let values = initial_values(self.job.options.seed, layer, param);
                        store.import(network, layer.id, &param.name, &values)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn platform(&self) -> Result<Platform, RunError> {
        let (options, comm) = (&self.job.options, self.comm.as_ref().map(|(comm, _)| &**comm));
        platform(comm, self.threads.workers, options.isa, &options.link)
    }

    /// The training plan and, where there is test data, the scoring plan, by the same strategy.
    fn plans(&self) -> Result<Vec<Plan>, RunError> {
        let (network, options) = (&self.job.network, &self.job.options);
        let train = PlanOptions {
            minibatch: options.minibatch,
            ranks: self.ranks(),
            mode: Mode::Train { momentum: options.sgd.momentum != 0.0 },
            strategy: options.strategy.clone(),
            platform: self.platform()?,
            fuse: true,
            bundle: options.bundle,
            // Settled below, with the strategy.
            reproducible: false,
            clip: options.sgd.clip_norm.is_some(),
            winograd: options.winograd,
        };
        let train = options.reproducible.resolve(network, train, options.isa)?;
        let score = PlanOptions { mode: Mode::Score, ..train.clone() };
        let mut plans = vec![Plan::compile(Arc::clone(network), train)?];
        if self.test_data().is_some() {
            plans.push(Plan::compile(Arc::clone(network), score)?);
        }
        Ok(plans)
    }

    /// The programs of the plans, in the same memory.
    fn bind(
        &self,
        plans: Vec<Plan>,
        store: &Arc<ParameterStore>,
    ) -> Result<(Arc<Program>, Option<Arc<Program>>), RunError> {
        let options = &self.job.options;
        let bind = lockstep_scheduler::BindOptions {
            decay_all: options.sgd.decay == super::options::Decay::All,
            clip_norm: options.sgd.clip_norm,
        };
        let mut programs = Program::bind(plans, store, &bind)?.into_iter().map(Arc::new);
        let train = programs.next().expect("one program a plan");
        Ok((train, programs.next()))
    }

    fn announce(&mut self, bench: &Bench, baseline: u64) {
        let job = self.job;
        let options = &job.options;
        let estimate = MemoryEstimate {
            baseline,
            store: bench.store.bytes() as u64,
            arena: bench.train.arena_bytes() as u64,
            scratch: (bench.train.scratch_bytes() * self.threads.workers) as u64,
            loader: self.loader_bytes(),
            ranks_here: self.threads.ranks_here as u64,
        };
        let start = RunStart {
            network: job.network.name().to_owned(),
            parameters: job.network.parameter_count(),
            isa: options.isa.name(),
            workers: self.threads.workers,
            ranks: self.ranks(),
            transport: self.transport(),
            minibatch: options.minibatch,
            local_minibatch: lockstep_graph::share(options.minibatch, self.ranks(), 0).len(),
            strategy: options.strategy.to_string(),
            reproducible: bench.train.plan().options().reproducible,
            samples: job.train.len(),
            total_steps: bench.recipe.total_steps,
            steps_per_epoch: bench.schedule.steps_per_epoch(),
            peak_memory: estimate.total(),
            warnings: self.threads.warnings(),
        };
        if let Some(observer) = &mut self.observer {
            observer.start(&start);
        }
    }

    fn transport(&self) -> String {
        self.comm.as_ref().map_or_else(|| "none".to_owned(), |(comm, _)| comm.library().to_owned())
    }

    fn loader_config(&self, last_step: Option<u64>, recorder: &Recorder) -> LoaderConfig {
        let recorder = recorder.clone();
        LoaderConfig {
            threads: self.job.options.loader_threads,
            depth: PREFETCH,
            rank: self.rank(),
            n_ranks: self.ranks(),
            first_step: 1,
            last_step,
            thread_name: self.threads.prefix("loader"),
            on_thread_start: Arc::new(move |index| {
                super::threads::record_thread(&recorder, &format!("loader {index}"));
            }),
            on_step: self.threads.hook("loader"),
        }
    }

    /// Bytes of prepared minibatches, of training and of test data.
    fn loader_bytes(&self) -> u64 {
        let config = self.loader_config(Some(1), &Recorder::off());
        let bytes = |data: &Arc<dyn Dataset>| {
            config.buffer_bytes(&**data, self.job.options.minibatch) as u64
        };
        bytes(&self.job.train) + self.test_data().map_or(0, bytes)
    }

    /// The test data, where it is to be scored.
    fn test_data(&self) -> Option<&Arc<dyn Dataset>> {
        self.job.test.as_ref().filter(|_| self.job.options.evaluate)
    }

    fn test_schedule(&self, data: &Arc<dyn Dataset>) -> Schedule {
        Schedule { n_samples: data.len(), minibatch: self.job.options.minibatch }
    }

    fn test_loader(&self) -> Result<Option<Loader>, RunError> {
        let Some(data) = self.test_data() else { return Ok(None) };
        let thread_name = self.threads.prefix("scorer");
        let config = LoaderConfig { thread_name, ..self.loader_config(None, &Recorder::off()) };
        let schedule = self.test_schedule(data);
        Ok(Some(Loader::start(Arc::clone(data), schedule, Order::sequential(), config)?))
    }

    /// The run proper: one loader through all epochs, an executor run an epoch, a score and a checkpoint after each.
    fn train(&mut self, mut bench: Bench) -> Result<Outcome, RunError> {
        let job = self.job;
        let (schedule, total) = (bench.schedule, bench.recipe.total_steps);
        let mut loader = Loader::start(
            Arc::clone(&job.train),
            schedule,
            Order::shuffled(job.options.seed),
            self.loader_config(Some(total), &bench.recorder),
        )?;
        let (steps, mut epochs) = (Cell::new(0), Vec::new());
        let per_epoch = schedule.steps_per_epoch();
        let mut epoch = 0;
        let stopped = Cell::new(false);
        while steps.get() < total && !stopped.get() {
            epoch += 1;
            let mut left = per_epoch.min(total - steps.get());
            let began = Instant::now();
            let mut last = began;
            let mut epoch_losses = EpochLoss::default();
            let observer = &mut self.observer;
            let recipe = bench.recipe.clone();
            let mut on_report = |report: &IterationReport| {
                if !report.loss.is_finite() {
                    return Err(RunError::Diverged { step: report.step, loss: report.loss });
                }
                steps.set(report.step);
                epoch_losses.add(report);
                stopped.set(stopped.get() || report.stop);
                let now = Instant::now();
                let seconds = now.duration_since(last).as_secs_f64();
                last = now;
                if let Some(observer) = observer {
                    observer.step(&StepRecord {
                        report: *report,
                        samples_per_s: report.minibatch as f64 / seconds,
                        lr: recipe.rate(report.step, report.epoch),
                    });
                }
                Ok(())
            };
            // In stretches between checks of the replicas, or all at once.
            while left > 0 && !stopped.get() {
                let stretch = job.options.check_replicas.map_or(left, |every| left.min(every));
                let mut feed = LoaderFeed {
                    loader: &mut loader,
                    recipe: &bench.recipe,
                    steps_left: stretch,
                    on_report: &mut on_report,
                };
                bench.executor.run(&bench.train, &mut feed)?;
                left -= stretch;
                if let (Some((comm, _)), Some(_)) = (&self.comm, job.options.check_replicas) {
                    check_replicas(comm, &job.network, &bench.store, steps.get())?;
                }
            }
            let seconds = began.elapsed().as_secs_f64();
            self.share_running_statistics(&bench)?;
            // A run that was asked to stop saves what it has and leaves without scoring.
            let test = if stopped.get() { None } else { self.evaluate(&mut bench)? };
            let record = EpochRecord { epoch, train_loss: epoch_losses.mean(), seconds, test };
            if let Some(observer) = &mut self.observer {
                observer.epoch(&record);
            }
            epochs.push(record);
            self.save(&bench)?;
        }
        drop(loader);
        let steps = steps.get();
        if stopped.get() && steps < total {
            return Err(RunError::Stopped { step: steps });
        }
        let weights = self.weights(&bench.store)?;
        let bytes_sent = self.comm.as_ref().map_or(0, |(comm, _)| comm.counters().bytes_sent);
        let exchanges = exchange_times(&bench.train, &bench.alone);
        Ok(Outcome { steps, epochs, weights, bytes_sent, exchanges })
    }

    /// Scores the test data; the same numbers on every rank.
    fn evaluate(&self, bench: &mut Bench) -> Result<Option<Score>, RunError> {
        let Bench { executor, score: Some(program), test: Some(loader), .. } = bench else {
            return Ok(None);
        };
        let data = self.test_data().expect("there is a loader of it");
        let steps = self.test_schedule(data).steps_per_epoch();
        Ok(Some(score_dataset(executor, program, loader, steps)?))
    }

    /// Batch normalizations with per-rank statistics have running statistics of their own on each rank; scoring and
    /// checkpoints use the mean over the ranks.
    fn share_running_statistics(&self, bench: &Bench) -> Result<(), RunError> {
        let Some((comm, _)) = &self.comm else { return Ok(()) };
        let network = &self.job.network;
        for (layer, param) in super::facts::per_rank_statistics(network) {
            let own = bench.store.export(network, layer, param)?;
            let bytes = own.iter().flat_map(|v| v.to_le_bytes()).collect();
            let mut mean = vec![0.0_f64; own.len()];
            let all = comm.all_gather(bytes)?;
            let mesh = bench.store.meshes().mesh(layer);
            for peer in mesh.same_features(self.rank()) {
                let values = &all[peer];
                let (chunks, _) = values.as_chunks::<4>();
                for (sum, &chunk) in mean.iter_mut().zip(chunks) {
                    *sum += f64::from(f32::from_le_bytes(chunk));
                }
            }
            let groups = mesh.groups() as f64;
            let mean: Vec<f32> = mean.iter().map(|sum| (sum / groups) as f32).collect();
            bench.store.import_share(network, layer, param, &mean)?;
        }
        Ok(())
    }

    fn save(&mut self, bench: &Bench) -> Result<(), RunError> {
        let Some(directory) = &self.job.options.checkpoint else { return Ok(()) };
        let weights = self.weights(&bench.store)?;
        if self.rank() != 0 {
            return Ok(());
        }
        let path = save_weights(directory, &weights)?;
        if let Some(observer) = &mut self.observer {
            observer.saved(&path);
        }
        Ok(())
    }

    /// All parameters and running statistics in plain order, under PyTorch's names. Where layers are split over ranks, these
    /// send each other what they have: then all ranks must call it.
    fn weights(&self, store: &ParameterStore) -> Result<Vec<NamedTensor>, RunError> {
        let network = &self.job.network;
        let mut tensors = Vec::new();
        for layer in network.layers() {
            let members = store.meshes().mesh(layer.id).members();
            for param in &layer.params {
                let mut values = store.export(network, layer.id, &param.name)?;
                if let Some((comm, _)) = self.comm.as_ref().filter(|_| members > 1) {
                    let own = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                    let all = comm.all_gather(own)?;
                    // The first group's members have all features, in order.
                    let floats = |bytes: &Vec<u8>| {
                        let (chunks, _) = bytes.as_chunks::<4>();
                        chunks.iter().map(|&c| f32::from_le_bytes(c)).collect::<Vec<_>>()
                    };
                    values = all[..members].iter().flat_map(floats).collect();
                }
                let name = format!("{}.{}", layer.name, param.name);
                tensors.push(NamedTensor { name, shape: param.shape.clone(), values });
            }
        }
        Ok(tensors)
    }
}

/// The network's input and classes must be the data's.
pub(super) fn check_fit(network: &Network, data: &dyn Dataset) -> Result<(), RunError> {
    let input = network.layer(network.input()).shape;
    let shape = data.shape();
    if input.maps() != (shape.c, shape.h, shape.w) {
        return Err(RunError::SampleShape {
            network: input.to_string(),
            data: data.name().to_owned(),
            samples: format!("{}x{}x{}", shape.c, shape.h, shape.w),
        });
    }
    if data.classes() > network.classes() {
        return Err(RunError::Classes {
            network: network.classes(),
            data: data.name().to_owned(),
            classes: data.classes(),
        });
    }
    Ok(())
}
