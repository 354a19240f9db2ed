//! The body of each fuzz target: what it does with its input, and what it asserts.
//!
//! An input is a list of choices ([`choices`]). `cargo test` replays the committed corpora through
//! the same bodies, without libFuzzer.

pub mod cai;
pub mod choices;
pub mod device;
pub mod dlpack;
pub mod dtype;
pub mod layout;
pub mod lease;
pub mod misuse;
pub mod order;
pub mod stream;

/// Takes any bytes. Panics if an invariant is broken.
pub type Body = fn(&[u8]);

/// Every target, with the name of its corpus.
pub const ALL: [(&str, Body); 9] = [
    ("cai", cai::run),
    ("device", device::run),
    ("dlpack", dlpack::run),
    ("dtype", dtype::run),
    ("layout", layout::run),
    ("lease", lease::run),
    ("misuse", misuse::run),
    ("order", order::run),
    ("stream", stream::run),
];
