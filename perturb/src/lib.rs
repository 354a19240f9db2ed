//! The library that `cai-bridge perturb` and `cai-bridge races` preload into a program.
//!
//! It stands between the program and the CUDA driver (`symbols`, `entries`). Before work on a late stream
//! it queues a gate (`gate`), so that the work runs later than anything that need not wait for it. Which
//! streams are late is a design of the seeds (`design`); what stands behind which gate is known from
//! streams and events (`streams`), and whether work is over from events of the library's own (`marks`). A
//! program whose values change with the seed lacks a wait.
//!
//! For `cai-bridge races` nothing is delayed: the calls are written down (`record`, `recording`, `frames`,
//! `graphs`), and the bytes that some launches change and read (`compared`, `again`). The check of a record
//! is here as well, for the command to call (`check`).
//!
//! There is no standard library in it: it is loaded into every process of the program, and what needs no
//! CUDA should not notice. Nothing unwinds; what cannot be had is counted, and the program goes on.
//!
//! `unsafe` is in `sys` (the C library), `symbols` and `entries` (functions by name), `driver` and `gate`
//! (the CUDA driver), `stack` and `frames` (Python's C API, and its frames), `functions` (the program's), and in
//! who calls those: `run`, `serial`, `log`, `settings`, `record`, `recording`, `graphs`, `compared`, `again`.

#![cfg_attr(not(test), no_std)]
// The tests have a standard library, and do not hook themselves.
#![cfg_attr(test, allow(dead_code))]

extern crate alloc;

mod again;
mod check;
mod compared;
mod copies;
mod design;
mod driver;
mod entries;
mod frames;
mod functions;
mod gate;
mod graphs;
mod host;
mod launch;
mod log;
mod marks;
mod memory;
mod record;
mod recording;
mod run;
mod serial;
mod settings;
mod stack;
mod streams;
mod symbols;
mod sys;

#[cfg(not(test))]
#[global_allocator]
static MALLOC: sys::Malloc = sys::Malloc;

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: it does not return.
    unsafe { libc::abort() }
}

/// Checks a record of this build's. `cai-bridge races` calls it.
///
/// Returns a text of `size` bytes, which [`cai_bridge_races_free`] takes back.
///
/// # Safety
/// So many bytes are at `record`, and `size` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cai_bridge_races(
    record: *const u8,
    length: usize,
    every: u32,
    size: *mut usize,
) -> *mut u8 {
    // SAFETY: the caller says so.
    let bytes = unsafe { core::slice::from_raw_parts(record, length) };
    let text = check::check(bytes, every != 0).into_bytes().into_boxed_slice();
    // SAFETY: as above.
    unsafe { *size = text.len() };
    alloc::boxed::Box::into_raw(text).cast()
}

/// Takes back what [`cai_bridge_races`] returned.
///
/// # Safety
/// It is that, of that size, and is not used any longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cai_bridge_races_free(text: *mut u8, size: usize) {
    let text = core::ptr::slice_from_raw_parts_mut(text, size);
    // SAFETY: the caller says so.
    drop(unsafe { alloc::boxed::Box::from_raw(text) });
}

/// Run by the loader: before the program's first thread.
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
