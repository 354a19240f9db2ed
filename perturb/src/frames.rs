//! Reads the calling thread's Python frames without the interpreter's lock.
//!
//! The holder of the interpreter's lock may wait for a driver lock that this thread holds. So this module does
//! not take the interpreter's lock. It need not: a thread inside the driver runs no Python. So the thread's
//! chain of frames does not change, and the chain's code objects are alive. The frame layout is not a public
//! interface: [`LAYOUTS`] has it for some versions, from their headers. For other versions, and for builds
//! without the lock, no frame is read.

use alloc::string::String;
use core::ffi::{CStr, c_int, c_void};

use crate::symbols;
use crate::sys::Locked;

/// The most frames to read.
const DEEPEST: usize = 40;
/// The value of a frame's `owner` field for a frame of C code (`FRAME_OWNED_BY_CSTACK`), which has no code
/// object.
const OF_C: u8 = 3;
/// The bit of a string's state that says: the characters follow the header.
const COMPACT: u32 = 1 << 5;
/// The bit of a string's state that says: all characters are ASCII.
const ASCII: u32 = 1 << 6;

/// The byte offsets of the needed fields, for one version of the interpreter.
#[derive(Clone, Copy)]
struct Layout {
    /// `Py_Version`, down to the minor number.
    version: u32,
    /// The offset in a thread state of the pointer to the current frame, or to a structure that has this
    /// pointer.
    thread: usize,
    /// The offset of the pointer to the current frame in the structure that `thread` leads to. None: `thread`
    /// leads to the frame itself.
    current: Option<usize>,
    /// The offset in a frame of the pointer to its code object.
    code: usize,
    /// The offset in a frame of the pointer to its caller's frame.
    previous: usize,
    /// The offset in a frame of the pointer to its current instruction.
    instruction: usize,
    /// The offset in a frame of the byte that says what owns it.
    owner: usize,
    /// The offset in a code object of its first line's number.
    first_line: usize,
    /// The offset in a code object of its first instruction.
    instructions: usize,
    /// The size in bytes of the header of an ASCII string.
    ascii: usize,
    /// The size in bytes of the header of any other string.
    unicode: usize,
}

/// The offset of the file's name in a code object, in every version of [`LAYOUTS`].
const FILE: usize = 112;
/// The offset of the function's name in a code object, in every version of [`LAYOUTS`].
const NAME: usize = 120;
/// The offset of the type in any object, in every version of [`LAYOUTS`].
const TYPE: usize = 8;
/// The offset of the length in a string.
const LENGTH: usize = 16;
/// The offset of the state in a string.
const STATE: usize = 32;

/// The layouts of Python 3.11, 3.12 and 3.13, from the headers of 3.11.7, 3.12.1 and 3.13.0.
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

/// The interpreter's functions and types that are needed.
#[derive(Clone, Copy)]
struct Python {
    layout: Layout,
    /// `Py_IsInitialized`. Needs no lock.
    is_there: unsafe extern "C" fn() -> c_int,
    /// `PyGILState_GetThisThreadState`: the thread's state, or 0. Needs no lock.
    state: unsafe extern "C" fn() -> usize,
    /// `PyCode_Addr2Line`: the line of an instruction of a code object. Needs no lock.
    line: unsafe extern "C" fn(usize, c_int) -> c_int,
    code_type: usize,
    string_type: usize,
}

/// Whether the process runs a version of Python with a known layout. Asked once.
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
    // SAFETY: the symbol is the interpreter's own constant.
    let version = unsafe { version.read() } >> 16;
    let layout = LAYOUTS.into_iter().find(|one| one.version == version)?;
    // A build without the lock exports this function, and has other layouts.
    if function(c"_Py_MergeZeroLocalRefcount").is_some() {
        return None;
    }
    // SAFETY: Python exports functions of these names, with the signatures of its C API.
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

/// A frame: its code object, with fields of it, and its current instruction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Frame {
    code: usize,
    instruction: usize,
    file: usize,
    name: usize,
    first_line: u32,
}

/// A thread's frames, the innermost first, at most [`DEEPEST`].
#[derive(Debug)]
pub(crate) struct Frames {
    all: [Frame; DEEPEST],
    count: usize,
}

/// Reads the value at the address `of + offset`. The caller guarantees that it is a `T`.
unsafe fn field<T>(of: usize, offset: usize) -> T {
    // SAFETY: the caller guarantees a value of this type there.
    unsafe { ((of + offset) as *const T).read_unaligned() }
}

/// The calling thread's Python frames. None if it has none, or the version's layout is not known.
pub(crate) fn read() -> Option<Frames> {
    let python = python()?;
    let layout = python.layout;
    let mut found = Frames { all: [Frame::default(); DEEPEST], count: 0 };
    // SAFETY: the thread's state and frames are alive, and change only while this thread runs Python. The
    // layouts belong to this version. A code object is read only if its type is the code type.
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

    /// A hash of these frames.
    pub(crate) fn hash(&self) -> u64 {
        self.all().iter().fold(0, |hash, one| mixed(mixed(hash, one.instruction), one.hash()))
    }
}

fn mixed(hash: u64, word: usize) -> u64 {
    (hash ^ word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

impl Frame {
    /// A hash of the code object: of its address, file, name and first line. So earlier code at the same
    /// address mostly has another hash.
    #[allow(clippy::cast_possible_truncation)] // a usize has 64 bits here
    pub(crate) fn hash(&self) -> usize {
        let words = [self.code, self.file, self.name, self.first_line as usize];
        words.iter().fold(0, |hash, word| mixed(hash, *word)) as usize
    }

    /// The line that the frame is at; 0 if unknown. The frame must still be on the calling thread's stack.
    pub(crate) fn line(&self) -> u64 {
        let Some(python) = python() else { return 0 };
        let begin = self.code + python.layout.instructions;
        let at = c_int::try_from(self.instruction.saturating_sub(begin)).unwrap_or(-1);
        // SAFETY: the frame keeps its code alive; the function reads the code's table of lines.
        u64::try_from(unsafe { (python.line)(self.code, at) }).unwrap_or(0)
    }

    /// The names of the frame's file and function.
    pub(crate) fn names(&self) -> (String, String) {
        (string(self.file), string(self.name))
    }
}

/// Reads a Python string that a code object keeps alive, up to 4096 characters, without calling the
/// interpreter. Empty for any other object.
fn string(of: usize) -> String {
    let Some(Python { layout, string_type, .. }) = python() else { return String::new() };
    let mut to = String::new();
    // SAFETY: the code object keeps the string, which is read only if its type is the string type. Its
    // characters follow its header, in the width that its state gives.
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
