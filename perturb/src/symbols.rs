//! Looks functions up: the driver's own, and the program's.

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// The C library's own `dlsym`, which this library's `dlsym` hides; null until [`true_dlsym`] has found it.
pub(crate) static TRUE_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

pub(crate) fn true_dlsym() -> Option<Dlsym> {
    let mut found = TRUE_DLSYM.load(Relaxed);
    for version in [c"GLIBC_2.34", c"GLIBC_2.17", c"GLIBC_2.2.5"] {
        if !found.is_null() {
            break;
        }
        // SAFETY: both strings end with a zero.
        found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
        TRUE_DLSYM.store(found, Relaxed);
    }
    if found.is_null() {
        return None;
    }
    // SAFETY: the symbol is the C library's `dlsym`, which has this signature (POSIX).
    Some(unsafe { core::mem::transmute::<*mut c_void, Dlsym>(found) })
}

/// Looks a symbol up in the driver's library; null if the process has not loaded the library, or the library
/// lacks the symbol.
pub(crate) fn real(name: &CStr) -> *mut c_void {
    static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let mut library = LIBRARY.load(Relaxed);
    if library.is_null() {
        let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD;
        // SAFETY: the string ends with a zero.
        library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), flags) };
        LIBRARY.store(library, Relaxed);
    }
    match true_dlsym() {
        // SAFETY: the library is open, and stays open; the name ends with a zero.
        Some(dlsym) if !library.is_null() => unsafe { dlsym(library, name.as_ptr()) },
        _ => null_mut(),
    }
}

/// Looks a symbol up by [`real`], and keeps what it found in `at` for later calls. The name ends with a zero.
pub(crate) fn once(at: &AtomicPtr<c_void>, name: &str) -> *mut c_void {
    let mut found = at.load(Relaxed);
    if found.is_null() {
        found = CStr::from_bytes_with_nul(name.as_bytes()).map_or(null_mut(), real);
        at.store(found, Relaxed);
    }
    found
}

/// Looks a symbol up by [`real`], for a name that does not end with a zero.
pub(crate) fn real_named(name: &str) -> *mut c_void {
    let mut text = alloc::vec::Vec::with_capacity(name.len() + 1);
    text.extend_from_slice(name.as_bytes());
    text.push(0);
    CStr::from_bytes_until_nul(&text).map_or(null_mut(), real)
}

/// Looks a symbol up in all libraries that the program has loaded globally; None if there is none.
pub(crate) fn of_the_program(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with a zero.
    let found = unsafe { true_dlsym()?(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
