//! The host functions that a program queues, wrapped: when one runs, what was queued before it is over, and the host may
//! act on that.

use alloc::boxed::Box;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::driver;
use crate::entries::Row;
use crate::record;
use crate::recording::Noted;

/// What the driver calls, and with what.
struct Wrapped {
    function: u64,
    data: u64,
    /// Its number, from 1 on.
    number: u64,
}

static COUNT: AtomicU64 = AtomicU64::new(0);

/// Puts this library's function in place of the program's.
pub(crate) fn wrap(row: usize, per_thread: bool, arguments: &mut [u64], noted: &mut Noted) {
    let own = match Row::at(row) {
        Some(Row::cuLaunchHostFunc) => call as *const () as u64,
        Some(Row::cuStreamAddCallback) => call_back as *const () as u64,
        _ => return,
    };
    let [stream, function, data, ..] = arguments else { return };
    // In a graph it would be called once for each launch.
    if record::captures() && driver::is_capturing(driver::handle(*stream, per_thread)) {
        return;
    }
    let number = COUNT.fetch_add(1, Relaxed) + 1;
    let wrapped = Wrapped { function: *function, data: *data, number };
    noted.function = number;
    (*function, *data) = (own, Box::into_raw(Box::new(wrapped)) as u64);
}

/// A `CUhostFn`.
unsafe extern "C" fn call(data: *mut c_void) {
    // SAFETY: the driver gives back what it was given, once.
    let of = unsafe { Box::from_raw(data.cast::<Wrapped>()) };
    record::ran(of.number);
    // SAFETY: the program gave the driver a function with this signature.
    unsafe {
        core::mem::transmute::<u64, unsafe extern "C" fn(u64)>(of.function)(of.data);
    }
}

/// A `CUstreamCallback`.
unsafe extern "C" fn call_back(stream: u64, status: u32, data: *mut c_void) {
    // SAFETY: as above.
    let of = unsafe { Box::from_raw(data.cast::<Wrapped>()) };
    record::ran(of.number);
    // SAFETY: as above.
    unsafe {
        core::mem::transmute::<u64, unsafe extern "C" fn(u64, u32, u64)>(of.function)(
            stream, status, of.data,
        );
    }
}
