//! Reads the words of a record. Pure.

use alloc::string::String;
use alloc::vec::Vec;

use super::super::cells::{How, Touch};
use crate::copies;
use crate::driver::handle;
use crate::entries::{ENTRIES, Kind as Does, Row};
use crate::graphs::{GIVEN, WRITES};
use crate::memory::{Effect, effect, taken};
use crate::record::{AT, Kind, line};

/// The words of a record; None if another build wrote the record.
pub(crate) fn read(bytes: &[u8]) -> Option<Vec<u64>> {
    let (head, body) = bytes.split_at_checked(AT)?;
    if head != line().as_bytes() {
        return None;
    }
    let word = |chunk: &[u8]| chunk.try_into().map_or(0, u64::from_le_bytes);
    Some(body.chunks_exact(8).map(word).collect())
}

/// Passes each entry's kind and words to `call`. Leaves out a last entry that the process did not finish
/// writing.
pub(super) fn each<'a>(words: &'a [u64], mut call: impl FnMut(u64, &'a [u64])) {
    let mut rest = words;
    while let Some((head, behind)) = rest.split_first() {
        let size = usize::try_from(head & ((1 << 48) - 1)).unwrap_or(usize::MAX);
        let Some((body, next)) = behind.split_at_checked(size) else { break };
        call(head >> 48, body);
        rest = next;
    }
}

/// Reads a text at the beginning of `words`. Returns the text and the words after it.
pub(super) fn text(words: &[u64]) -> Option<(String, &[u64])> {
    let (size, rest) = words.split_first()?;
    let size = usize::try_from(*size).ok()?;
    let (chunks, rest) = rest.split_at_checked(size.div_ceil(8))?;
    let bytes: Vec<u8> = chunks.iter().flat_map(|one| one.to_le_bytes()).take(size).collect();
    Some((String::from_utf8_lossy(&bytes).into_owned(), rest))
}

/// A call of the driver in a record, or its beginning.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) row: Row,
    pub(super) place: usize,
    pub(super) thread: u64,
    pub(super) per_thread: bool,
    pub(super) captured: bool,
    pub(super) code: u64,
    pub(super) stack: u64,
    pub(super) operation: u64,
    pub(super) arguments: &'a [u64],
    /// The words after the arguments: the values that they point to.
    pub(super) extra: &'a [u64],
}

impl<'a> Call<'a> {
    /// Reads a call, or with `begins` its beginning, which has neither stack nor operation.
    pub(super) fn read(words: &'a [u64], begins: bool) -> Option<Self> {
        let (head, rest) = words.split_at_checked(2)?;
        let [thread, head] = *head else { return None };
        let (stack, operation, rest) = match rest {
            _ if begins => (0, 0, rest),
            [stack, operation, rest @ ..] => (*stack, *operation, rest),
            _ => return None,
        };
        let place = usize::try_from(head & 0xffff).ok()?;
        let (arguments, extra) = rest.split_at_checked(ENTRIES.get(place)?.arguments)?;
        Some(Self {
            row: Row::at(place)?,
            place,
            thread,
            per_thread: head >> 16 & 1 == 1,
            captured: head >> 17 & 1 == 1,
            code: head >> 32,
            stack,
            operation,
            arguments,
            extra,
        })
    }

    pub(super) fn argument(&self, at: usize) -> u64 {
        self.arguments.get(at).copied().unwrap_or(0)
    }

    pub(super) fn extra(&self, at: usize) -> u64 {
        self.extra.get(at).copied().unwrap_or(0)
    }

    /// The address and the size of memory that the call allocates or names.
    pub(super) fn taken(&self) -> (u64, u64) {
        taken(self.row, self.arguments, [self.extra(0), self.extra(1)])
    }

    /// The handle of the stream on which the call queues work; the default stream if its arguments name none.
    pub(super) fn stream(&self) -> u64 {
        let given = match ENTRIES.get(self.place).map(|one| one.kind) {
            Some(Does::Work(at)) => self.argument(at),
            Some(Does::Kernel(..) | Does::Config) => self.extra(0),
            Some(Does::Copy | Does::ToHost | Does::FromHost) => self.argument(3),
            _ => 0,
        };
        handle(given, self.per_thread)
    }

    /// The byte ranges that the call touches if it is a copy: low, high, and whether the copy writes there.
    pub(super) fn copied(&self) -> Vec<(u64, u64, bool)> {
        let two = |to: u64, from: u64, size: u64| {
            alloc::vec![
                (from, from.saturating_add(size), false),
                (to, to.saturating_add(size), true)
            ]
        };
        match self.row {
            Row::cuMemcpyAsync
            | Row::cuMemcpyHtoDAsync_v2
            | Row::cuMemcpyDtoHAsync_v2
            | Row::cuMemcpyDtoDAsync_v2
            | Row::cuMemcpyDtoD_v2
            | Row::cuMemcpy
            | Row::cuMemcpyDtoH_v2
            | Row::cuMemcpyHtoD_v2 => two(self.argument(0), self.argument(1), self.argument(2)),
            Row::cuMemcpyPeerAsync => two(self.argument(0), self.argument(2), self.argument(4)),
            Row::cuMemcpy2DAsync_v2 | Row::cuMemcpy2D_v2 | Row::cuMemcpy2DUnaligned_v2 => {
                copies::plane_of(self.extra)
            }
            Row::cuMemcpy3DAsync_v2 | Row::cuMemcpy3DPeerAsync | Row::cuMemcpy3D_v2 => {
                copies::box_of(self.extra)
            }
            Row::cuMemcpyBatchAsync | Row::cuMemcpyBatchAsync_v2 => {
                let parts = self.extra.chunks_exact(3);
                parts
                    .filter_map(|one| <[u64; 3]>::try_from(one).ok())
                    .flat_map(|[to, from, size]| two(to, from, size))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// The byte ranges that the call writes if it is a memset: low and high.
    pub(super) fn set(&self) -> Vec<(u64, u64)> {
        let [to, second, third, fourth, fifth] = [0, 1, 2, 3, 4].map(|at| self.argument(at));
        let wide = match self.row {
            Row::cuMemsetD8Async | Row::cuMemsetD8_v2 | Row::cuMemsetD2D8Async => 1,
            Row::cuMemsetD16Async | Row::cuMemsetD16_v2 | Row::cuMemsetD2D16Async => 2,
            Row::cuMemsetD32Async | Row::cuMemsetD32_v2 | Row::cuMemsetD2D32Async => 4,
            _ => return Vec::new(),
        };
        match self.row {
            Row::cuMemsetD2D8Async | Row::cuMemsetD2D16Async | Row::cuMemsetD2D32Async => {
                copies::rows(to, second, fourth.saturating_mul(wide), fifth)
            }
            _ => copies::rows(to, 0, third.saturating_mul(wide), 1),
        }
    }
}

/// A graph's entry in a record: the flags, the events that the graph records, and the touches of all nodes.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) flags: u64,
    pub(super) events: Vec<u64>,
    pub(super) touches: Vec<Touch>,
    /// For each touch, the stack of the call that made its node, or 0.
    pub(super) made: Vec<u64>,
    /// The handles of the graph's kernels.
    pub(super) kernels: Vec<u64>,
}

/// The entry about a launch's bytes: its flags, and the bytes that it changed and read.
#[derive(Debug, Default)]
pub(super) struct Bytes {
    pub(super) flags: u64,
    pub(super) touches: Vec<Touch>,
}

/// The addresses in a record that bound cells: the ends of allocations, copies and sets, and the addresses that
/// kernels were given; in graphs too.
pub(super) fn bounds(words: &[u64]) -> Vec<u64> {
    let mut found = Vec::new();
    each(words, |kind, body| {
        if kind == Kind::Graph as u64 {
            for touch in graph(body).touches {
                found.push(touch.low);
                if touch.how != How::Given {
                    found.push(touch.high);
                }
            }
        }
        if kind != Kind::Call as u64 {
            return;
        }
        let Some(call) = Call::read(body, false).filter(|one| one.code == 0) else { return };
        match call.row {
            Row::cuLaunchKernel | Row::cuLaunchKernelEx | Row::cuLaunchCooperativeKernel => {
                found.extend(call.extra.iter().skip(3).step_by(2));
            }
            row if matches!(effect(row), Some(Effect::Allocates(_) | Effect::Names(_))) => {
                let (low, size) = call.taken();
                found.extend([low, low.saturating_add(size)]);
            }
            _ => {
                found.extend(call.copied().iter().flat_map(|one| [one.0, one.1]));
                found.extend(call.set().iter().flat_map(|one| [one.0, one.1]));
            }
        }
    });
    found
}

/// Reads the words of a graph's entry.
pub(super) fn graph(words: &[u64]) -> Graph {
    let mut found = Graph::default();
    let mut rest = words.iter().copied().skip(1);
    let mut next = || rest.next().unwrap_or(0);
    found.flags = next();
    for _ in 0..next() {
        found.events.push(next());
    }
    for _ in 0..next() {
        let (_, kernel, stack, count) = (next(), next(), next(), next());
        if kernel != 0 {
            found.kernels.push(kernel);
        }
        for _ in 0..count {
            let (how, low, high) = (next(), next(), next());
            found.made.push(stack);
            found.touches.push(match how {
                GIVEN => Touch { low, high: low, how: How::Given, place: high },
                WRITES => Touch::exact(low, high, How::Write),
                _ => Touch::exact(low, high, How::Read),
            });
        }
    }
    found
}

/// Reads the words of an entry about a launch's bytes.
pub(super) fn bytes(words: &[u64]) -> Bytes {
    let mut found = Bytes::default();
    let mut rest = words.iter().copied().skip(1);
    let mut next = || rest.next().unwrap_or(0);
    found.flags = next();
    for _ in 0..next() {
        let (low, high) = (next(), next());
        found.touches.push(Touch::exact(low, high, How::Write));
    }
    for _ in 0..next() {
        let byte = next();
        found.touches.push(Touch::exact(byte, byte.saturating_add(1), How::Read));
    }
    found
}
