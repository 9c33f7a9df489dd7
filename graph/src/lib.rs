//! What is computed: networks, shapes, placements and the priced task graph of Lockstep.
//!
//! A [`Network`] is what the user wrote: layers and shapes, no minibatch, no ranks. [`Plan::compile`] turns it into a
//! [`TaskGraph`]: what happens in one iteration, in which order, at what price. Nothing here computes or communicates.
//!
//! | to | see |
//! |---|---|
//! | build a network | [`NetworkBuilder`] |
//! | take one that exists | [`zoo`], [`Network::from_json_file`] |
//! | look at it | [`Network::to_table`], [`Network::to_dot`], [`Network::to_json`] |
//! | compile it | [`Plan`], [`PlanOptions`], [`Strategy`], [`Meshes`] |
//! | see who holds what | [`Placement`], [`redistribution`], [`share`], [`strips`] |
//! | see what happens | [`TaskGraph`], [`Task`], [`Price`] |
//! | weigh computation against communication | [`balance`] |
//! | lay out memory | [`MemoryPlan`] |
//!
//! # Examples
//! ```
//! use lockstep_graph::{Linear, NetworkBuilder, SoftmaxCrossEntropy};
//!
//! let mut net = NetworkBuilder::new("softmax-regression");
//! let data = net.input("data", 784)?;
//! let logits = net.linear("fc", data, Linear::new(10))?;
//! net.softmax_cross_entropy("loss", logits, SoftmaxCrossEntropy::default())?;
//! let net = net.build()?;
//! assert_eq!(net.parameter_count(), 7850);
//! # Ok::<(), lockstep_graph::GraphError>(())
//! ```
#![forbid(unsafe_code)]

mod error;
mod shape;
mod layer;
mod network;
mod builder;
mod infer;
mod order;
mod json;
mod dot;
mod table;
pub mod zoo;
mod placement;
mod cost;
pub mod balance;
mod task;
mod memory;
mod compile;

pub use builder::NetworkBuilder;
pub use compile::{
    Fusion, Meshes, Mode, PerLayer, Plan, PlanOptions, REPRODUCIBLE_SLICES, Strategy,
    WinogradLayers, WinogradTile,
};
pub use cost::{Platform, Price};
pub use error::{GraphError, TieProblem};
pub use layer::{
    AvgPool, BatchNorm, Conv2d, Dropout, HeightWidth, Layer, LayerId, LayerKind, Linear, Lrn,
    Param, ParamRole, Pool, SoftmaxCrossEntropy, Statistics, Window,
};
pub use memory::MemoryPlan;
pub use network::Network;
pub use placement::{
    Extent, FEATURE_GRAIN, FeatureAxis, Mesh, Placement, Region, SampleAxis, Transfer,
    redistribution, share, strips,
};
pub use shape::{Shape, WrongRank};
pub use task::{
    Dependency, Hazard, InPlace, SamplePart, ServiceOrder, Task, TaskGraph, TaskId, TaskKind,
    Tensor, TensorId, TensorRole,
};
