//! What a second run tells about the first run's launches. Pure.
//!
//! The second run waits for each operation. So its program may find out earlier that work is done, by an event
//! that it asks for or a host function. Then two operations are ordered there that nothing ordered in the first
//! run. So the first run tells the order, and the second run the bytes.
//!
//! A launch is the same in both runs if kernel, number among the kernel's launches, and stack are the same. The
//! memory may lie elsewhere, so bytes are told by their distance from the addresses that the launch was given.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::super::cells::{How, Touch};
use super::Bytes;
use crate::memory::Memory;

/// An address that a launch was given: a number for its place among the launch's parameters or touches, and the
/// address.
pub(crate) type Given = (u64, u64);

/// Bytes that a launch touches.
#[derive(Debug)]
struct Stretch {
    how: How,
    size: u64,
    /// For each address at or below the bytes that the launch was given in the same allocation: its place, and
    /// its distance to the bytes.
    from: Vec<(u64, u64)>,
}

/// What a run showed about one launch.
#[derive(Debug)]
struct Launch {
    stack: u64,
    flags: u64,
    touches: Vec<Stretch>,
}

/// The launches of a run that were looked at, by the hash of the kernel's name and the launch's number.
#[derive(Debug, Default)]
pub(crate) struct Evidence(BTreeMap<(u64, u32), Launch>);

impl Evidence {
    /// Keeps what is known of a launch.
    pub(super) fn keep(
        &mut self,
        launch: (u64, u32),
        stack: u64,
        bytes: &Bytes,
        given: &[Given],
        memory: &Memory,
    ) {
        let mut touches = Vec::new();
        for one in &bytes.touches {
            let Some(range) = memory.find(one.low) else { continue };
            let from = given
                .iter()
                .filter(|word| range.low <= word.1 && word.1 <= one.low)
                .map(|word| (word.0, one.low - word.1))
                .collect();
            touches.push(Stretch { how: one.how, size: one.high - one.low, from });
        }
        self.0.insert(launch, Launch { stack, flags: bytes.flags, touches });
    }

    pub(super) fn has(&self, launch: (u64, u32)) -> bool {
        self.0.contains_key(&launch)
    }

    /// The bytes of a launch, as the same launch in the evidence's run tells them. `given` and `memory` are of
    /// the launch's own run. None if the evidence has no such launch with this stack.
    pub(super) fn find(
        &self,
        launch: (u64, u32),
        stack: u64,
        given: &[Given],
        memory: &Memory,
    ) -> Option<Bytes> {
        let known = self.0.get(&launch).filter(|one| one.stack == stack)?;
        let mut found = Bytes { flags: known.flags, touches: Vec::new() };
        for Stretch { how, size, from } in &known.touches {
            // A word that the kernel does not use may look like an address, perhaps in one run alone. So if two
            // words tell different places for the bytes, they are not known.
            let mut lows = from.iter().filter_map(|(place, distance)| {
                let word = given.iter().find(|one| one.0 == *place)?.1;
                let low = word.saturating_add(*distance);
                Some(memory.find(word).filter(|range| low < range.high()).map(|_| low))
            });
            if let Some(Some(low)) = lows.next()
                && lows.all(|other| other == Some(low))
            {
                found.touches.push(Touch::exact(low, low.saturating_add(*size), *how));
            }
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Place;

    fn memory(low: u64) -> Memory {
        let mut found = Memory::NEW;
        found.take(low, 100, Place::Device);
        found
    }

    /// In one run the memory begins at 1000, and a launch was given `then` and wrote the bytes from 1020 to
    /// 1024. Returns the bytes that this tells about a run whose memory begins at 500 and whose launch was
    /// given `now`.
    fn moved(then: &[Given], now: &[Given], stack: u64) -> Option<Vec<(u64, u64)>> {
        let mut evidence = Evidence::default();
        let bytes = Bytes { flags: 1, touches: alloc::vec![Touch::exact(1020, 1024, How::Write)] };
        evidence.keep((7, 3), 9, &bytes, then, &memory(1000));
        let found = evidence.find((7, 3), stack, now, &memory(500))?;
        Some(found.touches.iter().map(|one| (one.low, one.high)).collect())
    }

    #[test]
    fn bytes_are_as_far_from_the_address_as_in_the_other_run() {
        assert_eq!(moved(&[(1, 1010)], &[(1, 540)], 9), Some(alloc::vec![(550, 554)]));
        assert_eq!(
            moved(&[(1, 1010), (2, 1020)], &[(1, 540), (2, 550)], 9),
            Some(alloc::vec![(550, 554)])
        );
        // An address behind the bytes, and one of other memory, tell nothing.
        assert_eq!(
            moved(&[(1, 1010), (2, 1030), (3, 7)], &[(1, 540)], 9),
            Some(alloc::vec![(550, 554)])
        );
    }

    #[test]
    fn what_two_words_tell_differently_or_nobody_tells_is_not_known() {
        assert_eq!(moved(&[(1, 1010), (2, 1020)], &[(1, 540), (2, 560)], 9), Some(Vec::new()));
        // In this run the other word is no address.
        let one = alloc::vec![(550, 554)];
        assert_eq!(moved(&[(1, 1010), (2, 1020)], &[(1, 540)], 9), Some(one));
        assert_eq!(moved(&[(1, 1010)], &[(2, 540)], 9), Some(Vec::new()));
        // The bytes would lie behind the memory.
        assert_eq!(moved(&[(1, 1010)], &[(1, 595)], 9), Some(Vec::new()));
    }

    #[test]
    fn another_stack_or_number_is_another_launch() {
        assert_eq!(moved(&[(1, 1010)], &[(1, 540)], 8), None);
        assert!(Evidence::default().find((7, 3), 9, &[], &memory(0)).is_none());
    }
}
