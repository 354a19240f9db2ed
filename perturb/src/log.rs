//! What is written down: the counts of each process, and each operation if that is asked for.

use alloc::string::String;
use core::fmt::Write;
use core::sync::atomic::Ordering::Relaxed;

use crate::entries::ENTRIES;
use crate::run::{ENDED, STATE, State};
use crate::settings::{Mode, Settings};
use crate::sys;

/// Writes the counts, once: at the end of the process. From then on the library does nothing.
pub(crate) fn write() {
    if ENDED.swap(true, Relaxed) {
        return;
    }
    let settings = Settings::get();
    let Some(folder) = settings.folder else { return };
    let text = text(&STATE.lock(), settings);
    let name = name("json");
    if let Some(file) = sys::create(folder, name.as_bytes()) {
        sys::write(file, text.as_bytes());
    }
}

/// Writes an operation, in a line of its own.
pub(crate) fn trace(operation: u64, stream: u64, late: bool, function: &str, name: &[u8]) {
    let Some(folder) = Settings::get().folder else { return };
    let Some(file) = sys::create(folder, self::name("trace").as_bytes()) else { return };
    let mut line = String::new();
    let kernel = String::from_utf8_lossy(name);
    let late = u8::from(late);
    let _ = writeln!(line, "{operation}\t{stream}\t{late}\t{function}\t{kernel}");
    sys::write(file, line.as_bytes());
    // SAFETY: it was opened above.
    unsafe { libc::close(file) };
}

/// The name of one of this process's files.
pub(crate) fn name(end: &str) -> String {
    let mut name = String::new();
    let _ = write!(name, "{}.{end}", sys::process());
    name
}

fn text(state: &State, settings: &Settings) -> String {
    let mut to = String::new();
    let mode = match settings.mode {
        Mode::Off => "off",
        Mode::Serial => "serial",
        Mode::Late => "late",
    };
    let _ = write!(
        to,
        "{{\"process\": {}, \"door\": \"preload\", \"mode\": \"{mode}\", \"seen\": {}, \"late\": {}, \
         \"gates\": {}, \"opened\": {}, \"not_gated\": {{\"captured\": {}, \"host_waits\": {}, \
         \"failed\": {}}}, \"functions\": {{",
        sys::process(),
        state.seen,
        state.late,
        state.gated,
        state.opened,
        state.captured,
        state.host_waits,
        state.failed,
    );
    let called = ENTRIES.iter().zip(state.calls).filter(|(_, calls)| *calls > 0);
    for (place, (entry, calls)) in called.enumerate() {
        let comma = if place == 0 { "" } else { ", " };
        let _ = write!(to, "{comma}\"{}\": {calls}", entry.symbol);
    }
    to.push_str("}, \"streams\": [");
    for (place, stream) in state.streams.all().iter().enumerate() {
        let comma = if place == 0 { "" } else { ", " };
        let _ = write!(
            to,
            "{comma}{{\"index\": {}, \"handle\": {}, \"blocking\": {}, \"seen\": {}, \"late\": {}, \
             \"gates\": {}}}",
            stream.index,
            stream.key.handle,
            stream.blocking,
            stream.seen,
            stream.late,
            stream.gates,
        );
    }
    to.push_str("]}\n");
    to
}
