//! The check of a record: which two operations nothing orders. Pure: from the bytes of a record to a text.

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

/// Checks a record, and says in JSON what was found.
pub(crate) fn check(bytes: &[u8], every: bool) -> String {
    match calls::read(bytes) {
        Some(words) => said::said(&calls::Reader::new(&words, every).run()),
        None => String::from("{\"problem\": \"the record is of another build\"}"),
    }
}
