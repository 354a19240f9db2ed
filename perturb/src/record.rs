//! The record: the program's calls of the driver, in order, for `cai-bridge races`.
//!
//! A record is a line of JSON, which names the rows of the table, and words. An entry has its kind, its length
//! and its words ([`Kind`]). A call is written after the driver answered: another thread's reaction to it comes
//! later. For a wait or a query of the host, its beginning is written too: it covers what was queued by then.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use crate::entries::ENTRIES;
use crate::kernel_arguments::{Descriptors, Kernel};
use crate::memory::Memory;
use crate::settings::Settings;
use crate::sys::{self, Locked};
use crate::{driver, frames, log};

/// The kind of an entry. A text is its length in bytes, then its bytes in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Kind {
    /// A call: thread, head ([`head_of`]), stack or 0, operation + 1 or 0, arguments, and, if the call
    /// succeeded, the values that they point to.
    Call = 1,
    /// The host is about to wait, or to query: thread, head, arguments.
    Begin = 2,
    /// A code object: number, file, function.
    Code = 3,
    /// A stack: number, then code object and line of each frame, the innermost first.
    Stack = 4,
    /// A kernel: handle, whether its parameters are known, name.
    Kernel = 5,
    /// The nodes of an executable graph ([`graphs`]).
    Graph = 6,
    /// The bytes that the thread's next call in the record changed and read ([`compared`]): thread, flags,
    /// number and bounds of changed stretches, number and addresses of read bytes.
    Bytes = 7,
    /// A launch is about to be repeated (1), or was (0): hash of the name, number, 1 or 0.
    Trying = 8,
    /// A host function of the program runs: number.
    Ran = 9,
    /// The host writes (1) or reads (0) page-locked memory: thread, stack, address, 1 or 0.
    Host = 10,
}

/// The offset in bytes of the words in a record. The line before them is padded to this length.
pub(crate) const AT: usize = 8192;
/// The words to collect before they are written to the file.
const ROOM: usize = 1 << 16;
/// The head of a call: its row, whether it is the per-thread form, whether its stream is being captured, and
/// the driver's answer.
pub(crate) fn head_of(row: usize, per_thread: bool, captured: bool, code: u32) -> u64 {
    row as u64 | u64::from(per_thread) << 16 | u64::from(captured) << 17 | u64::from(code) << 32
}

/// The facts of an executable graph that later calls need.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    /// The addresses that kernels were given, and the first addresses of copies and sets.
    pub(crate) addresses: Vec<u64>,
    /// Whether a launch of the graph may be repeated: all nodes are known, and are empty, copies, sets, or
    /// kernels that wait for no other kernels.
    pub(crate) plain: bool,
}

/// What the process keeps for its record, and the words that are not written yet.
pub(crate) struct Log {
    /// The record's file; 0: not opened yet; -1: it cannot be opened.
    file: i32,
    words: Vec<u64>,
    stacks: BTreeMap<u64, u64>,
    codes: BTreeMap<usize, u64>,
    pub(crate) kernels: BTreeMap<u64, Kernel>,
    pub(crate) graphs: BTreeMap<u64, Graph>,
    /// The stacks of captured calls, by the nodes that they made.
    pub(crate) nodes: BTreeMap<u64, u64>,
    pub(crate) memory: Memory,
    pub(crate) descriptors: Descriptors,
    pub(crate) captures: u64,
    /// The number of launches so far of kernels with each name, by the name's hash; captured and failed ones do
    /// not count.
    pub(crate) launches: BTreeMap<u64, u64>,
}

impl Log {
    const NEW: Self = Self {
        file: 0,
        words: Vec::new(),
        stacks: BTreeMap::new(),
        codes: BTreeMap::new(),
        kernels: BTreeMap::new(),
        graphs: BTreeMap::new(),
        nodes: BTreeMap::new(),
        memory: Memory::NEW,
        descriptors: Descriptors::NEW,
        captures: 0,
        launches: BTreeMap::new(),
    };

    pub(crate) fn put(&mut self, kind: Kind, words: &[u64]) {
        if self.file == 0 {
            self.file = open().unwrap_or(-1);
        }
        self.words.push((kind as u64) << 48 | words.len() as u64);
        self.words.extend_from_slice(words);
        if self.words.len() > ROOM {
            self.flush();
        }
    }

    pub(crate) fn flush(&mut self) {
        if self.file > 0 {
            let size = self.words.len() * size_of::<u64>();
            // SAFETY: `size` is the length of the words in bytes.
            sys::write(self.file, unsafe {
                core::slice::from_raw_parts(self.words.as_ptr().cast(), size)
            });
        }
        self.words.clear();
    }

    /// The number of launches so far of kernels whose name has the hash `name`.
    pub(crate) fn times(&self, name: u64) -> u64 {
        self.launches.get(&name).copied().unwrap_or(0)
    }

    /// The facts of a kernel. The first call for a kernel writes them to the record.
    pub(crate) fn kernel(&mut self, function: u64) -> Kernel {
        if let Some(known) = self.kernels.get(&function) {
            return known.clone();
        }
        let name = driver::name_of(function).unwrap_or(b"?");
        let kernel = Kernel::of(function, name);
        let mut words = alloc::vec![function, u64::from(kernel.has_parameters())];
        text(&mut words, name);
        self.put(Kind::Kernel, &words);
        self.kernels.insert(function, kernel.clone());
        kernel
    }

    /// The number of the thread's Python stack; 0 without one. Writes a new stack to the record.
    pub(crate) fn stack(&mut self) -> u64 {
        let Some(frames) = frames::read() else { return 0 };
        let hash = frames.hash();
        if let Some(known) = self.stacks.get(&hash) {
            return *known;
        }
        let number = self.stacks.len() as u64 + 1;
        let mut words = alloc::vec![number];
        for frame in frames.all() {
            let next = self.codes.len() as u64 + 1;
            let code = *self.codes.entry(frame.hash()).or_insert(next);
            if code == next {
                let (file, name) = frame.names();
                let mut seen = alloc::vec![code];
                text(&mut seen, file.as_bytes());
                text(&mut seen, name.as_bytes());
                self.put(Kind::Code, &seen);
            }
            words.extend([code, frame.line()]);
        }
        self.stacks.insert(hash, number);
        self.put(Kind::Stack, &words);
        number
    }
}

pub(crate) static LOG: Locked<Log> = Locked::new(Log::NEW);

/// Writes the words that are not written yet to the file. Runs when the process ends.
pub(crate) fn flush() {
    LOG.lock().flush();
}

/// Begins a new record, in a fork's child.
pub(crate) fn renew() {
    LOG.renew();
    *LOG.lock() = Log::NEW;
}

fn open() -> Option<i32> {
    let file = sys::create(Settings::get().folder?, log::name("record").as_bytes())?;
    sys::write(file, line().as_bytes());
    Some(file)
}

/// The first line of a record, which names the rows of the table and is padded to [`AT`] bytes.
pub(crate) fn line() -> String {
    let mut line = String::from("[");
    for (at, one) in ENTRIES.iter().enumerate() {
        let _ = write!(line, "{}\"{}\"", if at == 0 { "" } else { "," }, one.symbol);
    }
    line.push(']');
    while line.len() < AT - 1 {
        line.push(' ');
    }
    line.push('\n');
    line
}

pub(crate) fn text(to: &mut Vec<u64>, bytes: &[u8]) {
    to.push(bytes.len() as u64);
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
        to.push(u64::from_le_bytes(word));
    }
}

/// Records that the host touches memory that a copy uses, if the thread runs Python.
pub(crate) fn touched(address: u64, writes: bool) {
    let thread = sys::thread(|own| own.number).unwrap_or(0);
    let mut log = LOG.lock();
    let stack = log.stack();
    // A thread without a Python frame may be one of the driver's threads.
    if stack > 0 {
        log.put(Kind::Host, &[thread, stack, address, u64::from(writes)]);
    }
}

/// Whether any capture is active, as far as the record knows.
pub(crate) fn captures() -> bool {
    LOG.lock().captures > 0
}

/// Records that the host function with this number runs.
pub(crate) fn ran(number: u64) {
    LOG.lock().put(Kind::Ran, &[number]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_before_the_words_has_room() {
        assert_eq!(line().len(), AT);
        assert!(line().trim_end().len() < AT);
    }

    #[test]
    fn a_text_is_its_length_and_its_bytes() {
        let mut to = Vec::new();
        text(&mut to, b"abcdefghi");
        assert_eq!(to, [9, u64::from_le_bytes(*b"abcdefgh"), u64::from(b'i')]);
    }
}
