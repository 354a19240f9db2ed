//! Finds the bytes that a launch changes and reads.
//!
//! In the serial mode, as a rule no other work runs during an operation. Around some launches, the library
//! compares the memory at the launch's addresses. A byte with another value was written, whatever the kernel's
//! name and its arrays' sizes. Then it repeats the launch from the same memory, but with the first bytes at one
//! address changed. If the result differs elsewhere, the launch has read those bytes. For a kernel whose
//! results vary, a difference proves nothing. So the first repeat is from unchanged memory. At the end the kept
//! memory is as the program's own launch left it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::again::{Looked, Said};
use crate::driver;
use crate::entries::{ENTRIES, Row};
use crate::kernel_arguments::hash;
use crate::launch::{BESIDE, FAILED, FIXED, FOREIGN, LARGE, LOST, Launch, WAITS, launch};
use crate::memory::{Place, Range};
use crate::numbers::decimal;
use crate::record::{LOG, Log};
use crate::settings::{PATIENCE, Settings};
use crate::state::STATE;
use crate::sys::{self, Locked, now};

/// The most bytes to compare from an address on.
const WINDOW: u64 = 1 << 16;
/// The most addresses of a launch to look at.
const ADDRESSES: usize = 64;
/// A launch with more memory to keep than this, in bytes, is not repeated.
const BUDGET: u64 = 256 << 20;

/// The launches to look at, by the hash of the kernel's name and the launch's number. Each may have further
/// places to compare: the allocation's number, and the offset in it.
type Wanted = BTreeMap<(u64, u64), Vec<(u64, u64)>>;

static WANTED: Locked<Option<Wanted>> = Locked::new(None);
/// The number, plus 1, of the thread whose turn it is to queue work; 0: none. Other threads wait for its turn
/// to end, as long as the host has patience.
static TURN: AtomicU64 = AtomicU64::new(0);
/// How often a thread's patience ended while it waited for its turn.
static DISTURBED: AtomicU64 = AtomicU64::new(0);
/// Reads the file of launches: each line has a launch, and may have a place.
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

/// An operation in a run that compares bytes, while it is queued.
#[derive(Debug)]
pub(crate) struct Comparing {
    has_turn: bool,
    disturbed: u64,
    /// The hash of the launch's name, and its number among launches of this name. None: the operation is no
    /// launch.
    launch: Option<(u64, u64)>,
    looked: Option<Looked>,
    /// The flags that say why a launch on the command's list is not compared; 0: it is, or is not on the list.
    skipped: u64,
}

/// Runs before an operation is queued, in a run that compares bytes. Takes the thread's turn, and, if the
/// operation is a launch on the command's list, reads its memory. None for other calls and other runs.
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
    let is_beside = !has_turn || log.captures > 0;
    let mut looked = asked.as_ref().and_then(|one| {
        let mut wanted = WANTED.lock();
        let wanted = wanted.get_or_insert_with(|| read(&sys::contents(file)));
        let others = wanted.get(&launch?)?;
        Some(one.looked(&log, driver::handle(one.stream, per_thread), others))
    });
    drop(log);
    let mut skipped = 0;
    if looked.is_some() {
        let is_idle = STATE.lock().last.is_none();
        skipped |= if is_beside || !is_idle { BESIDE } else { 0 };
        skipped |= if asked.is_some_and(|one| one.waits) { WAITS } else { 0 };
    }
    looked = looked.filter(|_| skipped == 0);
    if let Some(one) = &mut looked {
        if !one.look() {
            one.give_up(FAILED);
        }
        one.keep(0);
    }
    Some(Comparing { has_turn, disturbed, launch, looked, skipped })
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

/// A launch of a kernel or a graph, as the program requested it.
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
                name: hash(b"cuGraphLaunch"),
                stream: *arguments.get(1)?,
                addresses: graph.map(|one| one.addresses.clone()).unwrap_or_default(),
                waits: false,
                again: graph.is_some_and(|one| one.plain),
            });
        }
        let Launch { function, arguments: values, extra, stream } = launch(row, arguments)?;
        let kernel = log.kernel(function);
        let mut addresses = Vec::new();
        // SAFETY: the program is about to launch the kernel with these arguments.
        unsafe {
            kernel.addresses(&log.memory, &log.descriptors, values, extra, |_, word| {
                addresses.push(word);
            });
        }
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
        let of = |low: u64, range: Range| (low, range.high().min(low.saturating_add(WINDOW)));
        let mut given = self.addresses.clone();
        given.sort_unstable();
        given.dedup();
        given.retain(|one| find(*one).is_some());
        given.truncate(ADDRESSES);
        let all: Vec<Range> = given.iter().filter_map(|one| find(*one)).collect();
        let own: Vec<u64> = given
            .iter()
            .copied()
            .filter(|one| find(*one).is_some_and(|range| is_own(&range)))
            .collect();
        // A word that a kernel does not use may look like any address: structures have gaps, which nobody
        // fills.
        let is_host = |one: &Range| one.place == Place::Host && !one.shared;
        let host = given.iter().filter_map(|low| Some(of(*low, find(*low).filter(is_host)?)));
        let others = others.iter().filter_map(|(memory, offset)| {
            log.memory.by_ordinal(*memory).filter(is_own).map(|one| one.low.saturating_add(*offset))
        });
        let windows: Vec<(u64, u64)> =
            own.iter().copied().chain(others).filter_map(|low| Some(of(low, find(low)?))).collect();
        let mut kept: Vec<Range> = windows.iter().filter_map(|one| find(one.0)).collect();
        kept.sort_unstable_by_key(|one| one.low);
        kept.dedup();
        let size: u64 = kept.iter().map(|one| one.size).sum();
        let mut looked = Looked {
            stream,
            own,
            windows: room(windows),
            host: room(host.collect()),
            kept,
            flags: 0,
        };
        if !self.again {
            looked.give_up(FIXED);
        }
        if !all.iter().all(|one| is_own(one) || is_host(one)) {
            looked.give_up(FOREIGN);
        }
        if size > BUDGET {
            looked.give_up(LARGE);
        }
        looked
    }
}

/// Makes windows for these ranges, with zeros as their bytes. Joins ranges that overlap or touch.
fn room(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, Vec<u8>)> {
    ranges.sort_unstable();
    joined(&ranges)
        .into_iter()
        .map(|(low, high)| (low, alloc::vec![0; usize::try_from(high - low).unwrap_or(0)]))
        .collect()
}

/// Joins sorted ranges that overlap or touch.
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

/// Whether a launch can be repeated: it is not cooperative, and has no attribute by which other work or the
/// host may depend on it.
fn is_plain(row: Row, arguments: &[u64]) -> bool {
    // The attributes that do no harm: ignored; access policy; synchronization policy; clusters (three); start
    // before the end of the kernel before; priority; memory synchronization domains (two); shared memory
    // carveout.
    const HARMLESS: [u32; 11] = [0, 1, 3, 4, 5, 6, 8, 9, 10, 11, 14];
    const WORDS: usize = 9;
    if row != Row::cuLaunchKernelEx {
        return row == Row::cuLaunchKernel;
    }
    let config = arguments.first().copied().unwrap_or(0) as *const u64;
    if config.is_null() {
        return false;
    }
    // SAFETY: in a `CUlaunchConfig` the stream is followed by the address of the attributes, nine words each,
    // and their number.
    unsafe {
        let attributes = config.add(5).read() as *const u64;
        let count = config.add(6).cast::<u32>().read();
        (0..count as usize).all(|at| {
            let kind = attributes.add(at * WORDS).cast::<u32>().read();
            HARMLESS.contains(&kind)
        })
    }
}

impl Comparing {
    /// Runs after the driver's function and the serial mode's wait. Compares the memory of a launch on the
    /// command's list, repeats the launch, and ends the thread's turn. Returns the findings as words for the
    /// record; None if there are none.
    pub(crate) fn end(mut self, row: Row, arguments: &[u64], code: u32) -> Option<Vec<u64>> {
        // During a capture the host does not wait, and nothing is compared.
        let (is_over, is_beside) = {
            let state = STATE.lock();
            (state.last.is_none(), state.captures > 0)
        };
        let is_lost = !is_over && !is_beside;
        let mut said = Said { flags: self.skipped, changed: Vec::new(), reads: Vec::new() };
        said.flags |= if is_lost { LOST } else { 0 };
        let is_alone = is_over && !is_beside && DISTURBED.load(Relaxed) == self.disturbed;
        if let (Some(looked), Some(launch)) = (&mut self.looked, self.launch)
            && code == 0
            && !is_lost
        {
            let found = if is_alone { looked.said((row, arguments), launch) } else { None };
            match found.filter(|_| DISTURBED.load(Relaxed) == self.disturbed) {
                Some(found) => said = found,
                None => said.flags |= if is_alone { FAILED } else { BESIDE },
            }
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
    fn windows_that_touch_are_one() {
        assert_eq!(joined(&[(0, 4), (2, 6), (6, 7), (9, 10)]), [(0, 7), (9, 10)]);
    }
}
