//! Networks from outside: what is built, what is refused and why, and how networks travel.
#![expect(clippy::unwrap_used, reason = "functions that tests share are tests too")]

mod errors;
mod export;
mod inference;
mod json;
mod random;
mod ties;
mod zoo;
