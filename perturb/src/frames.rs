//! The Python frames of the calling thread, read without the interpreter's lock.
//!
//! Who holds the lock may wait for a lock of the driver's that this thread holds, so it is not taken. It need not be:
//! a thread that is in the driver runs no Python, so its own chain of frames stays as it is, and the code objects in
//! it are alive. What the interpreter keeps where is not part of its interface: it is known of the versions in
//! [`LAYOUTS`], by their headers. Of other versions, and of builds without the lock, no frame is read.

use alloc::string::String;
use core::ffi::{CStr, c_int, c_void};

use crate::symbols;
use crate::sys::Locked;

/// So many frames of a stack are read.
const DEEPEST: usize = 40;
/// A frame's owner where the frame is C's: it has no code (`FRAME_OWNED_BY_CSTACK`).
const OF_C: u8 = 3;
/// The bits of a string's state: it has its characters behind its head, and all are ASCII.
const COMPACT: u32 = 1 << 5;
const ASCII: u32 = 1 << 6;

/// Where a version of the interpreter keeps what is needed, in bytes from the beginning of each structure.
#[derive(Clone, Copy)]
struct Layout {
    /// As `Py_Version` says it, without the parts behind the minor number.
    version: u32,
    /// Of a thread: its current frame, or a structure that has it.
    thread: usize,
    /// Where that structure has the frame; None: the thread has it itself.
    current: Option<usize>,
    /// Of a frame.
    code: usize,
    previous: usize,
    instruction: usize,
    owner: usize,
    /// Of a code object.
    first_line: usize,
    instructions: usize,
    /// The size of a string's head: of ASCII, and of anything else.
    ascii: usize,
    unicode: usize,
}

/// Of a code object, in all of them.
const FILE: usize = 112;
const NAME: usize = 120;
/// Of any object, and of a string.
const TYPE: usize = 8;
const LENGTH: usize = 16;
const STATE: usize = 32;

/// By the headers of Python 3.11.7, 3.12.1 and 3.13.0.
const LAYOUTS: [Layout; 3] = [
    Layout {
        version: 0x030b,
        thread: 56,
        current: Some(8),
        code: 32,
        previous: 48,
        instruction: 56,
        owner: 69,
        first_line: 72,
        instructions: 184,
        ascii: 48,
        unicode: 72,
    },
    Layout {
        version: 0x030c,
        thread: 56,
        current: Some(0),
        code: 0,
        previous: 8,
        instruction: 56,
        owner: 70,
        first_line: 68,
        instructions: 192,
        ascii: 40,
        unicode: 56,
    },
    Layout {
        version: 0x030d,
        thread: 72,
        current: None,
        code: 0,
        previous: 8,
        instruction: 56,
        owner: 70,
        first_line: 68,
        instructions: 200,
        ascii: 40,
        unicode: 56,
    },
];

/// What is needed of the interpreter.
#[derive(Clone, Copy)]
struct Python {
    layout: Layout,
    /// Whether there is an interpreter, the calling thread's state, and the line of an instruction: none of these
    /// needs the lock.
    is_there: unsafe extern "C" fn() -> c_int,
    state: unsafe extern "C" fn() -> usize,
    line: unsafe extern "C" fn(usize, c_int) -> c_int,
    code_type: usize,
    string_type: usize,
}

/// Whether the process runs a Python that is known.
#[derive(Clone, Copy)]
enum Known {
    NotAsked,
    No,
    Yes(Python),
}

static PYTHON: Locked<Known> = Locked::new(Known::NotAsked);

fn python() -> Option<Python> {
    let mut known = PYTHON.lock();
    if let Known::NotAsked = *known {
        *known = find().map_or(Known::No, Known::Yes);
    }
    match *known {
        Known::Yes(python) => Some(python),
        _ => None,
    }
}

fn find() -> Option<Python> {
    let function = |name: &CStr| symbols::of_the_program(name);
    let version = function(c"Py_Version")?.cast::<u32>();
    // SAFETY: it is the interpreter's own constant.
    let version = unsafe { version.read() } >> 16;
    let layout = LAYOUTS.into_iter().find(|one| one.version == version)?;
    // A build without the lock has other layouts, and this function.
    if function(c"_Py_MergeZeroLocalRefcount").is_some() {
        return None;
    }
    // SAFETY: these are Python's functions of these names, with the signatures of its C API.
    unsafe {
        Some(Python {
            layout,
            is_there: core::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(
                function(c"Py_IsInitialized")?,
            ),
            state: core::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> usize>(function(
                c"PyGILState_GetThisThreadState",
            )?),
            line: core::mem::transmute::<*mut c_void, unsafe extern "C" fn(usize, c_int) -> c_int>(
                function(c"PyCode_Addr2Line")?,
            ),
            code_type: function(c"PyCode_Type")? as usize,
            string_type: function(c"PyUnicode_Type")? as usize,
        })
    }
}

/// A frame: its code, and the instruction that it is at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Frame {
    code: usize,
    instruction: usize,
    file: usize,
    name: usize,
    first_line: u32,
}

/// The frames of a thread, the innermost first.
#[derive(Debug)]
pub(crate) struct Frames {
    all: [Frame; DEEPEST],
    count: usize,
}

/// Reads a field. The caller answers for the address.
unsafe fn field<T>(of: usize, offset: usize) -> T {
    // SAFETY: the caller says that a value of this type is there.
    unsafe { ((of + offset) as *const T).read_unaligned() }
}

/// The calling thread's frames; None where it runs no Python, or an unknown version of it.
pub(crate) fn read() -> Option<Frames> {
    let python = python()?;
    let layout = python.layout;
    let mut found = Frames { all: [Frame::default(); DEEPEST], count: 0 };
    // SAFETY: the thread's state and its frames are alive, and change only when this thread runs Python; the layouts
    // are the version's. A code object is looked at only if it is one.
    unsafe {
        if (python.is_there)() == 0 {
            return None;
        }
        let thread = (python.state)();
        if thread == 0 {
            return None;
        }
        let mut frame: usize = field(thread, layout.thread);
        if let Some(current) = layout.current.filter(|_| frame != 0) {
            frame = field(frame, current);
        }
        while frame != 0 && found.count < DEEPEST {
            let code: usize = field(frame, layout.code);
            let owner: u8 = field(frame, layout.owner);
            let is_code = owner != OF_C && code != 0;
            if is_code && field::<usize>(code, TYPE) == python.code_type {
                if let Some(to) = found.all.get_mut(found.count) {
                    *to = Frame {
                        code,
                        instruction: field(frame, layout.instruction),
                        file: field(code, FILE),
                        name: field(code, NAME),
                        first_line: field(code, layout.first_line),
                    };
                }
                found.count += 1;
            }
            frame = field(frame, layout.previous);
        }
    }
    (found.count > 0).then_some(found)
}

impl Frames {
    pub(crate) fn all(&self) -> &[Frame] {
        self.all.get(..self.count).unwrap_or_default()
    }

    /// A number that tells these frames from others.
    pub(crate) fn hash(&self) -> u64 {
        self.all().iter().fold(0, |hash, one| mixed(mixed(hash, one.instruction), one.hash()))
    }
}

fn mixed(hash: u64, word: usize) -> u64 {
    (hash ^ word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

impl Frame {
    /// A number that tells its code from other code, also from code that lay at the same address before.
    #[allow(clippy::cast_possible_truncation)] // a usize has 64 bits here
    pub(crate) fn hash(&self) -> usize {
        let words = [self.code, self.file, self.name, self.first_line as usize];
        words.iter().fold(0, |hash, word| mixed(hash, *word)) as usize
    }

    /// The line that it is at. The frame is one of the calling thread's, now.
    pub(crate) fn line(&self) -> u64 {
        let Some(python) = python() else { return 0 };
        let begin = self.code + python.layout.instructions;
        let at = c_int::try_from(self.instruction.saturating_sub(begin)).unwrap_or(-1);
        // SAFETY: the frame keeps its code alive; the function reads the code's table of lines.
        u64::try_from(unsafe { (python.line)(self.code, at) }).unwrap_or(0)
    }

    /// The names of its file and of its function.
    pub(crate) fn names(&self) -> (String, String) {
        (string(self.file), string(self.name))
    }
}

/// A string of Python's, which its code keeps alive. It is as it was made: nothing is asked of the interpreter.
fn string(of: usize) -> String {
    let Some(Python { layout, string_type, .. }) = python() else { return String::new() };
    let mut to = String::new();
    // SAFETY: the code has the string, which is looked at only if it is one; its characters lie behind its head, of
    // the width that its state says.
    unsafe {
        if of == 0 || field::<usize>(of, TYPE) != string_type {
            return to;
        }
        let (length, state): (usize, u32) = (field(of, LENGTH), field(of, STATE));
        if state & COMPACT == 0 {
            return to;
        }
        let begin = of + if state & ASCII != 0 { layout.ascii } else { layout.unicode };
        for at in 0..length.min(4096) {
            let character = match state >> 2 & 7 {
                1 => u32::from(field::<u8>(begin, at)),
                2 => u32::from(field::<u16>(begin, 2 * at)),
                _ => field::<u32>(begin, 4 * at),
            };
            to.push(char::from_u32(character).unwrap_or('?'));
        }
    }
    to
}
