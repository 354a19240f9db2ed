//! The core's tests: the contract tables of `tests/data`, read by pytest as well, against slow and
//! obvious oracles.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::pedantic,
    clippy::print_stderr,
    unreachable_pub
)]

mod alive;
mod array;
#[path = "../../fuzz/bodies/mod.rs"]
mod bodies;
mod buffer;
mod capture;
mod copy_plan;
mod descriptor;
mod dtype;
mod end;
mod events;
mod examples;
mod fuzz;
mod layout;
mod lease;
mod modules;
mod order;
mod order_devices;
mod order_marks;
mod refusals;
mod simulated;
mod sources;
mod strangers;
mod stream;
mod tables;
mod tensor;
