//! The task graph as DOT and JSON, for people and other programs.

use petgraph::dot::{Config, Dot};
use petgraph::graph::{DiGraph, EdgeReference, NodeIndex};
use serde::Serialize;

use super::access::Tensor;
use super::graph::{Dependency, Task, TaskGraph, TaskId, TaskKind};

#[derive(Serialize)]
struct Edge {
    from: TaskId,
    to: TaskId,
    #[serde(flatten)]
    dependency: Dependency,
}

#[derive(Serialize)]
struct Document<'a> {
    format: &'static str,
    version: u32,
    tensors: &'a [Tensor],
    tasks: Vec<&'a Task>,
    dependencies: Vec<Edge>,
}

impl TaskGraph {
    /// The graph in Graphviz's language: communication drawn as ellipses, carried edges dashed.
    #[must_use]
    pub fn to_dot(&self) -> String {
        let edge_style = |_: &DiGraph<Task, Dependency>, edge: EdgeReference<'_, Dependency>| {
            let style = if edge.weight().carried { "dashed" } else { "solid" };
            let tensor = &self.tensor(edge.weight().tensor).name;
            format!("style = {style} tooltip = {tensor:?}")
        };
        let node_style = |_: &DiGraph<Task, Dependency>, (_, task): (NodeIndex, &Task)| {
            let shape = if task.kind.is_communication() { "ellipse" } else { "box" };
            format!("shape = {shape} label = \"{}\\n{}\"", task.name, cost_label(task))
        };
        let config = [Config::NodeNoLabel, Config::EdgeNoLabel];
        let dot = Dot::with_attr_getters(&self.graph, &config, &edge_style, &node_style);
        format!("{dot:?}")
    }

    /// The graph as JSON: tensors, tasks with prices and critical paths, dependencies.
    ///
    /// # Panics
    /// Never: everything in it can be written as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        let document = Document {
            format: "lockstep-task-graph",
            version: 1,
            tensors: self.tensors(),
            tasks: self.tasks().collect(),
            dependencies: self
                .dependencies()
                .map(|(from, to, dependency)| Edge { from, to, dependency })
                .collect(),
        };
        serde_json::to_string_pretty(&document).expect("maps have string keys only")
    }

    /// One row a task: name, kind, prices, critical path.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut table = format!(
            "{:<34} {:>11} {:>11} {:>11} {:>9}\n",
            "task", "MFLOP", "MB moved", "MB sent", "path ms"
        );
        for task in self.tasks() {
            table += &format!(
                "{:<34} {:>11.3} {:>11.3} {:>11.3} {:>9.3}\n",
                task.name,
                task.price.flops / 1e6,
                task.price.bytes / 1e6,
                task.price.bytes_sent / 1e6,
                task.critical_path * 1e3
            );
        }
        table
    }
}

fn cost_label(task: &Task) -> String {
    match task.kind {
        TaskKind::Report => String::new(),
        kind if kind.is_communication() => format!("{:.3} MB", task.price.bytes_sent / 1e6),
        _ => format!("{:.2} MFLOP, {:.3} MB", task.price.flops / 1e6, task.price.bytes / 1e6),
    }
}
