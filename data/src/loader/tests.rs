//! Who gets which samples, in which order, from how many threads; and every way in which a loader ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use super::*;
use crate::SampleShape;

const VALUES: usize = 6;

/// Samples whose values and label tell their index; reading takes as long as `delay` says, and sample `fault` panics.
struct Numbered {
    len: usize,
    delay: fn(usize) -> Duration,
    fault: Option<usize>,
    reads: AtomicUsize,
}

impl Numbered {
    fn new(len: usize) -> Self {
        Self { len, delay: |_| Duration::ZERO, fault: None, reads: AtomicUsize::new(0) }
    }
}

impl Dataset for Numbered {
    fn len(&self) -> usize {
        self.len
    }

    fn shape(&self) -> SampleShape {
        SampleShape { c: VALUES, h: 1, w: 1 }
    }

    fn classes(&self) -> usize {
        self.len
    }

    fn name(&self) -> &str {
        "numbered"
    }

    fn read(&self, index: usize, dst: &mut [f32]) -> Result<u32, DataError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        thread::sleep((self.delay)(index));
        assert!(self.fault != Some(index), "sample {index} is cursed");
        dst.fill(index as f32);
        Ok(index as u32)
    }

    fn resident_bytes(&self) -> usize {
        0
    }

    fn fingerprint(&self) -> u64 {
        0
    }
}

fn start(dataset: Numbered, minibatch: usize, config: LoaderConfig) -> Loader {
    let schedule = Schedule { n_samples: dataset.len, minibatch };
    Loader::start(Arc::new(dataset), schedule, Order::shuffled(5), config).unwrap()
}

/// All batches of a loader that ends.
#[track_caller]
fn collect(mut loader: Loader) -> Vec<Batch> {
    let mut batches = Vec::new();
    while let Some(batch) = loader.next() {
        let batch = batch.unwrap();
        check_consistent(&batch);
        batches.push(batch.clone());
        loader.recycle(batch);
    }
    batches
}

/// Samples and labels are those of a run of the ids.
#[track_caller]
fn check_consistent(batch: &Batch) {
    let own = own(batch);
    let values: Vec<f32> = own.iter().flat_map(|&id| [id as f32; VALUES]).collect();
    assert_eq!(batch.samples, values);
    assert_eq!(batch.ids.len(), batch.minibatch);
    assert!(own.is_empty() || batch.ids.windows(own.len()).any(|ids| ids == own));
}

/// The rank's own samples, which have their ids as labels.
fn own(batch: &Batch) -> Vec<u64> {
    batch.labels.iter().copied().map(u64::from).collect()
}

fn ids(batches: &[Batch]) -> Vec<Vec<u64>> {
    batches.iter().map(|batch| batch.ids.clone()).collect()
}

/// Three epochs of every rank: each sample once an epoch, and each step's samples the same, in the same order, as one rank
/// gets them.
#[track_caller]
fn check_ranks(len: usize, minibatch: usize, n_ranks: usize) {
    let steps = Schedule { n_samples: len, minibatch }.steps_per_epoch();
    let rank = |rank, n_ranks| {
        let last_step = Some(3 * steps);
        let config = LoaderConfig { rank, n_ranks, last_step, threads: 2, ..Default::default() };
        collect(start(Numbered::new(len), minibatch, config))
    };
    let alone = rank(0, 1);
    let together: Vec<Vec<Batch>> = (0..n_ranks).map(|r| rank(r, n_ranks)).collect();
    let mut epochs = BTreeMap::<u64, Vec<u64>>::new();
    for step in 0..3 * steps {
        let parts: Vec<&Batch> = together.iter().map(|batches| &batches[step as usize]).collect();
        let whole = &alone[step as usize];
        let joined: Vec<u64> = parts.iter().flat_map(|part| own(part)).collect();
        assert_eq!(joined, whole.ids, "step {}", step + 1);
        for part in &parts {
            let expected = (step + 1, step / steps + 1, joined.len());
            assert_eq!((part.step, part.epoch, part.minibatch), expected);
        }
        let most = parts.iter().map(|part| part.labels.len()).max().unwrap();
        let least = parts.iter().map(|part| part.labels.len()).min().unwrap();
        assert!(most - least <= 1, "step {}: {least} to {most}", step + 1);
        epochs.entry(whole.epoch).or_default().extend(joined);
    }
    let orders: BTreeSet<_> = epochs.values().cloned().collect();
    assert_eq!(orders.len(), 3, "a new order every epoch");
    for mut epoch in epochs.into_values() {
        epoch.sort_unstable();
        assert!(epoch.into_iter().eq(0..len as u64), "each sample once");
    }
}

#[test]
fn each_sample_once_an_epoch_on_any_number_of_ranks() {
    for n_ranks in [1, 2, 3, 4, 5, 7, 8] {
        check_ranks(101, 8, n_ranks);
    }
}

#[test]
fn fewer_samples_than_ranks() {
    for n_ranks in [3, 8] {
        check_ranks(5, 8, n_ranks);
    }
    // The last of each epoch's steps has 2 samples.
    check_ranks(98, 8, 5);
}

#[test]
fn loader_threads_change_nothing() {
    let run = |threads| {
        // Early samples take longest, so that with several threads late steps are ready first.
        let delay = |index| Duration::from_micros(if index % 7 == 0 { 900 } else { 10 });
        let dataset = Numbered { delay, ..Numbered::new(101) };
        let config =
            LoaderConfig { threads, depth: 5, last_step: Some(39), ..LoaderConfig::default() };
        collect(start(dataset, 8, config))
    };
    let one = run(1);
    assert_eq!(one.len(), 39);
    assert!(one == run(3));
}

#[test]
fn a_slow_step_does_not_let_later_ones_pass() {
    let on_step: StepHook = Arc::new(|step| {
        if step % 4 == 1 {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let config = LoaderConfig {
        threads: 3,
        depth: 4,
        last_step: Some(12),
        on_step: Some(on_step),
        ..LoaderConfig::default()
    };
    let steps: Vec<u64> =
        collect(start(Numbered::new(101), 8, config)).iter().map(|batch| batch.step).collect();
    assert_eq!(steps, (1..=12).collect::<Vec<_>>());
}

#[test]
fn a_run_can_begin_at_any_step() {
    let run = |first_step| {
        let config = LoaderConfig { first_step, last_step: Some(30), ..LoaderConfig::default() };
        ids(&collect(start(Numbered::new(101), 8, config)))
    };
    let whole = run(1);
    for first in [2, 13, 14, 30] {
        assert_eq!(run(first), whole[first as usize - 1..], "from step {first}");
    }
    assert_eq!(run(31), Vec::<Vec<u64>>::new());
}

#[test]
fn no_more_than_depth_batches_are_read_ahead() {
    let dataset = Arc::new(Numbered::new(101));
    let schedule = Schedule { n_samples: 101, minibatch: 8 };
    let config = LoaderConfig { threads: 2, depth: 3, ..LoaderConfig::default() };
    let as_dyn: Arc<dyn Dataset> = Arc::<Numbered>::clone(&dataset);
    let mut loader = Loader::start(as_dyn, schedule, Order::shuffled(1), config).unwrap();
    let reads = || dataset.reads.load(Ordering::Relaxed);
    for taken in 0..5 {
        let ahead = (3 + taken) * 8;
        let began = Instant::now();
        while reads() < ahead && began.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(1));
        }
        // Time enough to read more, were more ordered.
        thread::sleep(Duration::from_millis(20));
        assert_eq!(reads(), ahead);
        let batch = loader.next().unwrap().unwrap();
        loader.recycle(batch);
    }
}

#[test]
fn recycled_buffers_are_used_again() {
    let config = LoaderConfig { depth: 3, threads: 2, ..LoaderConfig::default() };
    let mut loader = start(Numbered::new(96), 8, config);
    let mut buffers = BTreeSet::new();
    for _ in 0..200 {
        let batch = loader.next().unwrap().unwrap();
        buffers.insert(batch.samples.as_ptr() as usize);
        loader.recycle(batch);
    }
    // Those ahead and the one in use.
    assert!(buffers.len() <= 4, "{} buffers", buffers.len());
}

#[test]
fn batches_need_not_be_recycled() {
    let config = LoaderConfig { last_step: Some(50), ..LoaderConfig::default() };
    let kept: Vec<Batch> = start(Numbered::new(101), 8, config).map(Result::unwrap).collect();
    assert_eq!(kept.len(), 50);
    kept.iter().for_each(check_consistent);
}

#[test]
fn without_a_last_step_epochs_follow_each_other() {
    let epochs: Vec<u64> = start(Numbered::new(5), 2, LoaderConfig::default())
        .take(10)
        .map(|batch| batch.unwrap().epoch)
        .collect();
    assert_eq!(epochs, [1, 1, 1, 2, 2, 2, 3, 3, 3, 4]);
}

#[test]
fn dropping_it_stops_and_joins_its_threads() {
    let alive = Arc::new(Mutex::new(BTreeSet::new()));
    let ended = Arc::new(AtomicUsize::new(0));
    let (started, counter) = (Arc::clone(&alive), Arc::clone(&ended));
    let on_thread_start: ThreadHook = Arc::new(move |index| {
        thread_local! {
            static LIFE: std::cell::RefCell<Option<Life>> = const { std::cell::RefCell::new(None) };
        }
        LIFE.set(Some(Life(Arc::clone(&counter))));
        let name = thread::current().name().unwrap().to_owned();
        started.lock().unwrap().insert((index, name));
    });
    // A minute for a batch, 15 ms for a sample.
    let dataset = Numbered { delay: |_| Duration::from_millis(15), ..Numbered::new(8000) };
    let config = LoaderConfig {
        threads: 2,
        thread_name: "r1 loader".to_owned(),
        on_thread_start,
        ..LoaderConfig::default()
    };
    let loader = start(dataset, 4000, config);
    thread::sleep(Duration::from_millis(50));
    let began = Instant::now();
    drop(loader);
    assert!(began.elapsed() < Duration::from_secs(5), "took {:?}", began.elapsed());
    assert_eq!(ended.load(Ordering::SeqCst), 2);
    let names = [(0, "r1 loader 0".to_owned()), (1, "r1 loader 1".to_owned())];
    assert_eq!(*alive.lock().unwrap(), BTreeSet::from(names));
}

/// Counts a thread's end.
struct Life(Arc<AtomicUsize>);

impl Drop for Life {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Checks that a loader gives `whole` good batches, then the panic, then nothing.
#[track_caller]
fn check_panic(mut loader: Loader, whole: u64, expected: &str) {
    for step in 1..=whole {
        assert_eq!(loader.next().unwrap().unwrap().step, step);
    }
    let error = loader.next().unwrap().unwrap_err();
    assert_eq!(error.to_string(), expected);
    assert!(loader.next().is_none());
    assert!(loader.next().is_none());
}

#[test]
fn a_panic_of_a_reader_is_its_step_s_error() {
    for threads in [1, 3] {
        let config = LoaderConfig { threads, ..LoaderConfig::default() };
        let dataset = Numbered { fault: Some(21), ..Numbered::new(40) };
        let schedule = Schedule { n_samples: 40, minibatch: 8 };
        let loader = Loader::start(Arc::new(dataset), schedule, Order::sequential(), config);
        let expected = "a loader thread panicked at step 3: sample 21 is cursed";
        check_panic(loader.unwrap(), 2, expected);
    }
}

#[test]
fn a_panic_of_the_hook_is_its_step_s_error() {
    let on_step: StepHook = Arc::new(|step| assert!(step != 5, "asked to fail"));
    let config = LoaderConfig { on_step: Some(on_step), ..LoaderConfig::default() };
    let expected = "a loader thread panicked at step 5: asked to fail";
    check_panic(start(Numbered::new(101), 8, config), 4, expected);
}

#[track_caller]
fn check_refused(minibatch: usize, n_samples: usize, config: LoaderConfig, expected: &str) {
    let schedule = Schedule { n_samples, minibatch };
    let refused = Loader::start(Arc::new(Numbered::new(10)), schedule, Order::sequential(), config);
    assert_eq!(refused.unwrap_err().to_string(), expected);
}

#[test]
fn what_cannot_work_is_refused_at_the_start() {
    let fine = LoaderConfig::default;
    check_refused(
        8,
        10,
        LoaderConfig { threads: 0, ..fine() },
        "loader threads is 0, but must be at least 1",
    );
    check_refused(
        8,
        10,
        LoaderConfig { depth: 0, ..fine() },
        "loader depth is 0, but must be at least 1",
    );
    check_refused(
        8,
        10,
        LoaderConfig { first_step: 0, ..fine() },
        "loader first_step is 0, but must be at least 1",
    );
    check_refused(
        8,
        10,
        LoaderConfig { rank: 2, n_ranks: 2, ..fine() },
        "loader rank is 2, but must be below n_ranks",
    );
    check_refused(0, 10, fine(), "loader minibatch is 0, but must be at least 1");
    check_refused(8, 11, fine(), "the schedule is for 11 samples, but numbered has 10");
}

#[test]
fn buffer_bytes_counts_those_ahead_and_two_in_use() {
    let config = LoaderConfig { depth: 3, n_ranks: 3, rank: 2, ..LoaderConfig::default() };
    // Five batches of two of 8 samples: 6 values, an id and a label each.
    assert_eq!(config.buffer_bytes(&Numbered::new(10), 8), 5 * 2 * (24 + 8 + 4));
}

#[test]
#[cfg(target_os = "linux")]
fn a_waiting_loader_uses_no_processor() {
    use std::fs;
    // User and system time of one thread, in ticks of 10 ms: fields 14 and 15, counted after the name in brackets.
    let ticks = |thread: &str| -> u64 {
        let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let threads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&threads);
    let on_thread_start: ThreadHook = Arc::new(move |_| {
        let link = fs::read_link("/proc/thread-self").unwrap();
        seen.lock().unwrap().push(link.file_name().unwrap().to_str().unwrap().to_owned());
    });
    let config = LoaderConfig { threads: 2, on_thread_start, ..LoaderConfig::default() };
    let mut loader = start(Numbered::new(101), 8, config);
    loader.next().unwrap().unwrap();
    thread::sleep(Duration::from_millis(100));
    let threads = threads.lock().unwrap().clone();
    assert_eq!(threads.len(), 2);
    let before: u64 = threads.iter().map(|thread| ticks(thread)).sum();
    thread::sleep(Duration::from_millis(500));
    let after: u64 = threads.iter().map(|thread| ticks(thread)).sum();
    assert!(after - before <= 2, "{} ticks of 50 in half a second", after - before);
}
