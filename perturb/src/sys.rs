//! The C library's services: memory, a lock, the clock, each thread's state, the environment, files.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_void};
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The C library's allocator.
pub(crate) struct Malloc;

// SAFETY: `posix_memalign` returns memory of the requested size and alignment, or fails; `free` takes it.
unsafe impl GlobalAlloc for Malloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let mut to = core::ptr::null_mut();
        let align = layout.align().max(size_of::<usize>());
        // SAFETY: the alignment is a power of two and at least a pointer's.
        let code = unsafe { libc::posix_memalign(&raw mut to, align, layout.size()) };
        if code == 0 { to.cast() } else { core::ptr::null_mut() }
    }

    unsafe fn dealloc(&self, to: *mut u8, _: Layout) {
        // SAFETY: the caller got the memory from `alloc`.
        unsafe { libc::free(to.cast()) }
    }
}

/// A value behind a lock. The lock must not be held during a driver call that may wait.
pub(crate) struct Locked<T> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder of the mutex reaches the value.
unsafe impl<T: Send> Sync for Locked<T> {}

impl<T> Locked<T> {
    pub(crate) const fn new(value: T) -> Self {
        let mutex = UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER);
        Self { mutex, value: UnsafeCell::new(value) }
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
        // SAFETY: the mutex is initialised and lives as long as the process.
        unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
        Guard(self)
    }

    /// Makes the lock free again, in a fork's child: a thread that the child does not have may have held it.
    pub(crate) fn renew(&self) {
        // SAFETY: the child has only this thread.
        unsafe { self.mutex.get().write(libc::PTHREAD_MUTEX_INITIALIZER) };
    }
}

/// The held lock.
pub(crate) struct Guard<'a, T>(&'a Locked<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard holds the mutex.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the mutex, and is borrowed for writing.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: this thread locked the mutex when it made the guard.
        unsafe { libc::pthread_mutex_unlock(self.0.mutex.get()) };
    }
}

/// The time of the monotonic clock in nanoseconds.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is a local.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Sleeps for 20 microseconds or a little longer.
pub(crate) fn rest() {
    // SAFETY: the call touches no memory.
    unsafe { libc::usleep(20) };
}

pub(crate) fn process() -> u64 {
    // SAFETY: the call touches no memory.
    u64::from(unsafe { libc::getpid() }.unsigned_abs())
}

/// What this library keeps for a thread.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) number: u64,
    pub(crate) count: u64,
    /// Whether the thread runs this library's code. Its driver calls are then the library's own.
    pub(crate) inside: bool,
    /// Whether the thread is inside a driver call of the program that is recorded, or in a host function of the
    /// program.
    pub(crate) calling: bool,
}

static KEY: AtomicU32 = AtomicU32::new(u32::MAX);
static THREADS: AtomicU64 = AtomicU64::new(0);

/// How many threads have called the driver or run a host function.
pub(crate) fn threads() -> u64 {
    THREADS.load(Relaxed)
}

/// Makes the key to each thread's state. Called once, when the library is loaded.
pub(crate) fn make_thread_key() {
    unsafe extern "C" fn end(of: *mut c_void) {
        // SAFETY: `thread` made the box, and the thread is ending.
        drop(unsafe { Box::from_raw(of.cast::<Thread>()) });
    }
    let mut key = 0;
    // SAFETY: the key is a local.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(end)) } == 0 {
        KEY.store(key, Relaxed);
    }
}

/// Calls a function with the calling thread's state, which the first call makes. None if the key could not be
/// made or is not made yet.
pub(crate) fn thread<T>(call: impl FnOnce(&mut Thread) -> T) -> Option<T> {
    let key = KEY.load(Relaxed);
    if key == u32::MAX {
        return None;
    }
    // SAFETY: the key was made.
    let mut own: *mut Thread = unsafe { libc::pthread_getspecific(key) }.cast();
    if own.is_null() {
        let number = THREADS.fetch_add(1, Relaxed);
        own = Box::into_raw(Box::new(Thread { number, count: 0, inside: false, calling: false }));
        // SAFETY: the key was made, and its destructor takes this box.
        unsafe { libc::pthread_setspecific(key, own.cast()) };
    }
    // SAFETY: only this thread has the state, and `call` gets no second reference: it does not call this
    // function.
    Some(call(unsafe { &mut *own }))
}

/// An environment variable's text; None if the variable is unset or empty.
///
/// The text is a copy that is never freed: the program may overwrite the environment's memory, as
/// `setproctitle` does.
pub(crate) fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the name ends with a zero. The text is copied before anything can change the variable: no other thread
    // runs yet when the library is loaded.
    let found = unsafe { libc::getenv(name.as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the C library's strings end with a zero.
    let text = unsafe { CStr::from_ptr(found) }.to_bytes();
    (!text.is_empty()).then(|| &*Vec::leak(text.to_vec()))
}

/// Opens a file for appending. Creates it if needed.
pub(crate) fn create(folder: &[u8], name: &[u8]) -> Option<i32> {
    let mut path = Vec::with_capacity(folder.len() + name.len() + 2);
    path.extend_from_slice(folder);
    path.push(b'/');
    path.extend_from_slice(name);
    path.push(0);
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
    // SAFETY: the path ends with a zero.
    let file = unsafe { libc::open(path.as_ptr(), flags, 0o644) };
    (file >= 0).then_some(file)
}

/// The contents of a file, or the part that can be read.
pub(crate) fn contents(path: &[u8]) -> Vec<u8> {
    let mut name = path.to_vec();
    name.push(0);
    let mut to = Vec::new();
    let Ok(name) = CStr::from_bytes_until_nul(&name) else { return to };
    let mut room = [0_u8; 4096];
    // SAFETY: the path ends with a zero, and the length passed is the buffer's.
    unsafe {
        let file = libc::open(name.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return to;
        }
        loop {
            let count = libc::read(file, room.as_mut_ptr().cast(), room.len());
            let count = usize::try_from(count).unwrap_or(0);
            let Some(part) = room.get(..count).filter(|part| !part.is_empty()) else { break };
            to.extend_from_slice(part);
        }
        libc::close(file);
    }
    to
}

/// Closes a file that [`create`] opened.
pub(crate) fn close(file: i32) {
    // SAFETY: the file is open, and is the caller's.
    unsafe { libc::close(file) };
}

/// Sets the file's length to `size`, and maps the file. What is written to the mapping is in the file even if
/// the process is killed.
pub(crate) fn map(file: i32, size: usize) -> Option<*mut u8> {
    let length = libc::off_t::try_from(size).ok()?;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the file is open, and no address is asked for.
    let start = unsafe {
        if libc::ftruncate(file, length) != 0 {
            return None;
        }
        libc::mmap(core::ptr::null_mut(), size, access, libc::MAP_SHARED, file, 0)
    };
    (start != libc::MAP_FAILED).then_some(start.cast())
}

/// Writes the whole text, or as much as the file takes.
pub(crate) fn write(file: i32, mut text: &[u8]) {
    while !text.is_empty() {
        // SAFETY: the length passed is the text's.
        let count = unsafe { libc::write(file, text.as_ptr().cast(), text.len()) };
        let Some(rest) = usize::try_from(count).ok().and_then(|count| text.get(count..)) else {
            return;
        };
        text = rest;
    }
}
