//! The record: what the program asks of the driver, in order, for `cai-bridge races`.
//!
//! A record is a line of JSON that names the rows of the table, and words behind it. What is written has a kind, its
//! length, and its words ([`Kind`]). A call is written when the driver has answered: what another thread does because
//! of it comes later. Of a wait of the host its beginning is written as well, as the wait covers what was queued then.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use crate::entries::ENTRIES;
use crate::graphs::Graph;
use crate::memory::Memory;
use crate::settings::Settings;
use crate::sys::{self, Locked};
use crate::{driver, frames, log};

/// What is written. A text is its length in bytes, and its bytes in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Kind {
    /// Thread, head ([`head_of`]), stack or 0, operation + 1 or 0, arguments, and what they point to.
    Call = 1,
    /// Thread, head, arguments: the host is about to wait, or to ask.
    Begin = 2,
    /// Number, file, function: a code object.
    Code = 3,
    /// Number, and code object and line of each frame, the innermost first.
    Stack = 4,
    /// Handle, whether its parameters are known, name.
    Kernel = 5,
    /// The nodes of a graph that can be launched ([`graphs`]).
    Graph = 6,
    /// Of the thread's next call: which bytes it changed and read ([`compared`]).
    Bytes = 7,
    /// Name, number, 1 or 0: a launch is about to be made again, or was.
    Trying = 8,
    /// Number: a host function of the program's runs.
    Ran = 9,
    /// Thread, stack, address, 1 or 0: the host touches page-locked memory, and writes there or reads.
    Host = 10,
}

/// Where the words begin: the line before them is shorter.
pub(crate) const AT: usize = 8192;
/// So many words are kept before they are written.
const ROOM: usize = 1 << 16;
/// The second word of a call: its row, whether it is the form for a thread's own default stream, whether its stream is
/// being captured, and the driver's answer.
pub(crate) fn head_of(row: usize, per_thread: bool, captured: bool, code: u32) -> u64 {
    row as u64 | u64::from(per_thread) << 16 | u64::from(captured) << 17 | u64::from(code) << 32
}

/// A kernel of the program's.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// The place and the size of each parameter.
    parameters: Vec<(usize, usize)>,
    /// The hash of its name.
    pub(crate) name: u64,
    /// Whether it belongs to a library whose kernels wait for others.
    pub(crate) waits: bool,
}

/// What is kept in mind of the process, and not written yet.
pub(crate) struct Log {
    /// 0: not opened yet; -1: it cannot be.
    file: i32,
    words: Vec<u64>,
    stacks: BTreeMap<u64, u64>,
    codes: BTreeMap<usize, u64>,
    pub(crate) kernels: BTreeMap<u64, Kernel>,
    pub(crate) graphs: BTreeMap<u64, Graph>,
    pub(crate) memory: Memory,
    pub(crate) captures: u64,
    /// How often each kernel was launched, by its name.
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
        memory: Memory::NEW,
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
            // SAFETY: the words are so many bytes.
            sys::write(self.file, unsafe {
                core::slice::from_raw_parts(self.words.as_ptr().cast(), size)
            });
        }
        self.words.clear();
    }

    /// How often a kernel of this name was launched.
    pub(crate) fn times(&self, name: u64) -> u64 {
        self.launches.get(&name).copied().unwrap_or(0)
    }

    /// What is known of a kernel; it is written down when it is first seen.
    pub(crate) fn kernel(&mut self, function: u64) -> Kernel {
        if let Some(known) = self.kernels.get(&function) {
            return known.clone();
        }
        let name = driver::name_of(function).unwrap_or(b"?");
        let parameters = parameters(function);
        let mut words = alloc::vec![function, u64::from(parameters.is_some())];
        text(&mut words, name);
        self.put(Kind::Kernel, &words);
        let kernel = Kernel {
            parameters: parameters.unwrap_or_default(),
            name: hash(name),
            waits: waits(name),
        };
        self.kernels.insert(function, kernel.clone());
        kernel
    }

    /// The words of a kernel's arguments that may be addresses, with their places: the parameter, and the byte in it.
    ///
    /// # Safety
    /// The arguments are as the driver takes them for this kernel.
    pub(crate) unsafe fn addresses(
        &self,
        kernel: &Kernel,
        arguments: u64,
        extra: u64,
        mut take: impl FnMut(u64, u64),
    ) {
        for (index, (offset, size)) in kernel.parameters.iter().enumerate() {
            // SAFETY: the caller gives an address for each parameter; or `CU_LAUNCH_PARAM_BUFFER_POINTER`, and behind
            // that the address of a buffer in which each has its place.
            let from = unsafe {
                if arguments != 0 {
                    (arguments as *const *const u8).add(index).read()
                } else if extra != 0 {
                    (extra as *const *const u8).add(1).read().add(*offset)
                } else {
                    return;
                }
            };
            if from.is_null() {
                continue;
            }
            for at in (0..size.saturating_sub(7)).step_by(8) {
                // SAFETY: the parameter is as long as the driver says.
                let word = unsafe { from.add(at).cast::<u64>().read_unaligned() };
                if self.memory.may_have(word) {
                    take((index as u64) << 32 | at as u64, word);
                }
            }
        }
    }

    /// The number of the thread's Python stack; 0 is none.
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

/// At the process's end.
pub(crate) fn flush() {
    LOG.lock().flush();
}

/// In a fork's child: it has written nothing yet. The driver does not work there.
pub(crate) fn renew() {
    LOG.renew();
    *LOG.lock() = Log::NEW;
}

fn open() -> Option<i32> {
    let file = sys::create(Settings::get().folder?, log::name("record").as_bytes())?;
    sys::write(file, line().as_bytes());
    Some(file)
}

/// The line that names the rows.
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

/// A hash of a name (FNV-1a).
pub(crate) fn hash(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Whether a kernel of this name waits for other kernels, perhaps of other processes.
fn waits(name: &[u8]) -> bool {
    [&b"nccl"[..], b"nvshmem"].iter().any(|one| name.windows(one.len()).any(|part| part == *one))
}

pub(crate) fn text(to: &mut Vec<u64>, bytes: &[u8]) {
    to.push(bytes.len() as u64);
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
        to.push(u64::from_le_bytes(word));
    }
}

/// The place and the size of each of a kernel's parameters; None: the driver cannot tell.
fn parameters(function: u64) -> Option<Vec<(usize, usize)>> {
    const MOST: usize = 4096;
    let mut found = Vec::new();
    let (mut offset, mut size) = (0, 0);
    for index in 0..MOST {
        // SAFETY: the results are this function's; the program is about to launch the function.
        let code = unsafe {
            match driver::cuFuncGetParamInfo(function, index, &raw mut offset, &raw mut size) {
                0 => 0,
                other => {
                    let to = (&raw mut offset, &raw mut size);
                    match driver::cuKernelGetParamInfo(function, index, to.0, to.1) {
                        0 => 0,
                        _ => other,
                    }
                }
            }
        };
        match code {
            0 => found.push((offset, size)),
            driver::NOT_FOUND => return None,
            _ => break,
        }
    }
    Some(found)
}

/// Whether a capture is going on.
pub(crate) fn captures() -> bool {
    LOG.lock().captures > 0
}

/// A host function runs.
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
        assert!(waits(b"_Z8ncclDevKernel") && !waits(b"_Z3addPfPKf"));
        assert_ne!(hash(b"fill"), hash(b"copy"));
    }
}
