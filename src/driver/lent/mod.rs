//! A simulated device that one library of a process lends to another.
//!
//! An extension built with this crate has its own copy of the crate's state, beside that of the Python package. The
//! package owns the simulated device, and lends it by a table of C functions ([`LentTable`]): [`lender`] fills the
//! table, [`borrowed`] calls the functions. The two libraries can be different builds, so only integers and addresses
//! cross.

pub mod borrowed;
pub mod lender;

use std::ffi::c_void;

/// The version of [`LentTable`]. The borrower does not call a table of another version.
pub const VERSION: u32 = 3;

pub const NAME: &std::ffi::CStr = c"cai_bridge.simulated_device";

/// A pointer to a simulated device.
pub type Raw = *const c_void;

pub type LentRun = unsafe extern "C" fn(*mut c_void, Raw);

/// Frees the data of a piece of work. The simulated device calls this function once.
pub type LentEnd = unsafe extern "C" fn(*mut c_void);

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LentWork {
    pub name: *const u8,
    pub name_length: usize,
    /// Pairs of an address and a length: first the bytes that the work reads, then the bytes that it writes.
    pub spans: *const [u64; 2],
    pub reads: usize,
    pub writes: usize,
    pub run: LentRun,
    /// Once `queue` is called, the simulated device owns the data and frees it with `end`, even if `queue` fails.
    pub data: *mut c_void,
    pub end: LentEnd,
}

/// The functions by which another library uses the simulated device. A returned `u32` is a `CUresult`.
#[repr(C)]
#[derive(Debug)]
pub struct LentTable {
    pub version: u32,
    /// Returns the simulated device installed in the table's library, which the caller must `release`. NULL if there is
    /// none, or in a forked child; do not `release` NULL.
    pub current: unsafe extern "C" fn() -> Raw,
    pub release: unsafe extern "C" fn(Raw),
    /// Makes the call with this number in [`Op`]. The first list has the call's arguments; the second gets its results.
    pub call: unsafe extern "C" fn(Raw, u32, *const [u64; 4], *mut [u64; 4]) -> u32,
    pub queue: unsafe extern "C" fn(Raw, u64, *const LentWork) -> u32,
    /// Only running work may call this function.
    pub load: unsafe extern "C" fn(Raw, u64, *mut u8, usize) -> u32,
    /// Only running work may call this function.
    pub store: unsafe extern "C" fn(Raw, u64, *const u8, usize) -> u32,
    pub read_on_host: unsafe extern "C" fn(Raw, u64, *mut u8, usize) -> u32,
    /// Reports a failed kernel: the kernel's name and the reason, in UTF-8.
    pub failed: unsafe extern "C" fn(Raw, *const u8, usize, *const u8, usize),
}

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $call:literal;)+) => {
        /// The calls whose arguments and results are only numbers. An event is passed as its handle, context and life.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Op {
            $($(#[$doc])* $name = $number,)+
        }

        impl Op {
            pub const fn numbered(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)+
                    _ => None,
                }
            }

            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $call,)+ }
            }
        }
    };
}

ops! {
    /// Takes an address; returns whether the address is known, the ordinal, the `DLDeviceType`, and the context or 0.
    Pointer = 0, "cuPointerGetAttributes";
    Primary = 1, "cuDevicePrimaryCtxRetain";
    Current = 2, "cuCtxGetCurrent";
    Ordinal = 3, "cuCtxGetDevice";
    Push = 4, "cuCtxPushCurrent";
    Pop = 5, "cuCtxPopCurrent";
    Life = 6, "cuCtxGetId";
    /// Takes a context; returns the event's handle and life.
    TakeEvent = 7, "cuEventCreate";
    SpareEvent = 8, "cuEventDestroy";
    IsReached = 9, "cuEventQuery";
    /// Takes a stream; returns 0 for `Outside`, 1 and the capture's number for `Inside`, or 2 for `Beside`.
    CaptureStatus = 10, "cuStreamIsCapturing";
    IsBlocking = 11, "cuStreamGetFlags";
    StreamContext = 12, "cuStreamGetCtx";
    Record = 13, "cuEventRecord";
    Wait = 14, "cuStreamWaitEvent";
    WaitExternal = 15, "cuStreamWaitEvent";
    Synchronize = 16, "cuModuleUnload";
    Allocate = 17, "cuMemAllocAsync";
    Free = 18, "cuMemFreeAsync";
    WaitStream = 19, "cuStreamSynchronize";
    NewStream = 20, "cuStreamCreate";
    EndStream = 21, "cuStreamDestroy";
    StreamNumber = 22, "cuStreamGetId";
    AllocateNow = 23, "cuMemAlloc";
    FreeNow = 24, "cuMemFree";
    WaitUntil = 25, "cuEventSynchronize";
}
