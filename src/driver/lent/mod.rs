//! A simulated device that one library of a process lends to another.
//!
//! An extension built with this crate has its own copy of the crate's state, beside that of the Python package. The
//! package owns the simulated device, and lends it by a table of C functions ([`LentTable`]): [`lender`] fills the
//! table, [`borrowed`] calls it. The two libraries may be different builds, so only integers and addresses cross.

pub mod borrowed;
pub mod lender;

use std::ffi::c_void;

/// The version of [`LentTable`]. A table of another version is not called.
pub const VERSION: u32 = 3;

/// The name of the capsule that holds the table.
pub const NAME: &std::ffi::CStr = c"cai_bridge.simulated_device";

/// A pointer to a machine. `current` returns it with a reference, which the caller must `release`. A [`LentRun`] gets
/// it without a reference.
pub type Raw = *const c_void;

/// The function that the machine calls to run queued work, with the work's data and the machine.
pub type LentRun = unsafe extern "C" fn(*mut c_void, Raw);

/// The function that frees the work's data.
pub type LentEnd = unsafe extern "C" fn(*mut c_void);

/// A piece of work, as the borrower passes it to `queue`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LentWork {
    /// The name, in UTF-8.
    pub name: *const u8,
    /// The length of the name in bytes.
    pub name_length: usize,
    /// The bytes that the work reads, then the bytes that it writes, as pairs of an address and a length.
    pub spans: *const [u64; 2],
    /// How many of the pairs are reads.
    pub reads: usize,
    /// How many of the pairs are writes.
    pub writes: usize,
    /// The function to run.
    pub run: LentRun,
    /// The work's data. Passing it to `queue` gives it to the machine, which frees it with `end`, even if the call
    /// fails.
    pub data: *mut c_void,
    /// The function that frees the data.
    pub end: LentEnd,
}

/// The functions by which another library uses the simulated device. A returned `u32` is a `CUresult`.
#[repr(C)]
#[derive(Debug)]
pub struct LentTable {
    /// The table's version, [`VERSION`].
    pub version: u32,
    /// Returns this process's machine, or NULL if the process has none. The caller gets a reference, which it must
    /// `release`.
    pub current: unsafe extern "C" fn() -> Raw,
    /// Releases a reference that the caller got from `current`.
    pub release: unsafe extern "C" fn(Raw),
    /// Makes the call whose number in [`Op`] is given. The call takes up to four numbers and returns up to four.
    pub call: unsafe extern "C" fn(Raw, u32, *const [u64; 4], *mut [u64; 4]) -> u32,
    /// Queues work on a stream.
    pub queue: unsafe extern "C" fn(Raw, u64, *const LentWork) -> u32,
    /// Reads the machine's memory from inside running work.
    pub load: unsafe extern "C" fn(Raw, u64, *mut u8, usize) -> u32,
    /// Writes the machine's memory from inside running work.
    pub store: unsafe extern "C" fn(Raw, u64, *const u8, usize) -> u32,
    /// Reads the machine's memory on the host. Makes no queued work run.
    pub read_on_host: unsafe extern "C" fn(Raw, u64, *mut u8, usize) -> u32,
    /// Reports a kernel that failed: its name and the reason, in UTF-8.
    pub failed: unsafe extern "C" fn(Raw, *const u8, usize, *const u8, usize),
}

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $call:literal;)+) => {
        /// The calls whose arguments and results are only numbers.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Op {
            $($(#[$doc])* $name = $number,)+
        }

        impl Op {
            /// The call with this number.
            pub const fn numbered(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)+
                    _ => None,
                }
            }

            /// The name of the call in an error.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $call,)+ }
            }
        }
    };
}

ops! {
    /// Takes an address. Returns whether it is known, the ordinal, the memory's `DLDeviceType`, and the context or 0.
    Pointer = 0, "cuPointerGetAttributes";
    /// Takes an ordinal. Returns the device's primary context.
    Primary = 1, "cuDevicePrimaryCtxRetain";
    /// Returns the current context, or 0.
    Current = 2, "cuCtxGetCurrent";
    /// Returns the ordinal of the current context's device.
    Ordinal = 3, "cuCtxGetDevice";
    /// Takes a context.
    Push = 4, "cuCtxPushCurrent";
    /// Takes nothing.
    Pop = 5, "cuCtxPopCurrent";
    /// Takes a context. Returns its life.
    Life = 6, "cuCtxGetId";
    /// Takes a context. Returns an event's handle and life.
    TakeEvent = 7, "cuEventCreate";
    /// Takes an event's handle, context and life, and keeps the event for reuse.
    SpareEvent = 8, "cuEventDestroy";
    /// Takes an event's handle, its context and that context's life. Returns whether the work before the event is done.
    IsReached = 9, "cuEventQuery";
    /// Takes a stream. Returns 0 outside a capture, 1 inside, 2 beside; and the capture's number.
    CaptureStatus = 10, "cuStreamIsCapturing";
    /// Takes a stream. Returns whether it is blocking.
    IsBlocking = 11, "cuStreamGetFlags";
    /// Takes a stream. Returns its context.
    StreamContext = 12, "cuStreamGetCtx";
    /// Takes an event's handle, context and life, and a stream.
    Record = 13, "cuEventRecord";
    /// Takes an event's handle, context and life, and a stream.
    Wait = 14, "cuStreamWaitEvent";
    /// Takes an event's handle, context and life, and a stream.
    WaitExternal = 15, "cuStreamWaitEvent";
    /// Takes nothing.
    Synchronize = 16, "cuModuleUnload";
    /// Takes a number of bytes and a stream. Returns the address.
    Allocate = 17, "cuMemAllocAsync";
    /// Takes an address and a stream.
    Free = 18, "cuMemFreeAsync";
    /// Takes a stream.
    WaitStream = 19, "cuStreamSynchronize";
    /// Takes an ordinal. Returns the stream.
    NewStream = 20, "cuStreamCreate";
    /// Takes a stream.
    EndStream = 21, "cuStreamDestroy";
    /// Takes a stream. Returns the stream's number.
    StreamNumber = 22, "cuStreamGetId";
    /// Takes a number of bytes. Returns the address.
    AllocateNow = 23, "cuMemAlloc";
    /// Takes an address.
    FreeNow = 24, "cuMemFree";
    /// Takes an event's handle, context and life.
    WaitUntil = 25, "cuEventSynchronize";
}
