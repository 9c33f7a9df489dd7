//! The paper's numbers, and what is chosen for known networks.

mod agreement;
mod choices;
mod equations;
mod overlap;
