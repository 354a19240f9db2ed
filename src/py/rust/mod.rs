//! Arrays of Rust as arguments and return values of PyO3 functions, for extensions that link this crate.

mod answer;
mod argument;
pub(crate) mod memory;
mod setup;

pub use answer::{OneProtocol, Speaking};
