//! Which bytes a launch changes, and which it reads.
//!
//! In the serial mode nothing else runs beside an operation. Around some launches the memory at the addresses that
//! they were given is compared: what is another value was written, whatever the kernel is called and however large its
//! arrays are. Then the launch is made again from the same bytes, with the first ones at an address changed. If it
//! leaves something else elsewhere, it has read them. That says nothing of a kernel that leaves something else when it
//! is made again as it was, so this is tried first. All is put back as the program's own launch left it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::driver;
use crate::entries::{ENTRIES, Row};
use crate::launch::decimal;
use crate::memory::{Place, Range};
use crate::record::{self, Kind, LOG, Launch, Log};
use crate::run::{PATIENCE, STATE};
use crate::settings::Settings;
use crate::sys::{self, Locked, now};

/// So many bytes from an address on are compared.
const WINDOW: u64 = 1 << 16;
/// Of so many bytes of it so many stretches that changed are written down.
const PART: usize = 1 << 11;
const STRETCHES: usize = 2;
/// So many addresses of a launch are looked at.
const ADDRESSES: usize = 64;
/// So many bytes at an address are others when a launch is made again.
const OTHER: usize = 8;
/// What is done to them: a float that the one makes larger, the other makes smaller.
const FLIPPED: [u8; 2] = [0x5a, 0x25];
/// So often a launch that seemed to read something is made again as it was.
const AGAIN: usize = 2;
/// A launch whose memory is more than that is not made again.
const BUDGET: u64 = 256 << 20;

/// What is said of a launch, as bits.
pub(crate) const COMPARED: u64 = 1;
/// It left something else when it was made again as it was.
pub(crate) const VARIES: u64 = 2;
/// The host's patience has ended: it waits for other work, perhaps.
pub(crate) const LOST: u64 = 4;

/// The launches to look at: by the hash of the kernel's name and which one it is of that, the memory and the offset of
/// what else is compared.
type Wanted = BTreeMap<(u64, u64), Vec<(u64, u64)>>;

static WANTED: Locked<Option<Wanted>> = Locked::new(None);
/// The thread that queues work now; 0 is none. The others wait for it, as long as the host has patience.
static TURN: AtomicU64 = AtomicU64::new(0);
/// How often one did not wait any longer.
static DISTURBED: AtomicU64 = AtomicU64::new(0);
/// Memory of the device for what is put back: where, and how much.
static SCRATCH: Locked<(u64, u64)> = Locked::new((0, 0));

/// Reads the file: a launch and a place in a line.
fn read(text: &[u8]) -> Wanted {
    let mut found = Wanted::new();
    for line in text.split(|byte| *byte == b'\n') {
        let mut words = line.split(|byte| *byte == b' ').map(decimal);
        let mut next = || words.next().flatten();
        if let (Some(name), Some(place)) = (next(), next()) {
            let others = found.entry((name, place)).or_default();
            if let (Some(memory), Some(offset)) = (next(), next()) {
                others.push((memory, offset));
            }
        }
    }
    found
}

/// An operation that is being queued in a run that compares.
#[derive(Debug)]
pub(crate) struct Comparing {
    has_turn: bool,
    disturbed: u64,
    /// The name and the number of a launch.
    launch: Option<(u64, u64)>,
    looked: Option<Looked>,
}

/// A launch that is looked at.
#[derive(Debug)]
struct Looked {
    stream: u64,
    /// The addresses that it was given.
    own: Vec<u64>,
    /// What is there, from where on.
    windows: Vec<(u64, Vec<u8>)>,
    /// The memory that is put back if it is made again; empty if it is not.
    kept: Vec<Range>,
}

/// Work is about to be queued.
pub(crate) fn begin(row: Row, per_thread: bool, arguments: &[u64]) -> Option<Comparing> {
    let file = Settings::get().compared?;
    let is_operation = ENTRIES.get(row as usize)?.kind.is_operation();
    if !is_operation {
        return None;
    }
    let has_turn = take_turn();
    let mut log = LOG.lock();
    let asked = Asked::of(&mut log, row, arguments);
    let launch = asked.as_ref().map(|one| (one.name, log.times(one.name)));
    let disturbed = DISTURBED.load(Relaxed);
    let looked = asked.filter(|_| has_turn && log.captures == 0).and_then(|one| {
        let mut wanted = WANTED.lock();
        let wanted = wanted.get_or_insert_with(|| read(&sys::contents(file)));
        let others = wanted.get(&launch?)?;
        let looked = one.looked(&log, driver::handle(one.stream, per_thread), others);
        (!one.waits).then_some(looked)
    });
    drop(log);
    let is_idle = STATE.lock().last.is_none();
    let mut looked = looked.filter(|_| is_idle);
    if let Some(one) = &mut looked {
        one.look();
        one.keep(0);
    }
    Some(Comparing { has_turn, disturbed, launch, looked })
}

fn take_turn() -> bool {
    let Some(own) = sys::thread(|own| own.number + 1) else { return false };
    let begun = now();
    while TURN.compare_exchange(0, own, Relaxed, Relaxed).is_err() {
        if TURN.load(Relaxed) == own {
            return false;
        }
        if now().saturating_sub(begun) > PATIENCE {
            DISTURBED.fetch_add(1, Relaxed);
            return false;
        }
        sys::rest();
    }
    true
}

/// A launch, as the program asks for it.
struct Asked {
    name: u64,
    stream: u64,
    addresses: Vec<u64>,
    waits: bool,
    again: bool,
}

impl Asked {
    fn of(log: &mut Log, row: Row, arguments: &[u64]) -> Option<Self> {
        if row == Row::cuGraphLaunch {
            let graph = log.graphs.get(arguments.first()?);
            return Some(Self {
                name: record::hash(b"cuGraphLaunch"),
                stream: *arguments.get(1)?,
                addresses: graph.map(|one| one.addresses.clone()).unwrap_or_default(),
                waits: false,
                again: graph.is_some_and(|one| one.plain),
            });
        }
        let Launch { function, arguments: values, extra, stream } = record::launch(row, arguments)?;
        let kernel = log.kernel(function);
        let mut addresses = Vec::new();
        // SAFETY: the program is about to launch the kernel with them.
        unsafe { log.addresses(&kernel, values, extra, |_, word| addresses.push(word)) };
        Some(Self {
            name: kernel.name,
            stream,
            addresses,
            waits: kernel.waits,
            again: is_plain(row, arguments),
        })
    }

    fn looked(&self, log: &Log, stream: u64, others: &[(u64, u64)]) -> Looked {
        let is_own = |one: &Range| matches!(one.place, Place::Device | Place::Pool) && !one.shared;
        let find = |address: u64| log.memory.find(address);
        let mut own: Vec<u64> =
            self.addresses.iter().copied().filter(|one| find(*one).is_some()).collect();
        own.sort_unstable();
        own.dedup();
        own.truncate(ADDRESSES);
        let all: Vec<Range> = own.iter().filter_map(|one| find(*one)).collect();
        let again = self.again && all.iter().all(is_own);
        own.retain(|one| find(*one).as_ref().is_some_and(is_own));
        let others = others.iter().filter_map(|(memory, offset)| {
            log.memory.by_ordinal(*memory).filter(is_own).map(|one| one.low.saturating_add(*offset))
        });
        let mut windows: Vec<(u64, u64)> = own
            .iter()
            .copied()
            .chain(others)
            .filter_map(|low| Some((low, find(low)?.high().min(low.saturating_add(WINDOW)))))
            .collect();
        let mut kept: Vec<Range> = windows.iter().filter_map(|one| find(one.0)).collect();
        kept.sort_unstable_by_key(|one| one.low);
        kept.dedup();
        let size: u64 = kept.iter().map(|one| one.size).sum();
        if !again || size > BUDGET {
            kept.clear();
        }
        windows.sort_unstable();
        let windows = joined(&windows)
            .into_iter()
            .map(|(low, high)| (low, alloc::vec![0; usize::try_from(high - low).unwrap_or(0)]))
            .collect();
        Looked { stream, own, windows, kept }
    }
}

/// Ranges in order of which none overlaps the next one.
fn joined(ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    for (low, high) in ranges {
        match found.last_mut() {
            Some(last) if *low <= last.1 => last.1 = last.1.max(*high),
            _ => found.push((*low, *high)),
        }
    }
    found
}

/// Whether a launch has no other attributes than ones that do not change when it runs, and beside what.
fn is_plain(row: Row, arguments: &[u64]) -> bool {
    // Nothing; policy of accesses; priority; domains of synchronization; shared memory.
    const HARMLESS: [u32; 6] = [0, 1, 8, 9, 10, 14];
    const WORDS: usize = 9;
    if row != Row::cuLaunchKernelEx {
        return row == Row::cuLaunchKernel;
    }
    let config = arguments.first().copied().unwrap_or(0) as *const u64;
    if config.is_null() {
        return false;
    }
    // SAFETY: a `CUlaunchConfig`: behind the stream are the attributes, of nine words each, and how many there are.
    unsafe {
        let attributes = config.add(5).read() as *const u64;
        let count = config.add(6).cast::<u32>().read();
        (0..count as usize).all(|at| {
            let kind = attributes.add(at * WORDS).cast::<u32>().read();
            HARMLESS.contains(&kind)
        })
    }
}

impl Looked {
    /// Takes what is in the windows now. False: the driver did not give it.
    fn look(&mut self) -> bool {
        self.windows.iter_mut().all(|(low, bytes)| {
            // SAFETY: so many bytes are there, and the memory is the device's.
            unsafe { driver::cuMemcpyDtoH_v2(bytes.as_mut_ptr(), *low, bytes.len()) == 0 }
        })
    }

    fn size(&self) -> u64 {
        self.kept.iter().map(|one| one.size.next_multiple_of(256)).sum()
    }

    /// Keeps the memory in one of the two copies of it.
    fn keep(&mut self, copy: u64) {
        let size = self.size();
        if size == 0 {
            return;
        }
        let mut scratch = SCRATCH.lock();
        if scratch.1 < 2 * size {
            // SAFETY: it is this module's, or none; nothing uses it now.
            unsafe {
                if scratch.0 != 0 {
                    driver::cuMemFree_v2(scratch.0);
                }
                *scratch = (0, 0);
                let room = usize::try_from(2 * size).unwrap_or(0);
                if driver::cuMemAlloc_v2(&raw mut scratch.0, room) != 0 {
                    self.kept.clear();
                    return;
                }
            }
            scratch.1 = 2 * size;
        }
        if !Self::copied(&self.kept, scratch.0 + copy * size, true) {
            self.kept.clear();
        }
    }

    /// Puts the memory back as one of the two copies has it.
    fn put_back(&self, copy: u64) -> bool {
        Self::copied(&self.kept, SCRATCH.lock().0 + copy * self.size(), false)
    }

    fn copied(kept: &[Range], mut to: u64, out: bool) -> bool {
        for one in kept {
            let size = usize::try_from(one.size).unwrap_or(0);
            let (to_, from) = if out { (to, one.low) } else { (one.low, to) };
            // SAFETY: the program's memory is so large, and the scratch has room for all of it.
            if unsafe { driver::cuMemcpyDtoD_v2(to_, from, size) } != 0 {
                return false;
            }
            to += one.size.next_multiple_of(256);
        }
        // SAFETY: no capture is going on, and nothing else runs.
        unsafe { driver::cuCtxSynchronize() == 0 }
    }

    /// Makes the launch again from what was there before it, with some bytes at an address others. Some: whether it
    /// leaves something else than it did, elsewhere.
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
            // SAFETY: so many bytes of the program's are there.
            if unsafe { driver::cuMemcpyHtoD_v2(address, bytes.as_ptr(), bytes.len()) } != 0 {
                return None;
            }
        }
        if !again(call) || !self.is_over() {
            return None;
        }
        let mut now = Self {
            stream: self.stream,
            own: Vec::new(),
            windows: after.to_vec(),
            kept: Vec::new(),
        };
        if !now.look() {
            return None;
        }
        let changed = other.map_or(u64::MAX, |one| one.0);
        let is_other = |low: u64, (at, (one, was)): (usize, (&u8, &u8))| {
            one != was && (low + at as u64).wrapping_sub(changed) >= OTHER as u64
        };
        Some(now.windows.iter().zip(after).any(|(one, was)| {
            one.1.iter().zip(&was.1).enumerate().any(|pair| is_other(one.0, pair))
        }))
    }

    /// The first bytes at an address, as they were before the launch.
    fn bytes(&self, address: u64) -> Option<Vec<u8>> {
        let has = |one: &&(u64, Vec<u8>)| address >= one.0 && address - one.0 < one.1.len() as u64;
        let (low, bytes) = self.windows.iter().find(has)?;
        let at = usize::try_from(address - low).ok()?;
        Some(bytes.iter().skip(at).take(OTHER).copied().collect())
    }

    /// Waits until the stream is done, as long as the host has patience.
    fn is_over(&self) -> bool {
        let begun = now();
        // SAFETY: the program has just used the stream.
        while unsafe { driver::is_busy(self.stream) } {
            if now().saturating_sub(begun) > PATIENCE {
                return false;
            }
        }
        // SAFETY: no capture is going on.
        unsafe { driver::cuCtxSynchronize() == 0 }
    }

    /// What is said of the launch: the flags, what changed, and which bytes it reads.
    fn said(&mut self, call: (Row, &[u64]), launch: (u64, u64)) -> Option<Said> {
        let before = core::mem::take(&mut self.windows);
        self.windows = before.iter().map(|one| (one.0, alloc::vec![0; one.1.len()])).collect();
        if !self.look() {
            return None;
        }
        let after = core::mem::replace(&mut self.windows, before);
        let mut said = Said { flags: COMPARED, changed: Vec::new(), reads: Vec::new() };
        for (one, was) in after.iter().zip(&self.windows) {
            stretches(one.0, &was.1, &one.1, &mut said.changed);
        }
        self.keep(1);
        if !self.kept.is_empty() {
            // If this ends the process, what was found so far is in the file, and what ended it.
            let mut log = LOG.lock();
            log.put(Kind::Trying, &[launch.0, launch.1, 1]);
            log.flush();
            drop(log);
            if self.made_again(call, &after, &mut said).is_none() {
                said.reads.clear();
            }
            self.put_back(1);
            LOG.lock().put(Kind::Trying, &[launch.0, launch.1, 0]);
        }
        Some(said)
    }

    /// Looks at what it reads. None: it could not be made again.
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

/// What was found of a launch.
struct Said {
    flags: u64,
    changed: Vec<(u64, u64)>,
    reads: Vec<u64>,
}

/// Adds the stretches of bytes that are others: all, or some of each part where there are many.
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

/// Makes a call once more.
fn again((row, arguments): (Row, &[u64])) -> bool {
    let argument = |at: usize| arguments.get(at).copied().unwrap_or(0);
    #[allow(clippy::cast_possible_truncation)] // unsigned ints, as the program gave them
    let number = |at: usize| argument(at) as u32;
    // SAFETY: the call is the program's, with what it gave; it is not back from it.
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

impl Comparing {
    /// The work was queued, and is over if the host had the patience. Returns what is written down of it.
    pub(crate) fn end(mut self, row: Row, arguments: &[u64], code: u32) -> Option<Vec<u64>> {
        let is_lost = STATE.lock().last.is_some();
        let mut said =
            Said { flags: if is_lost { LOST } else { 0 }, changed: Vec::new(), reads: Vec::new() };
        let is_alone = !is_lost && DISTURBED.load(Relaxed) == self.disturbed;
        if let (Some(looked), Some(launch)) = (&mut self.looked, self.launch)
            && code == 0
            && is_alone
            && let Some(found) = looked.said((row, arguments), launch)
            && DISTURBED.load(Relaxed) == self.disturbed
        {
            said = found;
        }
        if self.has_turn {
            TURN.store(0, Relaxed);
        }
        if said.flags == 0 {
            return None;
        }
        let mut words = alloc::vec![said.flags, said.changed.len() as u64];
        words.extend(said.changed.iter().flat_map(|one| [one.0, one.1]));
        words.push(said.reads.len() as u64);
        words.extend_from_slice(&said.reads);
        Some(words)
    }

    pub(crate) fn name(&self) -> Option<u64> {
        self.launch.map(|one| one.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_launch_and_what_else_is_compared() {
        let found = read(b"7 0\n7 0 3 64\n9 2 1 0\nx\n");
        assert_eq!(found.len(), 2);
        assert_eq!(found.get(&(7, 0)), Some(&alloc::vec![(3, 64)]));
    }

    #[test]
    fn stretches_are_the_bytes_that_changed() {
        let mut to = Vec::new();
        stretches(100, &[0, 1, 2, 3, 4], &[0, 9, 9, 3, 9], &mut to);
        assert_eq!(to, [(101, 103), (104, 105)]);
        // Every other byte: some of each part, and each of them changed.
        let (was, mut now) = (alloc::vec![0_u8; 2 * PART], alloc::vec![0_u8; 2 * PART]);
        now.iter_mut().step_by(2).for_each(|byte| *byte = 1);
        to.clear();
        stretches(0, &was, &now, &mut to);
        assert_eq!(to, [(0, 1), (2, 3), (2048, 2049), (2050, 2051)]);
    }

    #[test]
    fn windows_that_touch_are_one() {
        assert_eq!(joined(&[(0, 4), (2, 6), (6, 7), (9, 10)]), [(0, 7), (9, 10)]);
    }
}
