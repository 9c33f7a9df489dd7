//! Shared memory is safe in every order that the dependencies allow, within and across iterations.

use std::path::Path;
use std::sync::Arc;

use petgraph::algo::has_path_connecting;
use petgraph::graph::{DiGraph, NodeIndex};

use super::MemoryPlan;
use crate::compile::{Mode, PerLayer, Plan, PlanOptions, Strategy};
use crate::layer::LayerKind;
use crate::network::Network;
use crate::task::{Task, TaskGraph, TaskId, TaskKind, TensorId, TensorRole};
use crate::zoo;

const ITERATIONS: usize = 3;

fn plan(network: Network, ranks: usize, mode: Mode, fuse: bool) -> (Plan, MemoryPlan) {
    let options = PlanOptions { minibatch: 8 * ranks, ranks, mode, fuse, ..Default::default() };
    plan_by(network, options)
}

fn plan_by(network: Network, options: PlanOptions) -> (Plan, MemoryPlan) {
    let samples = options.minibatch / options.ranks;
    let mut plan = Plan::compile(Arc::new(network), options).unwrap();
    let network = Arc::clone(plan.network());
    let lens: Vec<usize> = plan
        .tasks()
        .tensors()
        .iter()
        .map(|t| match t.role {
            TensorRole::Activation | TensorRole::ActivationGradient => {
                samples * network.layer(t.layer).shape.elements()
            }
            _ => 100 + t.id.index() % 7,
        })
        .collect();
    let memory = MemoryPlan::new(plan.tasks_mut(), &lens, 16);
    (plan, memory)
}

/// Several iterations as one graph: within, carried, and every task after itself.
fn unrolled(graph: &TaskGraph) -> DiGraph<(), ()> {
    let n = graph.tasks().len();
    let mut unrolled = DiGraph::new();
    for _ in 0..ITERATIONS * n {
        unrolled.add_node(());
    }
    let node = |iteration: usize, task: TaskId| NodeIndex::new(iteration * n + task.index());
    for iteration in 0..ITERATIONS {
        for (from, to, dependency) in graph.dependencies() {
            let target = iteration + usize::from(dependency.carried);
            if target < ITERATIONS {
                unrolled.add_edge(node(iteration, from), node(target, to), ());
            }
        }
        if iteration + 1 < ITERATIONS {
            for task in graph.tasks() {
                unrolled.add_edge(node(iteration, task.id), node(iteration + 1, task.id), ());
            }
        }
    }
    unrolled
}

fn users(graph: &TaskGraph, tensor: TensorId) -> Vec<TaskId> {
    let touches = |t: &&Task| t.reads.contains(&tensor) || t.writes.contains(&tensor);
    graph.tasks().filter(touches).map(|t| t.id).collect()
}

fn check(network: Network, ranks: usize, mode: Mode, fuse: bool) {
    check_plan(&plan(network, ranks, mode, fuse));
}

fn check_plan((plan, memory): &(Plan, MemoryPlan)) {
    let graph = plan.tasks();
    let n = graph.tasks().len();
    let unrolled = unrolled(graph);
    let before = |a: usize, b: usize| {
        a == b || has_path_connecting(&unrolled, NodeIndex::new(a), NodeIndex::new(b), None)
    };
    let placed: Vec<TensorId> =
        graph.tensors().iter().map(|t| t.id).filter(|&t| memory.range(t).is_some()).collect();
    let mut shared = 0;
    for (i, &a) in placed.iter().enumerate() {
        for &b in &placed[i + 1..] {
            let (ra, rb) = (memory.range(a).unwrap(), memory.range(b).unwrap());
            assert!(ra.end <= memory.len() && rb.end <= memory.len());
            if ra.end <= rb.start || rb.end <= ra.start {
                continue;
            }
            shared += 1;
            for ua in users(graph, a) {
                for ub in users(graph, b) {
                    let (a0, b0) = (ua.index(), ub.index());
                    if touch_other_samples(graph, [a, b], [ua, ub]) {
                        continue;
                    }
                    let ordered = before(a0, b0) || before(b0, a0);
                    // What the one iteration is done with, the next one may overwrite: not earlier.
                    let in_turn = before(a0, n + b0) && before(b0, n + a0);
                    assert!(
                        ordered && in_turn,
                        "{} and {} share memory but {} and {} are not ordered",
                        graph.tensor(a).name,
                        graph.tensor(b).name,
                        graph.task(ua).name,
                        graph.task(ub).name
                    );
                }
            }
        }
    }
    assert!(shared > 0, "nothing is shared");
}

#[test]
fn shared_memory_is_never_used_by_two_unordered_tasks() {
    for mode in [Mode::Train { momentum: true }, Mode::Score] {
        for ranks in [1, 2] {
            for fuse in [false, true] {
                check(zoo::golden::lenet().unwrap(), ranks, mode, fuse);
                check(zoo::golden::small_resnet().unwrap(), ranks, mode, fuse);
            }
        }
    }
}

/// Whether two tasks touch different samples of tensors that lie at one place because one is computed in the place of the other.
fn touch_other_samples(graph: &TaskGraph, tensors: [TensorId; 2], tasks: [TaskId; 2]) -> bool {
    let in_place = |t: &Task| {
        t.in_place.is_some_and(|pair| {
            [pair.source, pair.result] == tensors || [pair.result, pair.source] == tensors
        })
    };
    let [a, b] = tasks.map(|id| graph.task(id).part);
    let apart =
        a.zip(b).is_some_and(|(a, b)| (a.of, a.groups) == (b.of, b.groups) && a.index != b.index);
    apart && graph.tasks().any(in_place)
}

#[test]
fn maxima_of_windows_that_tile_the_map_give_way_to_their_gradients() {
    let split = PerLayer::from_json(Path::new("strategy.json"), r#"{"fc1": "model"}"#).unwrap();
    let strategies = [(1, Strategy::Data), (2, Strategy::PerLayer(Arc::new(split)))];
    for (ranks, strategy) in strategies {
        let options =
            PlanOptions { minibatch: 64 * ranks, ranks, strategy, ..PlanOptions::default() };
        let planned = plan_by(zoo::by_name("lenet").unwrap(), options);
        let (plan, memory) = &planned;
        for pool in ["pool1", "pool2"] {
            let tasks = plan.tasks().tasks();
            let backward: Vec<_> = tasks
                .filter(|t| t.kind == TaskKind::BackwardData && t.name.starts_with(pool))
                .collect();
            assert_eq!(backward.len(), ranks, "parts");
            assert!(backward.iter().all(|task| memory.is_in_place(task)), "{pool}");
        }
        check_plan(&planned);
    }
}

#[test]
fn scoring_needs_two_activations_at_a_time_however_deep_the_network() {
    let (plan, memory) = plan(zoo::golden::small_vgg().unwrap(), 1, Mode::Score, true);
    let elements = |name: &str| 8 * plan.network().find(name).unwrap().shape.elements();
    // The widest moment: the input of the first convolution and its output, to which the ReLU has been applied.
    let widest = elements("data") + elements("0");
    assert!(memory.len() <= widest + 4096, "{} {widest}", memory.len());
}

#[test]
fn activation_functions_work_in_place() {
    let train = Mode::Train { momentum: true };
    let (plan, memory) = plan(zoo::golden::lenet().unwrap(), 2, train, false);
    let is_pool =
        |task: &&Task| matches!(plan.network().layer(task.layer).kind, LayerKind::MaxPool(_));
    // Here the activation before a maximum takes its slope from what the maximum's gradient would overwrite.
    for task in plan.tasks().tasks().filter(|t| t.in_place.is_some() && !is_pool(t)) {
        assert!(memory.is_in_place(task), "{}", task.name);
    }
}

#[test]
fn what_travels_between_ranks_shares_with_nothing() {
    let (plan, memory) =
        plan(zoo::golden::small_resnet().unwrap(), 2, Mode::Train { momentum: true }, true);
    let graph = plan.tasks();
    for task in graph.tasks().filter(|t| t.kind.is_communication()) {
        for &tensor in task.reads.iter().chain(&task.writes) {
            let Some(range) = memory.range(tensor) else { continue };
            for other in graph.tensors().iter().filter(|t| t.id != tensor) {
                let Some(other_range) = memory.range(other.id) else { continue };
                assert!(range.end <= other_range.start || other_range.end <= range.start);
            }
        }
    }
}

#[test]
fn apart_every_tensor_has_a_place_of_its_own() {
    let memory = MemoryPlan::apart(&[5, 0, 16, 1], 16);
    let ranges: Vec<_> = (0..4).filter_map(|t| memory.range(TensorId::new(t))).collect();
    assert_eq!(ranges, [0..5, 16..16, 16..32, 32..33]);
    assert_eq!(memory.len(), 48);
}
