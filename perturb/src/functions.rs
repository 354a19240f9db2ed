//! Wraps the host functions that a program queues, so that the record says when each runs. When one runs, the
//! work before it on its stream is done, and the host may act on that.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::entries::Row;
use crate::settings::{Mode, PATIENCE, Settings};
use crate::sys::{self, Locked, now};
use crate::{driver, record, told};

/// A host function that the program queued, with its argument.
struct Wrapped {
    function: u64,
    data: u64,
    /// The function's number, counted from 1.
    number: u64,
}

/// The codes by which the driver refuses a call: `CUDA_ERROR_INVALID_VALUE`, `_NOT_INITIALIZED`, `_INVALID_CONTEXT`,
/// `_INVALID_HANDLE`, `_NOT_PERMITTED`, `_NOT_SUPPORTED`, and those of captures.
const REFUSALS: [u32; 15] = [1, 3, 201, 400, 800, 801, 900, 901, 902, 903, 904, 905, 906, 907, 908];

static COUNT: AtomicU64 = AtomicU64::new(0);
/// The numbers of functions whose queuing call is not in the record yet.
static QUEUED: Locked<Vec<u64>> = Locked::new(Vec::new());

/// Replaces the host function that a call queues by this library's wrapper. Returns the function's number; None
/// if the call queues no host function, or its stream is being captured.
pub(crate) fn wrap(row: usize, per_thread: bool, arguments: &mut [u64]) -> Option<u64> {
    let own = match Row::at(row) {
        Some(Row::cuLaunchHostFunc) => call as *const () as u64,
        Some(Row::cuStreamAddCallback) => call_back as *const () as u64,
        _ => return None,
    };
    let [stream, function, data, ..] = arguments else { return None };
    // A graph calls the function at each launch, but the wrapper frees its data at the first call.
    if record::captures() && driver::is_capturing(driver::handle(*stream, per_thread)) {
        return None;
    }
    let number = COUNT.fetch_add(1, Relaxed) + 1;
    let wrapped = Wrapped { function: *function, data: *data, number };
    QUEUED.lock().push(number);
    (*function, *data) = (own, Box::into_raw(Box::new(wrapped)) as u64);
    Some(number)
}

/// Call this when the call that queued the function is in the record, or has failed.
pub(crate) fn written(number: u64) {
    QUEUED.lock().retain(|one| *one != number);
}

/// Frees the wrapper among the arguments of a call that queued no function, since the driver refused it with
/// `code`. After an error of earlier work the wrapper stays: such a code does not say whether the call queued.
pub(crate) fn failed(arguments: &[u64], code: u32) {
    if let Some(data) = arguments.get(2).filter(|_| REFUSALS.contains(&code)) {
        // SAFETY: `wrap` put this box among the arguments. The driver has refused the call, so it has not kept the
        // box and never calls the wrapper.
        drop(unsafe { Box::from_raw(*data as *mut Wrapped) });
    }
}

/// Forgets all queued functions, in a fork's child, which has queued nothing.
pub(crate) fn renew() {
    QUEUED.renew();
    QUEUED.lock().clear();
}

/// Runs a host function of the program. In the record mode, first waits until its queuing call is in the
/// record, for a second at most: what the function tells other threads comes later. In the serial mode it does
/// not wait: there the queuing call waits for the function.
fn run(of: &Wrapped, call: impl FnOnce(u64, u64)) {
    let begun = now();
    while Settings::get().mode == Mode::Record
        && QUEUED.lock().contains(&of.number)
        && now().saturating_sub(begun) < PATIENCE
    {
        sys::rest();
    }
    told::before_function();
    record::ran(of.number);
    // The function touches memory in its stream's order, so its accesses do not count as the host's own.
    let calling = sys::thread(|own| core::mem::replace(&mut own.calling, true));
    call(of.function, of.data);
    sys::thread(|own| own.calling = calling.unwrap_or(false));
}

/// This library's `CUhostFn`, for `cuLaunchHostFunc`.
unsafe extern "C" fn call(data: *mut c_void) {
    // SAFETY: the driver passes the box that `wrap` made, once.
    let of = unsafe { Box::from_raw(data.cast::<Wrapped>()) };
    run(&of, |function, data| {
        // SAFETY: the program gave the driver a function with this signature.
        unsafe { core::mem::transmute::<u64, unsafe extern "C" fn(u64)>(function)(data) }
    });
}

/// This library's `CUstreamCallback`, for `cuStreamAddCallback`.
unsafe extern "C" fn call_back(stream: u64, status: u32, data: *mut c_void) {
    // SAFETY: the driver passes the box that `wrap` made, once.
    let of = unsafe { Box::from_raw(data.cast::<Wrapped>()) };
    run(&of, |function, data| {
        // SAFETY: the program gave the driver a function with this signature.
        let function: unsafe extern "C" fn(u64, u32, u64) =
            unsafe { core::mem::transmute::<u64, _>(function) };
        // SAFETY: the program's function gets its own data, and the driver's stream and status.
        unsafe { function(stream, status, data) }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many wrappers were freed.
    static FREED: AtomicU64 = AtomicU64::new(0);

    impl Drop for Wrapped {
        fn drop(&mut self) {
            FREED.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn a_wrapper_is_freed_if_the_driver_refuses_the_call_and_only_then() {
        for (code, freed) in [(400, 1), (719, 0)] {
            let mut arguments = [7, 0x100, 5];
            let number = wrap(Row::cuLaunchHostFunc as usize, false, &mut arguments).unwrap();
            let before = FREED.load(Relaxed);
            failed(&arguments, code);
            written(number);
            assert_eq!(FREED.load(Relaxed) - before, freed, "{code}");
        }
    }
}
