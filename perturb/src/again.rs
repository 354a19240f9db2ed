//! Looks at a launch: which bytes it changes and, by repeating it, which bytes it reads.

use alloc::vec::Vec;
use core::ffi::c_void;

use crate::driver;
use crate::entries::Row;
use crate::launch::{COMPARED, FAILED, FOREIGN, VARIES};
use crate::memory::Range;
use crate::record::{Kind, LOG};
use crate::settings::PATIENCE;
use crate::sys::{Locked, now};

/// In each part of this many bytes, only the first `STRETCHES` changed stretches are recorded.
const PART: usize = 1 << 11;
/// The most changed stretches to record in each [`PART`].
const STRETCHES: usize = 2;
/// The number of bytes at an address to change before a repeat.
const OTHER: usize = 8;
/// The bits of a byte to flip before a repeat, in two tries: one pattern may make a float larger, the other
/// smaller.
const FLIPPED: [u8; 2] = [0x5a, 0x25];
/// If a launch seems to read something, it is repeated this many times more from unchanged memory, to see
/// whether it varies.
const AGAIN: usize = 2;
/// Device memory for two copies of kept memory: address and size.
static SCRATCH: Locked<(u64, u64)> = Locked::new((0, 0));

/// Windows of memory: address and bytes.
pub(crate) type Windows = Vec<(u64, Vec<u8>)>;

/// A launch to look at.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(crate) stream: u64,
    /// The addresses that the launch was given in device memory that no other process uses.
    pub(crate) own: Vec<u64>,
    /// The device memory to compare.
    pub(crate) windows: Windows,
    /// The page-locked host memory at the launch's addresses. The host may write there at any time, so a change
    /// of it says nothing about the launch; but if there is a change, the launch is not repeated.
    pub(crate) host: Windows,
    /// The memory to restore after a repeat; empty: no repeat.
    pub(crate) kept: Vec<Range>,
    /// Why the launch is not repeated; 0: it is.
    pub(crate) flags: u64,
}

/// Reads the bytes that the windows have now. Returns false if the driver fails.
fn look(windows: &mut Windows) -> bool {
    windows.iter_mut().all(|(low, bytes)| {
        // SAFETY: the window lies in memory that the driver allocated or registered.
        unsafe { driver::cuMemcpyDtoH_v2(bytes.as_mut_ptr(), *low, bytes.len()) == 0 }
    })
}

impl Looked {
    /// Reads the bytes that all windows have now, device and host. Returns false if the driver fails.
    pub(crate) fn look(&mut self) -> bool {
        look(&mut self.windows) && look(&mut self.host)
    }

    /// Decides not to repeat the launch. `why` is a flag of [`launch`](crate::launch).
    pub(crate) fn give_up(&mut self, why: u64) {
        self.flags |= why;
        self.kept.clear();
    }

    /// Whether the host memory has the same bytes as before the launch. Restores bytes that changed. False also
    /// if the driver fails.
    fn is_host_unchanged(&self) -> bool {
        let mut now = self.host.clone();
        if !look(&mut now) {
            return false;
        }
        let mut is_same = true;
        for (one, was) in now.iter().zip(&self.host).filter(|pair| pair.0 != pair.1) {
            is_same = false;
            // SAFETY: the window lies in memory that the driver allocated or registered.
            unsafe { driver::cuMemcpyHtoD_v2(one.0, was.1.as_ptr(), was.1.len()) };
        }
        is_same
    }

    fn size(&self) -> u64 {
        self.kept.iter().map(|one| one.size.next_multiple_of(256)).sum()
    }

    /// Saves the kept memory as copy 0 or 1. If this fails, gives up the repeat.
    pub(crate) fn keep(&mut self, copy: u64) {
        let size = self.size();
        if size == 0 {
            return;
        }
        let mut scratch = SCRATCH.lock();
        if scratch.1 < 2 * size {
            // SAFETY: the scratch memory is this module's, or null; nothing uses it now.
            unsafe {
                if scratch.0 != 0 {
                    driver::cuMemFree_v2(scratch.0);
                }
                *scratch = (0, 0);
                let room = usize::try_from(2 * size).unwrap_or(0);
                if driver::cuMemAlloc_v2(&raw mut scratch.0, room) != 0 {
                    self.give_up(FAILED);
                    return;
                }
            }
            scratch.1 = 2 * size;
        }
        if !Self::copied(&self.kept, scratch.0 + copy * size, true) {
            self.give_up(FAILED);
        }
    }

    /// Restores the kept memory from copy 0 or 1. Returns false if the driver fails.
    fn put_back(&self, copy: u64) -> bool {
        Self::copied(&self.kept, SCRATCH.lock().0 + copy * self.size(), false)
    }

    fn copied(kept: &[Range], mut to: u64, out: bool) -> bool {
        for one in kept {
            let size = usize::try_from(one.size).unwrap_or(0);
            let (to_, from) = if out { (to, one.low) } else { (one.low, to) };
            // SAFETY: the program's memory has this size, and the scratch has room for all of it.
            if unsafe { driver::cuMemcpyDtoD_v2(to_, from, size) } != 0 {
                return false;
            }
            to += one.size.next_multiple_of(256);
        }
        // SAFETY: no capture is active, and no other work runs.
        unsafe { driver::cuCtxSynchronize() == 0 }
    }

    /// Repeats the launch from the memory before it, with some bytes at one address changed if `other` says so.
    /// Returns whether the result differs, other than at that address, from what the program's launch left;
    /// None on failure.
    fn differs(
        &self,
        call: (Row, &[u64]),
        after: &[(u64, Vec<u8>)],
        other: Option<(u64, usize, usize, u8)>,
    ) -> Option<bool> {
        if !self.put_back(0) {
            return None;
        }
        if let Some((address, first, count, flipped)) = other {
            let mut bytes = self.bytes(address)?;
            bytes.iter_mut().skip(first).take(count).for_each(|byte| *byte ^= flipped);
            // SAFETY: the program's memory has these bytes. The driver returns before they are there, and
            // no other stream waits for them. No capture is active, and no other work runs.
            let code = unsafe {
                match driver::cuMemcpyHtoD_v2(address, bytes.as_ptr(), bytes.len()) {
                    0 => driver::cuCtxSynchronize(),
                    other => other,
                }
            };
            if code != 0 {
                return None;
            }
        }
        if !again(call) || !self.is_over() {
            return None;
        }
        let mut now = after.to_vec();
        if !look(&mut now) {
            return None;
        }
        let changed = other.map_or(u64::MAX, |one| one.0);
        let is_other = |low: u64, (at, (one, was)): (usize, (&u8, &u8))| {
            one != was && (low + at as u64).wrapping_sub(changed) >= OTHER as u64
        };
        Some(now.iter().zip(after).any(|(one, was)| {
            one.1.iter().zip(&was.1).enumerate().any(|pair| is_other(one.0, pair))
        }))
    }

    /// The bytes at an address before the launch, at most [`OTHER`]. None if no window has the address.
    fn bytes(&self, address: u64) -> Option<Vec<u8>> {
        let has = |one: &&(u64, Vec<u8>)| address >= one.0 && address - one.0 < one.1.len() as u64;
        let (low, bytes) = self.windows.iter().find(has)?;
        let at = usize::try_from(address - low).ok()?;
        Some(bytes.iter().skip(at).take(OTHER).copied().collect())
    }

    /// Waits until the stream is idle. Returns false if the host's patience ends first, or the driver fails.
    fn is_over(&self) -> bool {
        let begun = now();
        // SAFETY: the program has just used the stream.
        while unsafe { driver::is_busy(self.stream) } {
            if now().saturating_sub(begun) > PATIENCE {
                return false;
            }
        }
        // SAFETY: no capture is active.
        unsafe { driver::cuCtxSynchronize() == 0 }
    }

    /// The findings about the launch: flags, changed stretches and, if it can be repeated, read bytes. None if
    /// its memory cannot be read.
    pub(crate) fn said(&mut self, call: (Row, &[u64]), launch: (u64, u64)) -> Option<Said> {
        let mut after = self.windows.clone();
        let mut host = self.host.clone();
        if !look(&mut after) || !look(&mut host) {
            return None;
        }
        if host != self.host {
            self.give_up(FOREIGN);
        }
        let mut said = Said { flags: COMPARED, changed: Vec::new(), reads: Vec::new() };
        for (one, was) in after.iter().zip(&self.windows) {
            stretches(one.0, &was.1, &one.1, &mut said.changed);
        }
        self.keep(1);
        if !self.kept.is_empty() {
            // Write this first: if the repeat kills the process, the record tells which launch did it.
            let mut log = LOG.lock();
            log.put(Kind::Trying, &[launch.0, launch.1, 1]);
            log.flush();
            drop(log);
            if self.made_again(call, &after, &mut said).is_none() {
                said.flags |= FAILED;
                said.reads.clear();
            }
            if !self.is_host_unchanged() {
                said.flags |= FOREIGN;
                said.reads.clear();
            }
            self.put_back(1);
            LOG.lock().put(Kind::Trying, &[launch.0, launch.1, 0]);
        }
        said.flags |= self.flags;
        Some(said)
    }

    /// Repeats the launch, and adds the bytes that it reads to `said`, or [`VARIES`]. None: it could not be
    /// repeated.
    fn made_again(
        &self,
        call: (Row, &[u64]),
        after: &[(u64, Vec<u8>)],
        said: &mut Said,
    ) -> Option<()> {
        if self.differs(call, after, None)? {
            said.flags |= VARIES;
            return Some(());
        }
        for address in &self.own {
            let end = address.saturating_add(OTHER as u64);
            if said.changed.iter().any(|one| one.0 < end && *address < one.1) {
                continue;
            }
            let reads = |first: usize, count: usize| {
                for flipped in FLIPPED {
                    if self.differs(call, after, Some((*address, first, count, flipped)))? {
                        return Some(true);
                    }
                }
                Some(false)
            };
            if !reads(0, OTHER)? {
                continue;
            }
            for byte in 0..OTHER {
                if reads(byte, 1)? {
                    said.reads.push(address.saturating_add(byte as u64));
                }
            }
        }
        for _ in 0..AGAIN {
            if !said.reads.is_empty() && self.differs(call, after, None)? {
                said.flags |= VARIES;
                said.reads.clear();
            }
        }
        Some(())
    }
}

/// The findings about a launch: flags, changed stretches, and the addresses of read bytes.
pub(crate) struct Said {
    pub(crate) flags: u64,
    pub(crate) changed: Vec<(u64, u64)>,
    pub(crate) reads: Vec<u64>,
}

/// Adds the stretches of changed bytes, each with its end; at most [`STRETCHES`] that begin in the same
/// [`PART`].
fn stretches(low: u64, was: &[u8], now: &[u8], to: &mut Vec<(u64, u64)>) {
    let (mut part, mut count) = (usize::MAX, 0);
    let mut begun: Option<usize> = None;
    let mut end = |begin: usize, end: usize, to: &mut Vec<(u64, u64)>| {
        if begin / PART != part {
            (part, count) = (begin / PART, 0);
        }
        count += 1;
        if count <= STRETCHES {
            to.push((low + begin as u64, low + end as u64));
        }
    };
    for (at, (one, other)) in was.iter().zip(now).enumerate() {
        match (one != other, begun) {
            (true, None) => begun = Some(at),
            (false, Some(begin)) => {
                end(begin, at, to);
                begun = None;
            }
            _ => {}
        }
    }
    if let Some(begin) = begun {
        end(begin, now.len(), to);
    }
}

/// Repeats a launch of a kernel or a graph. Returns false if the driver refuses it, and for any other call.
fn again((row, arguments): (Row, &[u64])) -> bool {
    let argument = |at: usize| arguments.get(at).copied().unwrap_or(0);
    #[allow(clippy::cast_possible_truncation)] // unsigned ints, as the program gave them
    let number = |at: usize| argument(at) as u32;
    // SAFETY: the program made this call with these arguments, and has not returned from it.
    let code = unsafe {
        match row {
            Row::cuGraphLaunch => driver::cuGraphLaunch(argument(0), argument(1)),
            Row::cuLaunchKernelEx => {
                driver::cuLaunchKernelEx(argument(0), argument(1), argument(2), argument(3))
            }
            Row::cuLaunchKernel => driver::cuLaunchKernel(
                argument(0),
                number(1),
                number(2),
                number(3),
                number(4),
                number(5),
                number(6),
                number(7),
                argument(8),
                argument(9) as *const *const c_void,
                argument(10) as *const c_void,
            ),
            _ => driver::NOT_FOUND,
        }
    };
    code == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_are_the_bytes_that_changed() {
        let mut to = Vec::new();
        stretches(100, &[0, 1, 2, 3, 4], &[0, 9, 9, 3, 9], &mut to);
        assert_eq!(to, [(101, 103), (104, 105)]);
        // Every other byte changed: each part has only its first stretches.
        let (was, mut now) = (alloc::vec![0_u8; 2 * PART], alloc::vec![0_u8; 2 * PART]);
        now.iter_mut().step_by(2).for_each(|byte| *byte = 1);
        to.clear();
        stretches(0, &was, &now, &mut to);
        assert_eq!(to, [(0, 1), (2, 3), (2048, 2049), (2050, 2051)]);
    }
}
