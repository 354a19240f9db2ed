//! Writes the logs: the counts of each process and, on request, each operation.
//!
//! The counts are words of a memory-mapped file, so they survive if the process is killed. The file begins
//! with a line of JSON, which tells what the words are and where they begin.

use alloc::string::String;
use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::entries::{COUNT, ENTRIES};
use crate::settings::{Mode, Settings};
use crate::sys;

/// What the library counts. The value is the count's place among the words of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// Operations: calls that queue work, of the kinds that the library may delay.
    Seen,
    /// Late operations.
    Late,
    /// Queued gates.
    Gates,
    /// How often the host waited and the library opened gates for it.
    Opened,
    /// Operations that cannot be late because they are captured.
    Captured,
    /// Operations that cannot be late because the host waits for them.
    HostWaits,
    /// Operations that are not late because their gate could not be queued.
    Failed,
    /// The most streams that the library had to tell apart at one time.
    Streams,
}

const NAMES: [&str; 8] =
    ["seen", "late", "gates", "opened", "captured", "host_waits", "failed", "streams"];
const WORDS: usize = NAMES.len() + COUNT;
/// The offset in bytes of the words in the file. The line before them is shorter.
const AT: usize = 8192;

/// This process's counts, mapped from its file. Without a file nothing is counted.
#[derive(Debug)]
pub(crate) struct Counts(Option<&'static mut [u64; WORDS]>);

impl Counts {
    pub(crate) const NONE: Self = Self(None);

    pub(crate) fn add(&mut self, count: Count) {
        self.change(count as usize, |word| word + 1);
    }

    pub(crate) fn at_least(&mut self, count: Count, number: u64) {
        self.change(count as usize, |word| word.max(number));
    }

    /// Counts a call of a function of the table.
    pub(crate) fn call(&mut self, row: usize) {
        self.change(NAMES.len() + row, |word| word + 1);
    }

    fn change(&mut self, place: usize, to: impl FnOnce(u64) -> u64) {
        if self.0.is_none() {
            self.0 = map();
        }
        if let Some(word) = self.0.as_mut().and_then(|words| words.get_mut(place)) {
            *word = to(*word);
        }
    }
}

fn map() -> Option<&'static mut [u64; WORDS]> {
    let settings = Settings::get();
    let file = sys::create(settings.folder?, name("counts").as_bytes())?;
    sys::write(file, head(settings).as_bytes());
    let words = sys::map(file, AT + size_of::<[u64; WORDS]>());
    sys::close(file);
    // SAFETY: `sys::map` made the file this long. The file is new, so it is all zeros behind the line. The
    // address is aligned as a page is. No other process writes this file, and it is never unmapped.
    words.map(|start| unsafe { &mut *start.add(AT).cast() })
}

/// The first line of the file, which tells what the words are.
fn head(settings: &Settings) -> String {
    let mode = match settings.mode {
        Mode::Off => "off",
        Mode::Serial => "serial",
        Mode::Late => "late",
        Mode::Record => "record",
    };
    let mut to = String::new();
    let process = sys::process();
    let _ = write!(
        to,
        "{{\"process\": {process}, \"door\": \"preload\", \"mode\": \"{mode}\", \"at\": {AT}, \"counts\": ["
    );
    list(&mut to, NAMES.iter());
    to.push_str("], \"functions\": [");
    list(&mut to, ENTRIES.iter().map(|one| &one.symbol));
    to.push_str("]}\n");
    to
}

fn list<'a>(to: &mut String, names: impl Iterator<Item = &'a &'static str>) {
    for (place, name) in names.enumerate() {
        let comma = if place == 0 { "" } else { ", " };
        let _ = write!(to, "{comma}\"{name}\"");
    }
}

/// An operation, as the log has it.
pub(crate) struct Operation<'a> {
    pub(crate) number: u64,
    /// The stream's index.
    pub(crate) stream: u64,
    pub(crate) handle: u64,
    pub(crate) blocking: bool,
    pub(crate) late: bool,
    pub(crate) function: &'a str,
    pub(crate) name: &'a [u8],
}

/// Appends an operation to the log, as one line.
pub(crate) fn trace(one: &Operation<'_>) {
    let Some(folder) = Settings::get().folder else { return };
    let Some(file) = sys::create(folder, self::name("trace").as_bytes()) else { return };
    let mut line = String::new();
    let kernel = String::from_utf8_lossy(one.name);
    let Operation { number, stream, handle, function, .. } = one;
    let (late, blocking) = (u8::from(one.late), u8::from(one.blocking));
    let _ =
        writeln!(line, "{number}\t{stream}\t{handle}\t{blocking}\t{late}\t{function}\t{kernel}");
    sys::write(file, line.as_bytes());
    sys::close(file);
}

static BEGAN: AtomicU64 = AtomicU64::new(0);

/// Stores the time at which the library was loaded, for [`name`].
pub(crate) fn begin() {
    BEGAN.store(sys::now(), Relaxed);
}

/// The name of one of this process's files. A process that replaces its program (`execv`) keeps its process
/// number, so the name also has the load time.
pub(crate) fn name(end: &str) -> String {
    let mut name = String::new();
    let _ = write!(name, "{}-{}.{end}", sys::process(), BEGAN.load(Relaxed));
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_before_the_words_has_room() {
        let settings = Settings::read();
        assert!(head(&settings).len() < AT);
        assert_eq!(Count::Streams as usize + 1, NAMES.len());
    }
}
