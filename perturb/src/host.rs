//! Finds the host's accesses to page-locked memory that the device may be using.
//!
//! A copy from such memory protects its pages from the host's writes; a copy to it, from all accesses. The
//! first access that faults on a page is recorded, and allows such accesses to the page from then on. The
//! device does not use the host's page tables, so it is not affected. A system call on a protected page fails,
//! and a program with its own SIGSEGV handler may break. So users must ask for this.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::entries::Row;
use crate::record;
use crate::settings::{Mode, Settings};
use crate::sys::{self, Locked};

/// The most memory regions to watch.
const MOST: usize = 1024;
const PAGE: u64 = 4096;
const ALL: c_int = libc::PROT_READ | libc::PROT_WRITE;

struct Region {
    low: AtomicU64,
    size: AtomicU64,
}

static REGIONS: [Region; MOST] =
    [const { Region { low: AtomicU64::new(0), size: AtomicU64::new(0) } }; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The SIGSEGV handler that the program had; None: this module has not replaced it yet.
static BEFORE: Locked<Option<libc::sigaction>> = Locked::new(None);

fn is_on() -> bool {
    let settings = Settings::get();
    settings.host && settings.mode == Mode::Record
}

fn has(address: u64) -> bool {
    let all = REGIONS.get(..COUNT.load(Relaxed)).unwrap_or_default();
    all.iter().any(|one| address.wrapping_sub(one.low.load(Relaxed)) < one.size.load(Relaxed))
}

fn protect(from: u64, size: u64, access: c_int) {
    let low = from / PAGE * PAGE;
    let high = from.saturating_add(size).div_ceil(PAGE) * PAGE;
    let length = usize::try_from(high - low).unwrap_or(0);
    // SAFETY: the pages are page-locked memory that the program got from the driver, and has not given back.
    unsafe { libc::mprotect(low as *mut c_void, length, access) };
}

/// Runs before each driver call. If it frees page-locked memory, stops watching the memory, and unprotects it.
pub(crate) fn before(row: Row, arguments: &[u64]) {
    if row != Row::cuMemFreeHost || !is_on() {
        return;
    }
    let low = arguments.first().copied().unwrap_or(0);
    let all = REGIONS.get(..COUNT.load(Relaxed)).unwrap_or_default();
    if let Some(region) = all.iter().find(|one| one.low.load(Relaxed) == low) {
        protect(low, region.size.swap(0, Relaxed), ALL);
    }
}

/// Runs after each successful driver call. Begins to watch newly allocated page-locked memory, at the address
/// `found`. Protects the watched pages that an asynchronous copy uses, unless it was captured.
pub(crate) fn after(row: Row, arguments: &[u64], captured: bool, found: u64) {
    if !is_on() {
        return;
    }
    let argument = |at: usize| arguments.get(at).copied().unwrap_or(0);
    match row {
        Row::cuMemHostAlloc | Row::cuMemAllocHost_v2 => take(found, argument(1)),
        Row::cuMemcpyAsync | Row::cuMemcpyDtoHAsync_v2 | Row::cuMemcpyHtoDAsync_v2 if !captured => {
            let (to, from, size) = (argument(0), argument(1), argument(2));
            if has(from) {
                protect(from, size, libc::PROT_READ);
            }
            if has(to) {
                protect(to, size, libc::PROT_NONE);
            }
        }
        _ => {}
    }
}

fn take(low: u64, size: u64) {
    let mut before = BEFORE.lock();
    let place = COUNT.load(Relaxed);
    let Some(region) = REGIONS.get(place).filter(|_| low.is_multiple_of(PAGE)) else { return };
    region.low.store(low, Relaxed);
    region.size.store(size, Relaxed);
    COUNT.store(place + 1, Relaxed);
    if before.is_none() {
        // SAFETY: all zeros is a valid `sigaction`; the function has the signature that `SA_SIGINFO`
        // requires.
        unsafe {
            let mut new: libc::sigaction = MaybeUninit::zeroed().assume_init();
            let mut old: libc::sigaction = MaybeUninit::zeroed().assume_init();
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = faulted;
            new.sa_sigaction = handler as *const () as usize;
            new.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGSEGV, &raw const new, &raw mut old);
            *before = Some(old);
        }
    }
}

extern "C" fn faulted(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t` for this signal.
    let address = unsafe { (*info).si_addr() } as u64;
    if !has(address) {
        // The fault is the program's own. Restore the program's handler, which runs when the fault comes again.
        if let Some(old) = *BEFORE.lock() {
            // SAFETY: this is the handler that the program had.
            unsafe { libc::sigaction(libc::SIGSEGV, &raw const old, core::ptr::null_mut()) };
        }
        return;
    }
    let writes = is_write(context);
    // After a read, a later write must fault too.
    protect(address, 1, if writes == Some(false) { libc::PROT_READ } else { ALL });
    // Accesses by the driver, inside the program's call, and by this library do not count as the host's.
    let is_own = sys::thread(|own| own.inside || own.calling).unwrap_or(true);
    if !is_own {
        sys::thread(|own| own.inside = true);
        record::touched(address, writes == Some(true));
        sys::thread(|own| own.inside = false);
    }
}

/// Whether the fault was a write; None if unknown. The record counts an unknown access as a read, which accuses
/// less.
#[cfg(target_arch = "x86_64")]
fn is_write(context: *mut c_void) -> Option<bool> {
    const ERROR: usize = libc::REG_ERR as usize;
    // SAFETY: the kernel passes a `ucontext_t`. Bit 1 of the error code marks a write.
    unsafe {
        let registers = &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        registers.get(ERROR).map(|error| error & 2 != 0)
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn is_write(_: *mut c_void) -> Option<bool> {
    None
}
