//! Exchanges among ranks that are threads of this process, through the public interface.
#![expect(unsafe_code, reason = "tests submit memory of their own")]
#![expect(clippy::unwrap_used, reason = "in tests, helpers included, a panic is the report")]

mod harness;
mod sums;
mod redistribute;
mod in_flight;
mod failure;
mod lifecycle;
mod measure;
