//! Runs libFuzzer over one body: `TARGET=name fuzz CORPUS`.
#![no_main]

use std::sync::LazyLock;

use cai_bridge_fuzz::{ALL, Body};
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<Body> = LazyLock::new(|| {
    let wanted = std::env::var("TARGET").unwrap_or_default();
    let names = ALL.map(|(name, _)| name);
    let found = ALL.into_iter().find(|(name, _)| *name == wanted);
    found.unwrap_or_else(|| panic!("TARGET is one of {names:?}")).1
});

fuzz_target!(|data: &[u8]| TARGET(data));
