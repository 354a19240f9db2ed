//! The library that `cai-bridge perturb` and `cai-bridge races` preload into a program.
//!
//! The library stands between the program and the CUDA driver (`ways`, `hooks`). `run` says what is done around
//! a call. Before work on a late stream it queues a gate (`gate`), so that the work runs later than other
//! streams' work that need not wait for it. The seed chooses the late streams (`design`). Streams and events
//! tell which work stands behind which gate (`streams`). The library's own events tell whether work is done
//! (`marks`). If a program's values change with the seed, it may lack a wait.
//!
//! For `cai-bridge races` the library delays no work on the GPU. It records the calls (`record`, `recording`,
//! `kernel_arguments`, `frames`, `graphs`) and tells the program late that work is done (`told`). In a second,
//! serial run it records the bytes that some launches change and read (`compared`, `again`). `check` checks a
//! record for the command.
//!
//! The library uses no standard library: it is loaded into every process of the program, and a process without
//! CUDA must not notice. Nothing unwinds: a panic aborts the process. If a driver call of the library's own
//! fails, the program goes on.
//!
//! These modules have `unsafe` code:
//! - `sys` and `host`: the C library.
//! - `symbols`, `hooks` and `ways`: functions by name.
//! - `driver`, `gate` and `marks`: the CUDA driver.
//! - `stack` and `frames`: Python's C API, and its frames.
//! - `functions`: the program's functions.
//! - Their callers: `run`, `serial`, `log`, `settings`, `record`, `recording`, `launch`, `graphs`, `compared`,
//!   `again`, `kernel_arguments`.

#![cfg_attr(not(test), no_std)]
// The tests use the standard library, and hook nothing.
#![cfg_attr(test, allow(dead_code))]

extern crate alloc;

// A module uses only the modules above it in this list.
mod numbers;
mod design;
mod copies;
mod streams;
mod sys;
mod symbols;
mod driver;
mod entries;
mod memory;
mod settings;
mod log;
mod frames;
mod stack;
mod marks;
mod gate;
mod launch;
mod kernel_arguments;
mod record;
mod graphs;
mod told;
mod functions;
mod state;
mod serial;
mod host;
mod again;
mod compared;
mod check;
mod recording;
mod run;
mod hooks;
mod ways;

#[cfg(test)]
mod order;

#[cfg(not(test))]
#[global_allocator]
static MALLOC: sys::Malloc = sys::Malloc;

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: `abort` takes no argument, and does not return.
    unsafe { libc::abort() }
}

/// Checks a record that this build wrote, for `cai-bridge races`. `second` is null, or the record of a serial
/// run of the program with the bytes that launches changed and read. If `every` is not 0, the findings have
/// every pair of operations.
///
/// Returns the findings as JSON, and writes the length of this text in bytes to `*size`.
/// [`cai_bridge_races_free`] frees the text.
///
/// # Safety
/// `record` points to `length` bytes. `second` points to `second_length` bytes, or is null. `size` points to a
/// word of the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cai_bridge_races(
    record: *const u8,
    length: usize,
    second: *const u8,
    second_length: usize,
    every: u32,
    size: *mut usize,
) -> *mut u8 {
    // SAFETY: the caller guarantees `length` bytes at `record`.
    let bytes = unsafe { core::slice::from_raw_parts(record, length) };
    let other: &[u8] = if second.is_null() {
        &[]
    } else {
        // SAFETY: the caller guarantees `second_length` bytes at `second`.
        unsafe { core::slice::from_raw_parts(second, second_length) }
    };
    let text = check::check(bytes, other, every != 0).into_bytes().into_boxed_slice();
    // SAFETY: the caller guarantees that `size` points to a word.
    unsafe { *size = text.len() };
    alloc::boxed::Box::into_raw(text).cast()
}

/// Frees a text that [`cai_bridge_races`] returned.
///
/// # Safety
/// `text` came from [`cai_bridge_races`], has `size` bytes, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cai_bridge_races_free(text: *mut u8, size: usize) {
    let text = core::ptr::slice_from_raw_parts_mut(text, size);
    // SAFETY: the caller guarantees that `text` is a box of `size` bytes from `cai_bridge_races`.
    drop(unsafe { alloc::boxed::Box::from_raw(text) });
}

/// The loader calls this function when it loads the library, before the program's `main`.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = {
    extern "C" fn start() {
        sys::make_thread_key();
        settings::Settings::load();
        log::begin();
    }
    start
};
