//! Records each call of a function in the table.

use alloc::vec::Vec;

use crate::compared::{self, Comparing};
use crate::entries::{ENTRIES, Row};
use crate::graphs;
use crate::launch::{Launch, launch};
use crate::memory::gives;
use crate::numbers::number;
use crate::record::{Kind, LOG, Log, head_of};
use crate::settings::{Mode, Settings};
use crate::{driver, functions, host, sys};

/// The number of words to read of a `CUDA_MEMCPY2D`.
const WORDS_2D: usize = 16;
/// The number of words to read of a `CUDA_MEMCPY3D` or `CUDA_MEMCPY3D_PEER`.
const WORDS_3D: usize = 25;
/// The most copies of a batch to record.
const BATCH: u64 = 4096;

/// What is known of a call before the driver runs it, for the record.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    /// Whether the call ends an active capture.
    ends: bool,
    /// The number of the host function that the call queues; 0 without one.
    pub(crate) function: u64,
    comparing: Option<Comparing>,
}

/// Whether the function asks, without waiting, if some work is done: then its success says so.
fn asks(row: Row) -> bool {
    matches!(
        row,
        Row::cuEventQuery
            | Row::cuStreamQuery
            | Row::cuEventElapsedTime
            | Row::cuEventElapsedTime_v2
    )
}

/// Runs before the driver's function. Records the beginning of a wait or a query, and reads the memory of a
/// launch that is to be compared.
pub(crate) fn before(place: usize, per_thread: bool, arguments: &[u64]) -> Noted {
    let (Some(entry), Some(row)) = (ENTRIES.get(place), Row::at(place)) else {
        return Noted::default();
    };
    let settings = Settings::get();
    host::before(row, arguments);
    let thread = sys::thread(|own| {
        // In the serial mode `run` has counted the operation.
        own.count += u64::from(settings.mode == Mode::Record && entry.kind.is_operation());
        own.number
    });
    let asks = asks(row);
    if entry.kind.waits() || asks {
        let mut words = Vec::with_capacity(8);
        words.extend([thread.unwrap_or(0), head_of(place, per_thread, false, 0)]);
        words.extend_from_slice(arguments);
        let mut log = LOG.lock();
        log.put(Kind::Begin, &words);
        if !asks {
            // The host waits anyway. The written words survive if the process is killed later.
            log.flush();
        }
    }
    let first = driver::handle(arguments.first().copied().unwrap_or(0), per_thread);
    Noted {
        ends: row == Row::cuStreamEndCapture && driver::is_capturing(first),
        function: 0,
        comparing: compared::begin(row, per_thread, arguments),
    }
}

/// The stream of a call that a capture may record; None for other calls.
fn stream(place: usize, row: Row, per_thread: bool, arguments: &[u64]) -> Option<u64> {
    use crate::entries::Kind::{
        Config, Copy, FromHost, Kernel, OnDefault, Record, ToHost, Wait, Work,
    };
    let argument = |at: usize| arguments.get(at).copied().unwrap_or(0);
    let given = match ENTRIES.get(place)?.kind {
        Work(at) | Kernel(at, _) => argument(at),
        Config => launch(row, arguments)?.stream,
        Copy | ToHost | FromHost => argument(3),
        OnDefault => 0,
        Record => argument(1),
        Wait => argument(0),
        _ => match row {
            Row::cuMemAllocAsync => argument(2),
            Row::cuMemAllocFromPoolAsync | Row::cuWaitExternalSemaphoresAsync => argument(3),
            Row::cuStreamWaitValue32_v2
            | Row::cuStreamWaitValue64_v2
            | Row::cuStreamBatchMemOp_v2 => argument(0),
            _ => return None,
        },
    };
    Some(driver::handle(given, per_thread))
}

/// Whether the record has the call's stack: the call is an operation, allocates from a pool, frees memory by
/// `cuMemFree`, or makes a stream.
fn has_stack(place: usize, row: Row) -> bool {
    ENTRIES.get(place).is_some_and(|entry| entry.kind.is_operation())
        || matches!(
            row,
            Row::cuMemAllocAsync
                | Row::cuMemAllocFromPoolAsync
                | Row::cuMemFree_v2
                | Row::cuStreamCreate
                | Row::cuStreamCreateWithPriority
        )
}

/// Runs after the driver's function. Records the call, unless it is a query whose answer is not success.
pub(crate) fn after(place: usize, per_thread: bool, arguments: &[u64], code: u32, noted: Noted) {
    let (Some(entry), Some(row)) = (ENTRIES.get(place), Row::at(place)) else { return };
    if code != 0 && asks(row) {
        return;
    }
    let name = noted.comparing.as_ref().and_then(Comparing::name);
    let bytes = noted.comparing.and_then(|one| one.end(row, arguments, code));
    let (thread, count) = sys::thread(|own| (own.number, own.count)).unwrap_or((0, 0));
    let mut log = LOG.lock();
    let stream = stream(place, row, per_thread, arguments).filter(|_| log.captures > 0);
    let captured = stream.is_some_and(driver::is_capturing);
    let stack = if has_stack(place, row) { log.stack() } else { 0 };
    if captured
        && code == 0
        && stack > 0
        && let Some(node) = stream.and_then(driver::last_node)
    {
        log.nodes.insert(node, stack);
    }
    let is_operation = entry.kind.is_operation();
    let operation = if is_operation { number(thread, count.saturating_sub(1)) + 1 } else { 0 };
    let mut words = Vec::with_capacity(32);
    words.extend([thread, head_of(place, per_thread, captured, code), stack, operation]);
    words.extend_from_slice(arguments);
    if code == 0 {
        points_to(&mut log, &mut words, row, arguments);
        if noted.function > 0 {
            words.push(noted.function);
        }
    }
    if code == 0 {
        host::after(row, arguments, captured, words.get(4 + arguments.len()).copied().unwrap_or(0));
    }
    if noted.ends {
        log.captures = log.captures.saturating_sub(1);
    }
    if let Some(name) = name.filter(|_| code == 0 && !captured) {
        *log.launches.entry(name).or_insert(0) += 1;
    }
    if let Some(mut bytes) = bytes {
        bytes.insert(0, thread);
        log.put(Kind::Bytes, &bytes);
    }
    log.put(Kind::Call, &words);
    drop(log);
    if noted.function > 0 {
        functions::written(noted.function);
    }
}

/// Adds the values that a successful call's arguments point to, and follows the call's effects.
fn points_to(log: &mut Log, words: &mut Vec<u64>, row: Row, arguments: &[u64]) {
    let word = |address: u64, at: usize| {
        // SAFETY: the program gave the driver this address, and the driver has just used that many words there.
        if address == 0 { 0 } else { unsafe { (address as *const u64).add(at).read_unaligned() } }
    };
    let argument = |at: usize| arguments.get(at).copied().unwrap_or(0);
    match row {
        Row::cuLaunchKernel | Row::cuLaunchCooperativeKernel | Row::cuLaunchKernelEx => {
            let Some(Launch { function, arguments, extra, stream }) = launch(row, arguments) else {
                return;
            };
            words.extend([stream, function]);
            let kernel = log.kernel(function);
            // SAFETY: the driver has just accepted these arguments for this kernel.
            unsafe {
                kernel.addresses(&log.memory, &log.descriptors, arguments, extra, |place, word| {
                    words.extend([place, word]);
                });
            }
        }
        Row::cuTensorMapEncodeTiled | Row::cuTensorMapEncodeIm2col => {
            // SAFETY: the driver has just written the descriptor to the first argument's address.
            unsafe { log.descriptors.note(argument(0), argument(3)) };
        }
        // SAFETY: the driver has just changed the descriptor at the first argument's address.
        Row::cuTensorMapReplaceAddress => unsafe { log.descriptors.note(argument(0), argument(1)) },
        Row::cuStreamBeginCapture_v2 | Row::cuStreamBeginCaptureToGraph => log.captures += 1,
        Row::cuModuleUnload | Row::cuLibraryUnload => log.kernels.clear(),
        Row::cuMemcpy2DAsync_v2 | Row::cuMemcpy2D_v2 | Row::cuMemcpy2DUnaligned_v2 => {
            words.extend((0..WORDS_2D).map(|at| word(argument(0), at)));
        }
        Row::cuMemcpy3DAsync_v2 | Row::cuMemcpy3DPeerAsync | Row::cuMemcpy3D_v2 => {
            words.extend((0..WORDS_3D).map(|at| word(argument(0), at)));
        }
        Row::cuMemcpyBatchAsync | Row::cuMemcpyBatchAsync_v2 => {
            for at in 0..usize::try_from(argument(3).min(BATCH)).unwrap_or(0) {
                words.extend([0, 1, 2].map(|one| word(argument(one), at)));
            }
        }
        Row::cuGraphInstantiate_v2
        | Row::cuGraphInstantiateWithFlags
        | Row::cuGraphInstantiateWithParams => {
            words.push(word(argument(0), 0));
            graphs::write(log, word(argument(0), 0), argument(1));
        }
        Row::cuGraphExecUpdate | Row::cuGraphExecUpdate_v2 => {
            graphs::write(log, argument(0), argument(1));
        }
        Row::cuGraphExecKernelNodeSetParams
        | Row::cuGraphExecKernelNodeSetParams_v2
        | Row::cuGraphExecMemcpyNodeSetParams
        | Row::cuGraphExecMemsetNodeSetParams
        | Row::cuGraphExecChildGraphNodeSetParams
        | Row::cuGraphExecEventRecordNodeSetEvent
        | Row::cuGraphExecEventWaitNodeSetEvent
        | Row::cuGraphExecNodeSetParams
        | Row::cuGraphExecDestroy => {
            log.graphs.remove(&argument(0));
        }
        _ => {
            let mut found = [0; 2];
            if gives(row) {
                found[0] = word(argument(0), 0);
                if row == Row::cuMemAllocPitch_v2 {
                    found[1] = word(argument(1), 0);
                }
                words.extend(found);
            }
            log.memory.follow(row, arguments, found);
        }
    }
}
