//! The library that `cai-bridge perturb` preloads into a program.
//!
//! It stands between the program and the CUDA driver (`symbols`, `entries`). Before work on a late stream
//! it queues a gate (`gate`), so that the work runs later than anything that need not wait for it. Which
//! streams are late is a design of the seeds (`design`); what stands behind which gate is known from
//! streams and events (`streams`), and whether work is over from events of the library's own (`marks`). A
//! program whose values change with the seed lacks a wait.
//!
//! There is no standard library in it: it is loaded into every process of the program, and what needs no
//! CUDA should not notice. Nothing unwinds; what cannot be had is counted, and the program goes on.
//!
//! `unsafe` is in `sys` (the C library), `symbols` and `entries` (functions by name), `driver` and `gate`
//! (the CUDA driver), `stack` (Python's C API), `run`, `serial`, `log` and `settings` (who calls those).

#![cfg_attr(not(test), no_std)]
// The tests have a standard library, and do not hook themselves.
#![cfg_attr(test, allow(dead_code))]

extern crate alloc;

mod design;
mod driver;
mod entries;
mod gate;
mod launch;
mod log;
mod marks;
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
