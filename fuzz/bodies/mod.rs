//! What each fuzz target does with its input, and what it asserts of the result.
//!
//! An input is a list of choices ([`choices`]). The same bodies replay the committed corpora in
//! `cargo test`, without libFuzzer.

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

/// Takes any bytes, and panics where an invariant does not hold.
pub type Body = fn(&[u8]);

/// Every target, by the name of its corpus.
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
