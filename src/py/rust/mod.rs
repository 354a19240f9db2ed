//! Rust's arrays as arguments and return values of PyO3's functions, for extensions that link this crate.

mod answer;
mod argument;
mod setup;
pub(crate) mod taken;

pub use answer::{OneProtocol, Speaking};
