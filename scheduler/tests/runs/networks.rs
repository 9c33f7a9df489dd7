//! Random networks: a few stages of maps with fan-out and joins, then features.

use lockstep_graph::{
    BatchNorm, Conv2d, Dropout, GraphError, LayerId, Linear, Lrn, Network, NetworkBuilder, Pool,
    SoftmaxCrossEntropy,
};
use proptest::prelude::*;

/// One random step; numbers choose among the tensors that fit.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    Conv {
        oc: usize,
        from: usize,
    },
    Relu,
    Sigmoid,
    Tanh,
    Bias,
    BatchNorm,
    Dropout,
    Lrn,
    Pool {
        average: bool,
    },
    Add {
        with: usize,
    },
    Concat {
        with: usize,
    },
    /// One more use of the parameters of an earlier layer.
    Tied {
        to: usize,
    },
}

/// How the maps become features.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipe {
    channels: usize,
    size: usize,
    global_pool: bool,
    hidden: usize,
    dropout: bool,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1_usize..19, 0_usize..8).prop_map(|(oc, from)| Step::Conv { oc, from }),
        3 => Just(Step::Relu),
        1 => Just(Step::Sigmoid),
        1 => Just(Step::Tanh),
        1 => Just(Step::Bias),
        2 => Just(Step::BatchNorm),
        1 => Just(Step::Dropout),
        1 => Just(Step::Lrn),
        1 => any::<bool>().prop_map(|average| Step::Pool { average }),
        3 => (0_usize..8).prop_map(|with| Step::Add { with }),
        3 => (0_usize..8).prop_map(|with| Step::Concat { with }),
        4 => (0_usize..8).prop_map(|to| Step::Tied { to }),
    ]
}

fn recipe() -> impl Strategy<Value = Recipe> {
    (1_usize..5, 4_usize..9, any::<bool>(), 1_usize..20, any::<bool>()).prop_map(
        |(channels, size, global_pool, hidden, dropout)| Recipe {
            channels,
            size,
            global_pool,
            hidden,
            dropout,
        },
    )
}

/// Networks that are valid by construction.
pub(crate) fn network() -> impl Strategy<Value = Network> {
    (recipe(), prop::collection::vec(step(), 2..9))
        .prop_map(|(recipe, steps)| build(recipe, &steps).expect("valid by construction"))
}

/// A layer of maps and its shape.
#[derive(Debug, Clone, Copy)]
struct Maps {
    id: LayerId,
    channels: usize,
    size: usize,
}

fn build(recipe: Recipe, steps: &[Step]) -> Result<Network, GraphError> {
    let Recipe { channels, size, global_pool, hidden, dropout } = recipe;
    let mut net = NetworkBuilder::new("random");
    let id = net.input("data", (channels, size, size))?;
    // All layers so far, and the last one, from which the chain goes on.
    let mut all = vec![Maps { id, channels, size }];
    let mut read = Vec::new();
    // Layers with parameters: which, their input channels, and what to do for one more of the kind.
    let mut weighted: Vec<(LayerId, usize, Step)> = Vec::new();
    for (i, &step) in steps.iter().enumerate() {
        let last = *all.last().expect("the input is there");
        let name = format!("l{i}");
        let same = |id| Maps { id, ..last };
        let next = match step {
            Step::Conv { oc, from } => {
                let from = all[all.len() - 1 - from % all.len()];
                read.push(from.id);
                let conv = Conv2d::new(oc, 3).pad(1);
                Maps { id: net.conv2d(name, from.id, conv)?, channels: oc, ..from }
            }
            Step::Relu => same(net.relu(name, last.id)?),
            Step::Sigmoid => same(net.sigmoid(name, last.id)?),
            Step::Tanh => same(net.tanh(name, last.id)?),
            Step::Bias => same(net.bias(name, last.id)?),
            Step::BatchNorm => same(net.batch_norm(name, last.id, BatchNorm::default())?),
            Step::Dropout => same(net.dropout(name, last.id, Dropout::new(0.3))?),
            Step::Lrn => same(net.lrn(name, last.id, Lrn::new(3))?),
            Step::Pool { average } if last.size >= 2 => {
                let id = if average {
                    net.avg_pool(name, last.id, Pool::new(2))?
                } else {
                    net.max_pool(name, last.id, Pool::new(2))?
                };
                Maps { id, size: last.size / 2, ..last }
            }
            Step::Pool { .. } => continue,
            Step::Add { with } => {
                let fit: Vec<_> = all
                    .iter()
                    .filter(|m| m.channels == last.channels && m.size == last.size)
                    .collect();
                let other = fit[with % fit.len()].id;
                read.push(other);
                same(net.add(name, &[last.id, other])?)
            }
            Step::Concat { with } => {
                let fit: Vec<_> = all.iter().filter(|m| m.size == last.size).collect();
                let other = fit[with % fit.len()];
                read.push(other.id);
                let id = net.concat(name, &[last.id, other.id])?;
                Maps { id, channels: last.channels + other.channels, ..last }
            }
            Step::Tied { to } => {
                let fit: Vec<_> = weighted.iter().filter(|w| w.1 == last.channels).collect();
                if fit.is_empty() {
                    continue;
                }
                let &&(owner, _, kind) = &fit[to % fit.len()];
                let (id, channels) = match kind {
                    Step::Conv { oc, .. } => {
                        (net.conv2d(name, last.id, Conv2d::new(oc, 3).pad(1))?, oc)
                    }
                    Step::BatchNorm => {
                        (net.batch_norm(name, last.id, BatchNorm::default())?, last.channels)
                    }
                    _ => (net.bias(name, last.id)?, last.channels),
                };
                net.tie(id, owner)?;
                Maps { id, channels, ..last }
            }
        };
        match step {
            Step::Conv { from, .. } => {
                weighted.push((next.id, all[all.len() - 1 - from % all.len()].channels, step));
            }
            Step::Bias | Step::BatchNorm => weighted.push((next.id, last.channels, step)),
            _ => {}
        }
        if !matches!(step, Step::Conv { .. }) {
            read.push(last.id);
        }
        all.push(next);
    }
    // What nothing reads yet joins in the features.
    let mut parts = Vec::new();
    for (i, leaf) in all.iter().filter(|maps| !read.contains(&maps.id)).enumerate() {
        let is_chain = leaf.id == all.last().expect("the input is there").id;
        let pooled = if global_pool || !is_chain {
            net.global_avg_pool(format!("gap{i}"), leaf.id)?
        } else {
            leaf.id
        };
        parts.push(net.flatten(format!("flatten{i}"), pooled)?);
    }
    let mut last = match parts[..] {
        [one] => one,
        _ => net.concat("features", &parts)?,
    };
    last = net.linear("hidden", last, Linear::new(hidden))?;
    last = net.relu("hidden_relu", last)?;
    if dropout {
        last = net.dropout("hidden_dropout", last, Dropout::new(0.5))?;
    }
    last = net.linear("logits", last, Linear::new(5))?;
    net.softmax_cross_entropy("loss", last, SoftmaxCrossEntropy::default())?;
    net.build()
}
