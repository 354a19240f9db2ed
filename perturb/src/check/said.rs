//! Writes the findings about a record as JSON. Pure.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use super::calls::Reader;
use super::cells::How;
use super::clocks::Form;
use super::found::Pair;
use super::operation::Operation;
use crate::entries::ENTRIES;
use crate::launch;

/// The most pairs of lines to write.
const PAIRS: usize = 2000;

/// The most nodes of a graph launch to write for one side of a pair.
const NODES: usize = 3;

/// The findings of a reader that has run, as JSON.
pub(crate) fn said(reader: &Reader<'_>) -> String {
    let checker = &reader.checker;
    let unseen = &checker.unseen;
    let mut to = String::new();
    let _ = write!(
        to,
        "{{\"calls\": {}, \"operations\": {}, \"addresses\": {}, \"unseen\": {{\"orders\": {}, \"fog\": {}, \
         \"without\": {}, \"graphs\": {}, \"varying\": {}, \"lost\": {}}}, \"trying\": ",
        reader.calls,
        checker.operations.len(),
        checker.addresses,
        unseen.orders,
        unseen.fog,
        unseen.without,
        unseen.graphs,
        unseen.varying,
        unseen.lost,
    );
    match reader.trying {
        Some((name, place)) => write!(to, "\"{name} {place}\""),
        None => write!(to, "null"),
    }
    .unwrap_or(());
    to.push_str(", \"pairs\": [");
    let pairs = checker.found.pairs();
    for (at, pair) in pairs.iter().take(PAIRS).enumerate() {
        comma(&mut to, at);
        one(&mut to, reader, pair);
    }
    let _ = write!(to, "], \"count\": {}, \"each\": [", pairs.len());
    for (at, (first, second, proven)) in checker.found.each.iter().enumerate() {
        comma(&mut to, at);
        let _ = write!(to, "[{first}, {second}, {}]", u8::from(*proven));
    }
    to.push_str("]}");
    to
}

fn comma(to: &mut String, at: usize) {
    if at > 0 {
        to.push_str(", ");
    }
}

fn one(to: &mut String, reader: &Reader<'_>, pair: &Pair) {
    let hit = &pair.hit;
    let verdict = if hit.proven { "proven" } else { "suspect" };
    let writes = hit.how.0 == How::Write || hit.how.1 == How::Write;
    let _ = write!(
        to,
        "{{\"verdict\": \"{verdict}\", \"writes\": {writes}, \"count\": {}, \"proven\": {}, \"low\": {}, \
         \"high\": {}, \"first\": ",
        pair.count, pair.proven, hit.low, hit.high
    );
    side(to, reader, hit.first, hit.how.0, hit.low);
    to.push_str(", \"second\": ");
    side(to, reader, pair.second, hit.how.1, hit.low);
    to.push_str(", \"wanted\": [");
    let mut count = 0;
    for (first, second, memory, offset) in &pair.looked {
        for index in [first, second] {
            let Some(by) = reader.checker.operations.get(*index as usize) else { continue };
            let Some((_, hash)) = reader.names.get(by.name as usize) else { continue };
            comma(to, count);
            count += 1;
            let _ = write!(to, "\"{hash} {} {memory} {offset}\"", by.place);
        }
    }
    to.push_str("]}");
}

fn side(to: &mut String, reader: &Reader<'_>, index: u32, how: How, low: u64) {
    let Some(by) = reader.checker.operations.get(index as usize) else {
        to.push_str("null");
        return;
    };
    let symbol = ENTRIES.get(by.row as usize).map_or("the host", |one| one.symbol);
    let name = reader.names.get(by.name as usize).map_or(symbol, |one| one.0.as_str());
    let why = if how == How::Given { why(by.flags) } else { "" };
    let how = match how {
        How::Read => "reads",
        How::Write => "writes",
        How::Given => "is given",
    };
    let _ = write!(to, "{{\"index\": {index}, \"operation\": ");
    match by.numbered {
        0 => to.push_str("null"),
        one => write!(to, "{}", one - 1).unwrap_or(()),
    }
    let _ = write!(
        to,
        ", \"how\": \"{how}\", \"function\": \"{symbol}\", \"why\": \"{why}\", \"name\": "
    );
    quoted(to, name);
    to.push_str(", \"kernels\": [");
    let inner = reader.inner.get(&index).map(Vec::as_slice).unwrap_or_default();
    for (at, one) in inner.iter().enumerate() {
        comma(to, at);
        quoted(to, reader.names.get(*one as usize).map_or("?", |one| one.0.as_str()));
    }
    to.push_str("], \"nodes\": [");
    for (at, stack) in reader.made(index, low).into_iter().take(NODES).enumerate() {
        comma(to, at);
        to.push('[');
        frames(to, reader, stack);
        to.push(']');
    }
    to.push_str("], \"stream\": ");
    stream(to, reader, by);
    to.push_str(", \"stack\": [");
    frames(to, reader, u64::from(by.stack));
    to.push_str("]}");
}

/// Why not all bytes are known of a launch with these flags, in words; empty for a launch that was not looked
/// at.
fn why(flags: u64) -> &'static str {
    const WHY: [(u64, &str); 8] = [
        (launch::LOST, "it took longer than a second"),
        (launch::BESIDE, "other work ran beside it"),
        (launch::WAITS, "it may wait for another kernel"),
        (launch::FIXED, "its attributes or nodes do not allow to repeat it"),
        (launch::FOREIGN, "it may write managed memory, the host's or another process's"),
        (launch::LARGE, "it was given more than 256 MiB of memory"),
        (launch::VARIES, "it leaves other bytes each time"),
        (launch::FAILED, "repeating it failed"),
    ];
    let found = WHY.iter().find(|one| flags & one.0 != 0).map(|one| one.1);
    found.unwrap_or(if flags == 0 {
        ""
    } else {
        "repeating it with other bytes there left the same"
    })
}

fn stream(to: &mut String, reader: &Reader<'_>, by: &Operation) {
    let Some(one) = reader.checker.streams.get(by.stream as usize) else {
        to.push_str("null");
        return;
    };
    let form = match one.form {
        Form::Legacy => "the legacy default stream",
        Form::Own => "the per-thread default stream",
        Form::Blocking => "blocking stream",
        Form::NonBlocking => "non-blocking stream",
        Form::Host => "the host",
    };
    let _ = write!(to, "[{}, \"{form}", by.stream);
    if matches!(one.form, Form::Blocking | Form::NonBlocking) {
        let _ = write!(to, " {:#x}", one.handle);
    }
    to.push_str("\", [");
    frames(to, reader, one.made);
    to.push_str("]]");
}

/// Writes a stack's frames, the outermost first: file, line, function.
fn frames(to: &mut String, reader: &Reader<'_>, stack: u64) {
    let Some(words) = reader.stacks.get(&stack) else { return };
    for (at, frame) in words.chunks_exact(2).rev().enumerate() {
        let [code, line] = *frame else { continue };
        let Some((file, name)) = reader.codes.get(&code) else { continue };
        comma(to, at);
        to.push('[');
        quoted(to, file);
        let _ = write!(to, ", {line}, ");
        quoted(to, name);
        to.push(']');
    }
}

fn quoted(to: &mut String, text: &str) {
    to.push('"');
    for one in text.chars() {
        match one {
            '"' | '\\' => {
                to.push('\\');
                to.push(one);
            }
            one if u32::from(one) < 0x20 => write!(to, "\\u{:04x}", u32::from(one)).unwrap_or(()),
            one => to.push(one),
        }
    }
    to.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_quoted_as_json_has_it() {
        let mut to = String::new();
        quoted(&mut to, "a\"\\\n\u{e9}");
        assert_eq!(to, "\"a\\\"\\\\\\u000a\u{e9}\"");
    }
}
