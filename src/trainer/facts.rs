//! What all ranks must agree on before the first step.

use std::hash::{DefaultHasher, Hash, Hasher};

use lockstep_graph::{LayerId, LayerKind, Meshes, Network, ParamRole, Statistics};

use super::options::Job;

/// Names and values that must be the same on every rank. Long ones are given by their hash.
pub(super) fn facts(job: &Job, meshes: &Meshes) -> Vec<(String, String)> {
    let options = &job.options;
    let (train, sgd) = (&job.train, &options.sgd);
    let initial = job.initial.as_ref().map(|tensors| {
        let mut hasher = DefaultHasher::new();
        for tensor in tensors.values() {
            tensor.name.hash(&mut hasher);
            tensor.values.iter().for_each(|v| v.to_bits().hash(&mut hasher));
        }
        hasher.finish()
    });
    let facts = [
        ("program version", env!("CARGO_PKG_VERSION").to_owned()),
        ("ranks", meshes.ranks().to_string()),
        ("network", job.network.name().to_owned()),
        ("network definition", hash(&job.network.to_json())),
        ("parameters", job.network.parameter_count().to_string()),
        ("minibatch", options.minibatch.to_string()),
        ("length", format!("{:?}", options.length)),
        ("seed", options.seed.to_string()),
        ("strategy", options.strategy.to_string()),
        ("groups of the layers", groups(&job.network, meshes)),
        // Saving is a matter of all ranks where layers are split.
        ("checkpoints", options.checkpoint.is_some().to_string()),
        ("learning rate", sgd.lr.to_string()),
        ("schedule", sgd.schedule.to_string()),
        ("momentum", sgd.momentum.to_string()),
        ("weight decay", format!("{} on {:?}", sgd.weight_decay, sgd.decay)),
        ("nesterov", sgd.nesterov.to_string()),
        ("clipping", format!("{:?}", sgd.clip_norm)),
        ("reproducible", format!("{:?}", options.reproducible)),
        ("winograd", format!("{:?}", options.winograd)),
        ("link", format!("{:?}", options.link)),
        ("fusion of exchanges", options.bundle.to_string()),
        ("replica checks", format!("{:?}", options.check_replicas)),
        // The packed order of parameters depends on it, and ranks exchange packed parameters.
        ("channel block", options.isa.lanes().to_string()),
        ("initial weights", format!("{initial:?}")),
        ("training data", format!("{} ({:016x})", train.name(), train.fingerprint())),
        ("training samples", train.len().to_string()),
        ("evaluation", (options.evaluate && job.test.is_some()).to_string()),
        ("trace", format!("{:?}", options.trace.as_ref().map(|t| &t.steps))),
        (
            "test data",
            job.test
                .as_ref()
                .map_or_else(String::new, |t| format!("{} ({:016x})", t.name(), t.fingerprint())),
        ),
    ];
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The number of groups of every layer, where not all are data-parallel.
pub(super) fn groups(network: &Network, meshes: &Meshes) -> String {
    let groups: Vec<String> =
        network.layers().iter().map(|l| meshes.mesh(l.id).groups().to_string()).collect();
    groups.join(" ")
}

fn hash(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// The running statistics that differ between ranks.
pub(super) fn per_rank_statistics(network: &Network) -> Vec<(LayerId, &str)> {
    let mut found = Vec::new();
    for layer in network.layers() {
        let LayerKind::BatchNorm(norm) = &layer.kind else { continue };
        if norm.statistics == Statistics::PerRank {
            let running = layer
                .params
                .iter()
                .filter(|p| matches!(p.role, ParamRole::RunningMean | ParamRole::RunningVar));
            found.extend(running.map(|p| (layer.id, p.name.as_ref())));
        }
    }
    found
}
