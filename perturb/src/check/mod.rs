//! Checks a record for pairs of operations that nothing orders. Pure: from records' bytes to a text.

mod calls;
mod cells;
mod clocks;
mod found;
#[cfg(test)]
mod model;
mod operation;
#[cfg(test)]
mod rules;
mod said;

use alloc::string::String;

/// Checks a record. `second` is the record of another run, with the bytes that launches changed and read; or
/// empty. With `every`, the findings have each pair of operations. Returns them as JSON, or the problem that a
/// record is of another build.
pub(crate) fn check(bytes: &[u8], second: &[u8], every: bool) -> String {
    checked(bytes, second, every)
        .unwrap_or_else(|| String::from("{\"problem\": \"the record is of another build\"}"))
}

fn checked(bytes: &[u8], second: &[u8], every: bool) -> Option<String> {
    let told = if second.is_empty() {
        None
    } else {
        Some(calls::Reader::new(&calls::read(second)?, false, None).run().evidence)
    };
    let words = calls::read(bytes)?;
    Some(said::said(&calls::Reader::new(&words, every, told.as_ref()).run()))
}
