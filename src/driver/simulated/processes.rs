//! What the simulated devices of several processes share: files in memory, with the allocations and events that a
//! process lets others open.
//!
//! A process that opens a block of another process locks the block's bytes in the file. The kernel releases the lock at
//! the latest when no process has that file descriptor any more, even after a crash.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(target_os = "linux")]
pub(super) use linux::Arena;
#[cfg(not(target_os = "linux"))]
pub(super) use nowhere::Arena;

use crate::driver::host::{ALIGNMENT, HostMemory};
use crate::driver::ipc::Name;

/// The size in bytes of an event's slot, which begins with four `u64`: the number of records, the latest record
/// reached, the latest record asked for, and the process that recorded last.
const SLOT: u64 = 64;

/// The size of a file in bytes. Only used pages take memory.
const LENGTH: u64 = 1 << 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    /// A random number that identifies the file.
    pub(super) file: u64,
    pub(super) process: u64,
    pub(super) descriptor: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl At {
    pub(super) fn name(self) -> Name {
        let mut name = [0; 64];
        let parts = [self.file, self.process, self.descriptor, self.offset, self.length];
        for (place, part) in name.chunks_exact_mut(8).zip(parts) {
            place.copy_from_slice(&part.to_le_bytes());
        }
        name
    }

    pub(super) fn of(name: &Name) -> Self {
        let mut parts = name.chunks_exact(8).map(|part| {
            part.iter().rev().fold(0_u64, |number, byte| (number << 8) | u64::from(*byte))
        });
        let mut next = || parts.next().unwrap_or(0);
        let (file, process, descriptor) = (next(), next(), next());
        Self { file, process, descriptor, offset: next(), length: next() }
    }
}

/// Reserves bytes of the file for good, rounded up to a multiple of [`ALIGNMENT`]. `None` if the file has too little
/// room left.
pub(super) fn take(arena: &Arc<Arena>, bytes: u64) -> Option<At> {
    let bytes = bytes.checked_next_multiple_of(u64::try_from(ALIGNMENT).ok()?)?;
    let fits = |taken: u64| taken.checked_add(bytes).filter(|end| *end <= LENGTH);
    let offset = arena.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
    Some(At {
        file: arena.number(),
        process: u64::from(std::process::id()),
        descriptor: arena.descriptor(),
        offset,
        length: bytes,
    })
}

/// `None` if `at` does not lie inside the file. The returned value keeps the file mapped.
pub(super) fn memory(arena: &Arc<Arena>, at: At) -> Option<HostMemory> {
    let (start, length) = (arena.at(at.offset, at.length)?, usize::try_from(at.length).ok()?);
    // SAFETY: `Arena::at` has checked that the bytes lie inside the mapping, which the boxed `Arc` keeps. All users
    // access these bytes only by copies.
    Some(unsafe { HostMemory::kept(start, length, Box::new(Arc::clone(arena))) })
}

#[derive(Debug, Clone)]
pub(super) struct SharedEvent {
    arena: Arc<Arena>,
    pub(super) at: At,
}

impl SharedEvent {
    pub(super) fn new(arena: &Arc<Arena>) -> Option<Self> {
        Some(Self { at: take(arena, SLOT)?, arena: Arc::clone(arena) })
    }

    pub(super) fn open(arena: &Arc<Arena>, at: At) -> Option<Self> {
        arena.at(at.offset, SLOT)?;
        let alignment = u64::try_from(ALIGNMENT).ok()?;
        if !at.offset.is_multiple_of(alignment) {
            return None;
        }
        Some(Self { at, arena: Arc::clone(arena) })
    }

    fn number(&self, index: u64) -> &AtomicU64 {
        let Some(place) = self.arena.at(self.at.offset + 8 * index, 8) else { unreachable!() };
        // SAFETY: `Arena::at` has checked that the eight bytes lie inside the mapping, which `self.arena` keeps. `take`
        // has aligned the slot, or `open` has checked that. Every process uses only atomic operations on the slot.
        unsafe { AtomicU64::from_ptr(place.as_ptr().cast()) }
    }

    pub(super) fn record(&self) -> u64 {
        self.number(3).store(u64::from(std::process::id()), Ordering::SeqCst);
        self.number(0).fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(super) fn records(&self) -> u64 {
        self.number(0).load(Ordering::SeqCst)
    }

    pub(super) fn reach(&self, record: u64) {
        self.number(1).fetch_max(record, Ordering::SeqCst);
    }

    /// Whether the record is reached. Also true if the process that recorded the event last has ended.
    pub(super) fn is_reached(&self, record: u64) -> bool {
        self.number(1).load(Ordering::SeqCst) >= record
            || !is_running(self.number(3).load(Ordering::SeqCst))
    }

    pub(super) fn need(&self, record: u64) {
        self.number(2).fetch_max(record, Ordering::SeqCst);
    }

    /// Whether a process has asked for a record that is not reached.
    pub(super) fn is_needed(&self) -> bool {
        self.number(2).load(Ordering::SeqCst) > self.number(1).load(Ordering::SeqCst)
    }
}

/// False for a zombie: a process that has ended and was not reaped.
fn is_running(process: u64) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    stat.rsplit_once(") ").is_none_or(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::c_void;
    use std::fs::{File, OpenOptions};
    use std::hash::{BuildHasher, Hasher};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::ptr::NonNull;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    #[allow(
        clippy::cast_possible_truncation,
        reason = "2^30 fits the 64 bits of each platform of CUDA's"
    )]
    const LENGTH: usize = super::LENGTH as usize;

    /// A file that exists only in memory, and its mapping in this process.
    #[derive(Debug)]
    pub(in super::super) struct Arena {
        file: File,
        start: NonNull<c_void>,
        pub(super) taken: AtomicU64,
    }

    // SAFETY: in this process the mapping belongs to this value alone. Only copies and atomic operations access it,
    // apart from the file's number: `new` writes it before it returns the value, and later it is only read.
    unsafe impl Send for Arena {}
    // SAFETY: as above.
    unsafe impl Sync for Arena {}

    impl Arena {
        pub(in super::super) fn new() -> Option<Arc<Self>> {
            // SAFETY: `memfd_create` reads the name up to its NUL, and the name is static.
            let made = unsafe { libc::memfd_create(c"cai_bridge".as_ptr(), libc::MFD_CLOEXEC) };
            // SAFETY: the descriptor was made just now, and nothing else has it.
            let made = (made >= 0).then(|| unsafe { OwnedFd::from_raw_fd(made) })?;
            let file = File::from(made);
            file.set_len(super::LENGTH).ok()?;
            let arena = Self::mapped(file)?;
            let number = std::hash::RandomState::new().build_hasher().finish() | 1;
            let start = arena.start.as_ptr().cast::<u64>();
            // SAFETY: the mapping begins here, aligned to a page, and no other process knows about the file yet.
            unsafe { start.write(number) };
            Some(Arc::new(arena))
        }

        pub(in super::super) fn open(path: &str) -> Option<Arc<Self>> {
            let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
            let is_whole = file.metadata().ok()?.len() == super::LENGTH;
            if is_whole { Self::mapped(file).map(Arc::new) } else { None }
        }

        fn mapped(file: File) -> Option<Self> {
            let (access, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE);
            let (none, file_number) = (std::ptr::null_mut(), file.as_raw_fd());
            // SAFETY: with a null hint the kernel picks a free address, so no existing mapping is touched. `new` has
            // made the file `LENGTH` bytes long, or `open` has checked that.
            let start = unsafe { libc::mmap(none, LENGTH, access, flags, file_number, 0) };
            let start = (start != libc::MAP_FAILED).then_some(start)?;
            // The first 4096 bytes hold only the file's number.
            Some(Self { file, start: NonNull::new(start)?, taken: AtomicU64::new(4096) })
        }

        pub(in super::super) fn number(&self) -> u64 {
            // SAFETY: the mapping begins here, aligned to a page. `new` wrote the number before any other process knew
            // about the file, and `take` never gives out these bytes.
            unsafe { self.start.as_ptr().cast::<u64>().read() }
        }

        pub(super) fn descriptor(&self) -> u64 {
            u64::try_from(self.file.as_raw_fd()).unwrap_or(0)
        }

        /// Returns a new file descriptor, which the caller must close.
        pub(in super::super) fn exported(&self) -> Option<i32> {
            use std::os::fd::IntoRawFd;
            Some(self.file.try_clone().ok()?.into_raw_fd())
        }

        pub(super) fn at(&self, offset: u64, length: u64) -> Option<NonNull<u8>> {
            let end = usize::try_from(offset.checked_add(length)?).ok()?;
            let offset = usize::try_from(offset).ok().filter(|_| end <= LENGTH)?;
            NonNull::new(self.start.as_ptr().cast::<u8>().wrapping_add(offset))
        }

        fn lock(&self, command: i32, kind: i32, offset: u64, length: u64) -> Option<libc::flock> {
            let mut lock = libc::flock {
                l_type: i16::try_from(kind).ok()?,
                l_whence: i16::try_from(libc::SEEK_SET).ok()?,
                l_start: i64::try_from(offset).ok()?,
                l_len: i64::try_from(length).ok()?,
                l_pid: 0,
            };
            let file = self.file.as_raw_fd();
            // SAFETY: the commands of `hold` and `is_held` take this structure, which outlives the call.
            (unsafe { libc::fcntl(file, command, &raw mut lock) } == 0).then_some(lock)
        }

        /// Locks the bytes of another process's file if `is_open`, else unlocks them. The other process sees the lock
        /// by [`Self::is_held`].
        pub(in super::super) fn hold(&self, offset: u64, length: u64, is_open: bool) {
            let kind = if is_open { libc::F_RDLCK } else { libc::F_UNLCK };
            let _ = self.lock(libc::F_OFD_SETLK, kind, offset, length);
        }

        pub(in super::super) fn is_held(&self, offset: u64, length: u64) -> bool {
            let found = self.lock(libc::F_OFD_GETLK, libc::F_WRLCK, offset, length);
            found.is_some_and(|found| i32::from(found.l_type) != libc::F_UNLCK)
        }
    }

    impl Drop for Arena {
        fn drop(&mut self) {
            // SAFETY: `mapped` made this mapping, and nothing uses it any more: every user keeps the `Arena` alive.
            let _ = unsafe { libc::munmap(self.start.as_ptr(), LENGTH) };
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod nowhere {
    use std::ptr::NonNull;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    /// Has no values: `new` and `open` return `None`.
    #[derive(Debug)]
    pub(in super::super) struct Arena {
        never: std::convert::Infallible,
        pub(super) taken: AtomicU64,
    }

    impl Arena {
        pub(in super::super) fn new() -> Option<Arc<Self>> {
            None
        }

        pub(in super::super) fn open(_path: &str) -> Option<Arc<Self>> {
            None
        }

        pub(in super::super) fn number(&self) -> u64 {
            match self.never {}
        }

        pub(super) fn descriptor(&self) -> u64 {
            match self.never {}
        }

        pub(in super::super) fn exported(&self) -> Option<i32> {
            match self.never {}
        }

        pub(super) fn at(&self, _offset: u64, _length: u64) -> Option<NonNull<u8>> {
            match self.never {}
        }

        pub(in super::super) fn hold(&self, _offset: u64, _length: u64, _is_open: bool) {
            match self.never {}
        }

        pub(in super::super) fn is_held(&self, _offset: u64, _length: u64) -> bool {
            match self.never {}
        }
    }
}
