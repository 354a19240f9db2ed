//! Which mistake this process makes, and which places it reaches: of the build that has them all.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

static CHOSEN: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    fn open(path: *const std::ffi::c_char, flags: i32) -> i32;
    fn mmap(at: *mut u8, length: usize, protection: i32, flags: i32, file: i32, from: i64) -> *mut AtomicU8;
}

/// Maps the file that notes what is reached, a byte a place.
fn mapped(path: &str) -> Option<&'static [AtomicU8]> {
    let length = usize::try_from(std::fs::metadata(path).ok()?.len()).ok()?;
    let path = std::ffi::CString::new(path).ok()?;
    // SAFETY: the file is as long as what is mapped, shared to be read and written, and is never unmapped.
    unsafe {
        let file = open(path.as_ptr(), 2);
        let at = mmap(std::ptr::null_mut(), length, 3, 1, file, 0);
        (file >= 0 && at as isize != -1).then(|| std::slice::from_raw_parts(at, length))
    }
}

/// Makes a mistake from now on, in a process that was forked behind its imports.
#[unsafe(no_mangle)]
pub extern "C" fn cai_bridge_choose(number: usize) {
    let _ = is(0);
    CHOSEN.store(number, Ordering::SeqCst);
}

pub(crate) fn is(number: usize) -> bool {
    static REACHED: OnceLock<Option<&'static [AtomicU8]>> = OnceLock::new();
    let reached = REACHED.get_or_init(|| {
        let chosen = std::env::var("CAI_BRIDGE_MUTANT").ok().and_then(|it| it.parse().ok());
        CHOSEN.store(chosen.unwrap_or(0), Ordering::SeqCst);
        std::env::var("CAI_BRIDGE_SITES").ok().and_then(|path| mapped(&path))
    });
    if let Some(place) = reached.and_then(|reached| reached.get(number)) {
        place.store(1, Ordering::Relaxed);
    }
    number != 0 && number == CHOSEN.load(Ordering::Relaxed)
}
