//! What the stubs answer, how often each was called, and how a test changes it.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// `CUDA_ERROR_INVALID_VALUE`: what a test gets that names no entry point or claim.
const INVALID_VALUE: u32 = 1;

/// An entry point: how often it was called, and what it is to answer.
pub(crate) struct Entry {
    pub(crate) name: &'static CStr,
    calls: AtomicU64,
    code: AtomicU32,
    /// How many calls are answered as usual before that.
    after: AtomicU64,
}

impl Entry {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, calls: AtomicU64::new(0), code: AtomicU32::new(0), after: AtomicU64::new(0) }
    }

    /// Notes a call; `Some` is the code that a test asked for.
    #[inline]
    pub(crate) fn called(&self) -> Option<u32> {
        // A load and a store: callgrind runs one thread at a time, and tests count by one.
        self.calls.store(self.calls.load(Relaxed) + 1, Relaxed);
        let code = self.code.load(Relaxed);
        if code == 0 { None } else { self.failing(code) }
    }

    #[cold]
    fn failing(&self, code: u32) -> Option<u32> {
        match self.after.load(Relaxed) {
            0 => Some(code),
            left => {
                self.after.store(left - 1, Relaxed);
                None
            }
        }
    }
}

macro_rules! claims {
    ($($(#[$told:meta])* $name:ident = $value:literal,)+) => {
        /// What the stubs claim of the machine.
        pub(crate) struct Claims {
            $($(#[$told])* pub(crate) $name: AtomicU64,)+
        }

        pub(crate) static CLAIMS: Claims = Claims { $($name: AtomicU64::new($value),)+ };

        impl Claims {
            fn named(&self, name: &CStr) -> Option<&AtomicU64> {
                match name.to_str() {
                    $(Ok(stringify!($name)) => Some(&self.$name),)+
                    _ => None,
                }
            }
        }
    };
}

claims! {
    /// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE` of every address: 0 unknown, 1 host, 2 device.
    memory_type = 2,
    managed = 0,
    /// The device of every address.
    ordinal = 0,
    /// `CUstreamCaptureStatus` of every stream.
    capturing = 0,
    /// The identity of every context (`cuCtxGetId`).
    context_id = 7,
    /// What the identity of every stream is above its handle (`cuStreamGetId`).
    stream_id = 1,
    devices = 2,
    /// Whether a thread that made no context current has one all the same.
    current = 1,
    /// Whether events are reached.
    reached = 1,
    /// Whether unloading a module waits for what streams run on the host.
    unload_waits = 1,
}

fn entry(name: &CStr) -> Option<&'static Entry> {
    crate::entries::ALL.iter().copied().find(|entry| entry.name == name)
}

/// Has the entry point `name` answer with `code` from its call after the next `after` ones on; 0 ends that.
/// Returns 0, or 1 where there is no such entry point.
///
/// # Safety
///
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_driver_fail(name: *const c_char, code: u32, after: u64) -> u32 {
    // SAFETY: the caller's word.
    let Some(entry) = entry(unsafe { CStr::from_ptr(name) }) else { return INVALID_VALUE };
    entry.after.store(after, Relaxed);
    entry.code.store(code, Relaxed);
    0
}

/// Changes the claim `name` to `value`. Returns 0, or 1 where there is no such claim.
///
/// # Safety
///
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_driver_say(name: *const c_char, value: u64) -> u32 {
    // SAFETY: the caller's word.
    let Some(claim) = CLAIMS.named(unsafe { CStr::from_ptr(name) }) else { return INVALID_VALUE };
    claim.store(value, Relaxed);
    0
}

/// How often the entry point `name` was called; of all of them for an empty name.
///
/// # Safety
///
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_driver_calls(name: *const c_char) -> u64 {
    // SAFETY: the caller's word.
    let name = unsafe { CStr::from_ptr(name) };
    if name.is_empty() {
        return crate::entries::ALL.iter().map(|entry| entry.calls.load(Relaxed)).sum();
    }
    entry(name).map_or(0, |entry| entry.calls.load(Relaxed))
}

/// The name of the entry point `at`; NULL past the last.
#[unsafe(no_mangle)]
pub extern "C" fn fake_driver_name(at: usize) -> *const c_char {
    crate::entries::ALL.get(at).map_or(std::ptr::null(), |entry| entry.name.as_ptr())
}
