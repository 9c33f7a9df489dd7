//! Whole runs through the public interface: any number of in-process ranks and workers, ordinary ends and failures.
#![expect(clippy::unwrap_used, reason = "in tests, helpers included, a panic is the report")]

mod samples;
mod harness;
mod networks;
mod failure;
mod stop;
mod strategies;
mod reproducible;
mod minibatches;
mod same_bits;
mod fused;
mod bundled;
mod traffic;
mod threads;
mod ties;
mod winograd;
