//! Measuring a network's speed: steps on one fixed minibatch, timed once they have settled.
//!
//! The samples are made once and given to every step, so that what is measured is the step and not where data comes from. Ranks
//! are threads of this process or processes of an MPI job; rank 0 holds the watch, and the others stop when it does. What `train`
//! does around the steps (epochs, scores, checkpoints) is left out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use lockstep_comm::{Communicator, Endpoint, LinkModel, LocalJob, ServiceOrder, agree};
use lockstep_data::{Dataset, SampleShape, Synthetic};
use lockstep_graph::{Meshes, Mode, Network, Plan, PlanOptions, Strategy, WinogradTile, share};
use lockstep_ops::Isa;
use lockstep_ops::sgd::SgdHyper;
use lockstep_scheduler::{
    BindOptions, Executor, Feed, Iteration, IterationReport, LocalSamples, ParameterStore, Program,
    Router, WorkerConfig,
};
use lockstep_traces::{Recorder, TallyReport};

use super::exchanges::{ExchangeTimes, exchange_times, isolate};
use super::facts::groups;
use super::job::{LAST_WORDS, first_cause, guarded, start_communicator};
use super::observer::Observer;
use super::options::{Ranks, RunOptions};
use super::platform::platform;
use super::reproducible::Reproducible;
use super::thread_time::cpu_time;
use super::threads::Threads;
use super::watch::Watch;
use crate::error::RunError;
use crate::init::initial_values;

/// What to measure.
#[derive(Debug, Clone)]
pub struct MeasureJob {
    /// The network, with a loss.
    pub network: Arc<Network>,
    /// Training or scoring.
    pub mode: Mode,
    /// Samples of a minibatch over all ranks.
    pub minibatch: usize,
    /// Where the ranks are.
    pub ranks: Ranks,
    /// Compute threads a rank; `None` chooses by cores.
    pub workers: Option<usize>,
    /// Instruction set.
    pub isa: Isa,
    /// How the ranks share the work.
    pub strategy: Strategy,
    /// Whether the bits are to be the same on 1, 2, 4 and 8 ranks.
    pub reproducible: Reproducible,
    /// Whether small gradients and parameters of several layers travel in one exchange
    /// ([`PlanOptions::bundle`](lockstep_graph::PlanOptions)).
    pub bundle: bool,
    /// Whether large 3x3 convolutions are computed by Winograd's minimal filtering
    /// ([`PlanOptions::winograd`](lockstep_graph::PlanOptions)).
    pub winograd: Option<WinogradTile>,
    /// Which of several exchanges goes first.
    pub exchange_order: ServiceOrder,
    /// The link between ranks, by which algorithms and the strategy `auto` are chosen.
    pub link: LinkModel,
    /// How long.
    pub pace: Pace,
}

/// How long to measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Steps before the first timed one: they start threads and fault memory in.
    pub warm_up: u64,
    /// Timed stretches of steps, one after another.
    pub runs: usize,
    /// Length of a stretch.
    pub run: Stretch,
}

/// The length of a stretch of steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stretch {
    /// So many steps.
    Steps(u64),
    /// Steps until so much time has passed, at least three.
    Time(Duration),
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// Compute threads a rank.
    pub workers: usize,
    /// Ranks.
    pub ranks: usize,
    /// What carries exchanges: `none` for one rank, or the transport's name.
    pub transport: String,
    /// Seconds of every step of every run, from one report to the next.
    pub step_seconds: Vec<Vec<f64>>,
    /// The most memory this process had resident up to the last timed step, in bytes.
    pub peak_resident: u64,
    /// Where the workers of the first rank spent a further stretch of steps, after the timed ones.
    pub profile: TallyReport,
    /// Steps of that stretch.
    pub profiled_steps: u64,
    /// Steps of the whole job, those that warmed up included.
    pub steps: u64,
    /// What each rank sent in all of them, by rank.
    pub traffic: Vec<Traffic>,
    /// The exchanges of a step on the first rank; none on one rank.
    pub exchanges: Vec<ExchangeTimes>,
    /// What the user should know about the first rank's threads.
    pub warnings: Vec<String>,
}

/// What a rank's exchanges cost in a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Payload bytes that it sent to others.
    pub bytes_sent: u64,
    /// Messages that it sent to others.
    pub messages_sent: u64,
    /// Time that its communication thread was on a core.
    pub comm_cpu: Duration,
}

/// The peer's programs train with the same numbers; speed does not depend on them.
const HYPER: SgdHyper = SgdHyper { lr: 1e-3, momentum: 0.9, weight_decay: 0.0, nesterov: false };

/// Seed of parameters, samples and dropout.
const SEED: u64 = 1;

impl MeasureJob {
    /// Ranks of the job.
    #[must_use]
    pub fn n_ranks(&self) -> usize {
        self.ranks.count()
    }

    /// Compute threads of each rank of this process: those that were asked for, or as many as suit its cores.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.threads(0).workers
    }

    /// The threads of this process's `index`-th rank.
    fn threads(&self, index: usize) -> Threads {
        let options = RunOptions { workers: self.workers, ..RunOptions::default() };
        match self.ranks {
            Ranks::InProcess(ranks) => Threads::in_process(&options, index, ranks),
            Ranks::Mpi => Threads::of_this_process(&options),
        }
    }
}

/// Measures. Of an MPI job only rank 0 has a result; `observer` is told when this process's rank fails.
///
/// # Errors
/// The plan cannot be made, ranks were not asked for the same, or a task or rank failed.
///
/// # Panics
/// There is no rank.
pub fn measure(
    job: &MeasureJob,
    observer: &mut dyn Observer,
) -> Result<Option<Measurement>, RunError> {
    assert!(job.n_ranks() > 0, "a job has at least one rank");
    match job.ranks {
        Ranks::InProcess(1) => {
            let rank = MeasuredRank { job, threads: job.threads(0), comm: None };
            guarded(|| rank.run())
        }
        Ranks::InProcess(ranks) => local_ranks(job, ranks),
        #[cfg(feature = "mpi")]
        Ranks::Mpi => communicating_rank(job, 0, lockstep_comm::MpiEndpoint, Some(observer)),
        #[cfg(not(feature = "mpi"))]
        Ranks::Mpi => {
            let _ = observer;
            Err(crate::launch::mpi_not_built().into())
        }
    }
}

fn local_ranks(job: &MeasureJob, ranks: usize) -> Result<Option<Measurement>, RunError> {
    let outcomes: Vec<Result<Option<Measurement>, RunError>> = std::thread::scope(|scope| {
        let ranks: Vec<_> = LocalJob::endpoints(ranks)
            .into_iter()
            .enumerate()
            .map(|(rank, endpoint)| {
                std::thread::Builder::new()
                    .name(format!("rank {rank}"))
                    .spawn_scoped(scope, move || {
                        guarded(|| communicating_rank(job, rank, endpoint, None))
                    })
                    .expect("the system can start one more thread")
            })
            .collect();
        let join = |rank: std::thread::ScopedJoinHandle<'_, _>| {
            rank.join().expect("a rank's panics are caught inside")
        };
        ranks.into_iter().map(join).collect()
    });
    // The first rank's outcome comes first, and it alone has a result.
    first_cause(outcomes)
}

/// This process's `index`-th rank, which has others to talk to.
fn communicating_rank(
    job: &MeasureJob,
    index: usize,
    endpoint: impl Into<Endpoint>,
    observer: Option<&mut dyn Observer>,
) -> Result<Option<Measurement>, RunError> {
    let threads = job.threads(index);
    let this = threads.rank;
    let router = Arc::new(Router::default());
    let recording = Arc::new(OnceLock::new());
    let order = job.exchange_order;
    let comm = start_communicator(&threads, endpoint, &router, &recording, order)?;
    let comm = Arc::new(comm);
    let rank = MeasuredRank { job, threads, comm: Some((Arc::clone(&comm), router)) };
    match guarded(|| rank.run()) {
        Ok(outcome) => {
            let comm = Arc::into_inner(comm).expect("the rank has given its handles back");
            comm.shutdown()?;
            Ok(outcome)
        }
        Err(error) => {
            // Said before the job is ended: with MPI this process does not come back from that.
            if let Some(observer) = observer {
                observer.failed(this, &error);
                std::thread::sleep(LAST_WORDS);
            }
            comm.abort(i32::from(error.exit_code()), &error.to_string());
            Err(error)
        }
    }
}

/// One rank, ready to be measured.
struct MeasuredRank<'a> {
    job: &'a MeasureJob,
    threads: Threads,
    comm: Option<(Arc<Communicator>, Arc<Router>)>,
}

impl MeasuredRank<'_> {
    /// From the parameters to the last step; rank 0 measures and ends the run.
    fn run(self) -> Result<Option<Measurement>, RunError> {
        let Self { job, threads, .. } = &self;
        let comm = self.comm.as_ref().map(|(comm, _)| &**comm);
        let plan = plan(job, threads, comm)?;
        if let Some(comm) = comm {
            agree(comm, &facts(job, plan.meshes()))?;
        }
        let program = bind(job, threads, plan)?;
        let alone = isolate(comm, &program)?;
        let iteration = fixed_iteration(job, threads.rank)?;
        let mut watch = (threads.rank == 0).then(|| Watch::new(job.pace));
        let stop = Arc::new(AtomicBool::new(false));
        let recorder = watch.as_ref().map_or_else(Recorder::off, |watch| watch.tally.recorder());
        let config = WorkerConfig {
            workers: threads.workers,
            cores: threads.worker_cores(),
            spins: threads.spins(),
            name: threads.prefix("worker"),
            recorder,
            on_step: None,
        };
        let mut executor = Executor::start(&config, self.comm.clone(), Arc::clone(&stop))?;
        let mut steps = 0;
        let on_report = |now| {
            steps += 1;
            if let Some(watch) = &mut watch {
                watch.step_done(now);
                stop.store(watch.is_done(), Ordering::Relaxed);
            }
        };
        let mut feed = SameFeed { iteration, step: 0, spare: Vec::new(), on_report };
        executor.run(&program, &mut feed)?;
        let traffic = self.traffic()?;
        Ok(watch.map(|watch| {
            let seen = watch.into_seen();
            Measurement {
                workers: threads.workers,
                ranks: threads.ranks,
                transport: self
                    .comm
                    .as_ref()
                    .map_or_else(|| "none".to_owned(), |(comm, _)| comm.library().to_owned()),
                step_seconds: seen.step_seconds,
                peak_resident: seen.peak_resident,
                profile: seen.profile,
                profiled_steps: seen.profiled_steps,
                steps,
                traffic,
                exchanges: exchange_times(&program, &alone),
                warnings: threads.warnings(),
            }
        }))
    }

    /// What all ranks have sent so far, by rank.
    fn traffic(&self) -> Result<Vec<Traffic>, RunError> {
        let Some((comm, _)) = &self.comm else { return Ok(vec![Traffic::default()]) };
        let counters = comm.counters();
        let comm_cpu = cpu_time(&self.threads.prefix("comm")).unwrap_or_default();
        let comm_cpu = u64::try_from(comm_cpu.as_nanos()).unwrap_or(u64::MAX);
        let own = [counters.bytes_sent, counters.messages_sent, comm_cpu];
        let all = comm.all_gather(own.iter().flat_map(|number| number.to_le_bytes()).collect())?;
        let read = |bytes: Vec<u8>| {
            let (numbers, _) = bytes.as_chunks::<8>();
            let number = |index: usize| numbers.get(index).map_or(0, |&n| u64::from_le_bytes(n));
            Traffic {
                bytes_sent: number(0),
                messages_sent: number(1),
                comm_cpu: Duration::from_nanos(number(2)),
            }
        };
        Ok(all.into_iter().map(read).collect())
    }
}

/// What must be the same on every rank.
fn facts(job: &MeasureJob, meshes: &Meshes) -> Vec<(String, String)> {
    let facts = [
        ("program version", env!("CARGO_PKG_VERSION").to_owned()),
        ("network", job.network.name().to_owned()),
        ("network definition", job.network.to_json()),
        ("mode", format!("{:?}", job.mode)),
        ("minibatch", job.minibatch.to_string()),
        ("strategy", job.strategy.to_string()),
        ("groups of the layers", groups(&job.network, meshes)),
        ("link", format!("{:?}", job.link)),
        ("reproducible", format!("{:?}", job.reproducible)),
        ("winograd", format!("{:?}", job.winograd)),
        ("fusion of exchanges", job.bundle.to_string()),
        // The packed order of parameters depends on it, and ranks exchange packed parameters.
        ("channel block", job.isa.lanes().to_string()),
    ];
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The plan, the same on all ranks, which must all call it.
fn plan(
    job: &MeasureJob,
    threads: &Threads,
    comm: Option<&Communicator>,
) -> Result<Plan, RunError> {
    let (network, ranks) = (&job.network, job.n_ranks());
    let options = PlanOptions {
        minibatch: job.minibatch,
        ranks,
        mode: job.mode,
        strategy: job.strategy.clone(),
        platform: platform(comm, threads.workers, job.isa, &job.link)?,
        fuse: true,
        bundle: job.bundle,
        // Settled below, with the strategy.
        reproducible: false,
        clip: false,
        winograd: job.winograd,
    };
    let options = job.reproducible.resolve(network, options, job.isa)?;
    Ok(Plan::compile(Arc::clone(network), options)?)
}

/// The program of one rank, with initial parameters.
fn bind(job: &MeasureJob, threads: &Threads, plan: Plan) -> Result<Arc<Program>, RunError> {
    let network = &job.network;
    let store = ParameterStore::new(&plan, threads.rank, job.isa)?;
    let store = Arc::new(store.for_workers(threads.workers));
    for layer in network.layers() {
        for param in &layer.params {
            let values = initial_values(SEED, layer, param);
            store.import(network, layer.id, &param.name, &values)?;
        }
    }
    let options = BindOptions { decay_all: true, ..BindOptions::default() };
    let mut programs = Program::bind(vec![plan], &store, &options)?;
    Ok(Arc::new(programs.pop().expect("one program a plan")))
}

/// A rank's share of the one minibatch.
fn fixed_iteration(job: &MeasureJob, rank: usize) -> Result<Iteration, RunError> {
    let network = &job.network;
    let (c, h, w) = network.layer(network.input()).shape.maps();
    let shape = SampleShape { c, h, w };
    let data = Synthetic::new(shape, network.classes(), job.minibatch, SEED);
    let mut samples = LocalSamples::default();
    for index in share(job.minibatch, job.n_ranks(), rank) {
        let mut values = vec![0.0; shape.values()];
        samples.labels.push(data.read(index, &mut values)?);
        samples.values.extend(values);
    }
    let minibatch = job.minibatch;
    let ids = (0..minibatch as u64).collect();
    Ok(Iteration { step: 0, epoch: 1, minibatch, hyper: HYPER, seed: SEED, ids, samples })
}

/// Gives the same minibatch to every step, until a rank asks to stop.
struct SameFeed<F> {
    iteration: Iteration,
    step: u64,
    spare: Vec<Iteration>,
    on_report: F,
}

impl<F: FnMut(Instant)> Feed for SameFeed<F> {
    type Error = RunError;

    fn next(&mut self) -> Result<Option<Iteration>, RunError> {
        self.step += 1;
        let iteration = self.spare.pop().unwrap_or_else(|| self.iteration.clone());
        Ok(Some(Iteration { step: self.step, ..iteration }))
    }

    fn report(&mut self, _: &IterationReport) -> Result<(), RunError> {
        (self.on_report)(Instant::now());
        Ok(())
    }

    fn recycle(&mut self, iteration: Iteration) {
        self.spare.push(iteration);
    }
}

#[cfg(test)]
mod tests {
    use lockstep_graph::zoo;

    use super::super::observer::Silent;
    use super::*;

    fn job(ranks: usize, mode: Mode) -> MeasureJob {
        MeasureJob {
            network: Arc::new(zoo::golden::small_resnet().unwrap()),
            mode,
            minibatch: 6,
            ranks: Ranks::InProcess(ranks),
            workers: Some(2),
            isa: Isa::detect(),
            strategy: Strategy::Data,
            reproducible: Reproducible::default(),
            bundle: true,
            winograd: None,
            exchange_order: ServiceOrder::default(),
            link: LinkModel::default(),
            pace: Pace { warm_up: 2, runs: 2, run: Stretch::Steps(4) },
        }
    }

    #[test]
    fn steps_are_timed_and_their_time_is_told_by_task() {
        for (ranks, mode) in [
            (1, Mode::Train { momentum: true }),
            (2, Mode::Train { momentum: true }),
            (1, Mode::Score),
        ] {
            let measured = measure(&job(ranks, mode), &mut Silent).unwrap().unwrap();
            assert_eq!(measured.workers, 2);
            let steps: Vec<usize> = measured.step_seconds.iter().map(Vec::len).collect();
            assert_eq!(steps, [4, 4]);
            assert!(measured.step_seconds.iter().flatten().all(|&seconds| seconds > 0.0));
            assert_eq!(measured.profiled_steps, 4);
            let profile = &measured.profile;
            let has = |pass: &str| profile.tasks.iter().any(|task| task.pass == pass);
            assert!(has("forward"), "{profile:?}");
            assert_eq!(has("backward_weights"), mode != Mode::Score, "{profile:?}");
            assert!(profile.busy <= 2 * profile.elapsed, "{profile:?}");
            assert_eq!(profile.exchanging > Duration::ZERO, ranks > 1, "{profile:?}");
            assert_eq!(measured.exchanges.is_empty(), ranks == 1);
            for exchange in &measured.exchanges {
                // What ran alone before the first step is not among the steps.
                assert_eq!(exchange.times, measured.steps, "{exchange:?}");
                assert!(exchange.alone > Duration::ZERO && exchange.mean() > Duration::ZERO);
            }
            assert_eq!((measured.ranks, measured.traffic.len()), (ranks, ranks));
        }
    }

    #[test]
    fn the_bytes_of_a_step_are_those_of_its_gradients_and_parameters() {
        let job = job(3, Mode::Train { momentum: true });
        let measured = measure(&job, &mut Silent).unwrap().unwrap();
        // Warm-up, two runs of four and the profile; the request to stop arrives one step later.
        assert!(measured.steps >= 14, "{}", measured.steps);
        let sent: u64 = measured.traffic.iter().map(|traffic| traffic.bytes_sent).sum();
        // Every rank's partial sum of a strip goes to its owner, and the owner's strip to every other rank; losses,
        // statistics of normalizations and padding come on top.
        let least = 2 * 2 * 4 * job.network.parameter_count() as u64;
        let step = sent / measured.steps;
        assert_eq!(sent % measured.steps, 0, "every step sends the same");
        assert!(step >= least && step < 2 * least, "{step} bytes, at least {least}");
        assert!(measured.traffic.iter().all(|traffic| traffic.messages_sent > 0));
    }
}
