//! A simulated device that one library of a process lends to another.
//!
//! An extension that is written with this crate has the crate's state of its own, beside that of the Python
//! package. The simulated device is the package's, so the package lends it by a table of C functions
//! ([`Table`]): [`lender`] fills it in, [`borrowed`] calls it. Both sides may be of different builds, so
//! nothing but integers and addresses crosses.

pub mod borrowed;
pub mod lender;

use std::ffi::c_void;

/// The version of [`Table`]; another one is not called.
pub const VERSION: u32 = 3;

/// The name of the capsule that the table travels in.
pub const NAME: &std::ffi::CStr = c"cai_bridge.simulated_device";

/// A machine, counted.
pub type Raw = *const c_void;

/// What queued work calls: its data, and the machine that it runs on.
pub type Run = unsafe extern "C" fn(*mut c_void, Raw);

/// What ends such data.
pub type End = unsafe extern "C" fn(*mut c_void);

/// A piece of work that is handed over.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// The name, in UTF-8.
    pub name: *const u8,
    /// Its bytes.
    pub name_length: usize,
    /// What it reads and then what it writes, as pairs of an address and a number of bytes.
    pub spans: *const [u64; 2],
    /// How many it reads.
    pub reads: usize,
    /// How many it writes.
    pub writes: usize,
    /// What it runs.
    pub run: Run,
    /// Its data, which belong to the machine from here on, whatever it answers.
    pub data: *mut c_void,
    /// What ends them.
    pub end: End,
}

/// The functions. Those that answer a number answer a `CUresult`.
#[repr(C)]
#[derive(Debug)]
pub struct Table {
    /// [`VERSION`].
    pub version: u32,
    /// The machine that is this process's driver, counted once more; NULL where there is none.
    pub current: unsafe extern "C" fn() -> Raw,
    /// Gives a count back.
    pub release: unsafe extern "C" fn(Raw),
    /// The call of a number of [`Op`], with four numbers, answering up to four.
    pub call: unsafe extern "C" fn(Raw, u32, *const [u64; 4], *mut [u64; 4]) -> u32,
    /// Queues work on a stream.
    pub queue: unsafe extern "C" fn(Raw, u64, *const Work) -> u32,
    /// Reads bytes as the work that runs does.
    pub load: unsafe extern "C" fn(Raw, u64, *mut u8, usize) -> u32,
    /// Writes bytes as the work that runs does.
    pub store: unsafe extern "C" fn(Raw, u64, *const u8, usize) -> u32,
    /// Reads bytes from the host.
    pub read_on_host: unsafe extern "C" fn(Raw, u64, *mut u8, usize) -> u32,
    /// Reports a kernel that could not do its work: its name and why, in UTF-8.
    pub failed: unsafe extern "C" fn(Raw, *const u8, usize, *const u8, usize),
}

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $call:literal;)+) => {
        /// The calls that take and answer nothing but numbers.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Op {
            $($(#[$doc])* $name = $number,)+
        }

        impl Op {
            /// The one of that number.
            pub const fn numbered(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)+
                    _ => None,
                }
            }

            /// The driver's name for it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $call,)+ }
            }
        }
    };
}

ops! {
    /// Address → known, ordinal, kind of memory, context.
    Pointer = 0, "cuPointerGetAttributes";
    /// Ordinal → context.
    Primary = 1, "cuDevicePrimaryCtxRetain";
    /// → context or 0.
    Current = 2, "cuCtxGetCurrent";
    /// → ordinal.
    Ordinal = 3, "cuCtxGetDevice";
    /// Context.
    Push = 4, "cuCtxPushCurrent";
    /// Nothing.
    Pop = 5, "cuCtxPopCurrent";
    /// Context → its life.
    Life = 6, "cuCtxGetId";
    /// Context → handle, life.
    TakeEvent = 7, "cuEventCreate";
    /// Handle, context, life.
    SpareEvent = 8, "cuEventDestroy";
    /// Handle, context, life → whether it is reached.
    IsReached = 9, "cuEventQuery";
    /// Stream → 0 outside, 1 inside, 2 beside; the number of the capture.
    Part = 10, "cuStreamIsCapturing";
    /// Stream → whether it is blocking.
    IsBlocking = 11, "cuStreamGetFlags";
    /// Stream → context.
    StreamContext = 12, "cuStreamGetCtx";
    /// Handle, context, life, stream.
    Record = 13, "cuEventRecord";
    /// Handle, context, life, stream.
    Wait = 14, "cuStreamWaitEvent";
    /// Handle, context, life, stream.
    WaitExternal = 15, "cuStreamWaitEvent";
    /// Nothing.
    Synchronize = 16, "cuModuleUnload";
    /// Bytes, stream → address.
    Allocate = 17, "cuMemAllocAsync";
    /// Address, stream.
    Free = 18, "cuMemFreeAsync";
    /// Stream.
    WaitStream = 19, "cuStreamSynchronize";
    /// Ordinal → stream.
    NewStream = 20, "cuStreamCreate";
    /// Stream.
    EndStream = 21, "cuStreamDestroy";
    /// Stream → its number.
    StreamNumber = 22, "cuStreamGetId";
    /// Bytes → address.
    AllocateNow = 23, "cuMemAlloc";
    /// Address.
    FreeNow = 24, "cuMemFree";
    /// Handle, context, life.
    WaitUntil = 25, "cuEventSynchronize";
}
