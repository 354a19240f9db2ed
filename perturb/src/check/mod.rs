//! Checks a record for pairs of operations that nothing orders. Pure: from the record's bytes to a text.

mod calls;
mod cells;
mod clocks;
mod found;
#[cfg(test)]
mod model;
#[cfg(test)]
mod rules;
mod said;

use alloc::string::String;

/// Checks a record. Returns the findings as JSON.
pub(crate) fn check(bytes: &[u8], every: bool) -> String {
    match calls::read(bytes) {
        Some(words) => said::said(&calls::Reader::new(&words, every).run()),
        None => String::from("{\"problem\": \"the record is of another build\"}"),
    }
}
