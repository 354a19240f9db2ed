//! Copies as queued work with declared accesses.
//!
//! A copy into host memory declares no write, and a copy from pageable host memory declares no read. A race about that
//! host memory is not reported; only the values can show it.

use std::sync::Arc;

use super::call_log::DriverResult;
use super::codes;
use super::entry_points::{Call, CallArguments};
use super::operation::{Action, Operation, Span, Work};
use super::{MachineState, Simulated};
use crate::device::MemoryKind;
use crate::driver::Context;
use crate::driver::copies::{Copies, CopyCall, CopyRoute, Transfer};
use crate::driver::host::HostMemory;
use crate::error::Result;
use crate::stream::Alive;

const fn call_of(call: CopyCall) -> Call {
    match call {
        CopyCall::Linear => Call::MemcpyAsync,
        CopyCall::ToHost => Call::MemcpyDtoHAsync,
        CopyCall::FromHost => Call::MemcpyHtoDAsync,
        CopyCall::Peer => Call::MemcpyPeerAsync,
        CopyCall::Rows => Call::Memcpy2DAsync,
        CopyCall::Planes => Call::Memcpy3DAsync,
        CopyCall::PeerPlanes => Call::Memcpy3DPeerAsync,
    }
}

/// The byte ranges of the rows. Consecutive rows without a gap between them become one range.
fn runs(start: u64, width: u64, rows: impl Iterator<Item = u64>) -> Arc<[Span]> {
    let mut spans: Vec<Span> = Vec::new();
    for row in rows {
        let ptr = start.saturating_add(row);
        match spans.last_mut() {
            Some(last) if last.ptr.saturating_add(last.len) == ptr => {
                last.len = last.len.saturating_add(width);
            }
            _ => spans.push(Span { ptr, len: width }),
        }
    }
    spans.into()
}

fn operation(call: Call, transfer: &Transfer<'_>, is_pageable: bool) -> Operation {
    let Transfer { source, target, block, route } = *transfer;
    let writes_of = || runs(target, block.width, block.offsets().map(|(_, to)| to));
    if let (CopyRoute::FromHost(memory), true) = (route, is_pageable) {
        return from_host(call, memory, transfer, writes_of());
    }
    let reads = runs(source, block.width, block.offsets().map(|(from, _)| from));
    let (writes, host) = match route {
        CopyRoute::Host(memory) => ([].into(), Some(Arc::clone(memory))),
        _ => (writes_of(), None),
    };
    let action = move |cuda: &Simulated| {
        for (from, to) in block.offsets() {
            // Bytes outside the allocation were reported when the copy was queued.
            let Ok(bytes) = cuda.load(source.saturating_add(from), block.width) else { continue };
            let at = target.saturating_add(to);
            if let Some(memory) = &host {
                let offset = usize::try_from(at.saturating_sub(memory.address()));
                let _ = offset.ok().and_then(|offset| memory.write(offset, &bytes));
            } else {
                let _ = cuda.store(at, &bytes);
            }
        }
    };
    let action: Arc<Action> = Arc::new(action);
    Operation { name: call.name().into(), reads, writes, work: Work::Run(action) }
}

/// A copy of one row from pageable host memory. The row is read now, not when the copy runs.
fn from_host(
    call: Call,
    memory: &HostMemory,
    transfer: &Transfer<'_>,
    writes: Arc<[Span]>,
) -> Operation {
    let Transfer { source, target, block, .. } = *transfer;
    let (at, length) =
        (usize::try_from(source.saturating_sub(memory.address())), usize::try_from(block.width));
    let bytes = at.ok().zip(length.ok()).and_then(|(at, length)| memory.read(at, length));
    let action: Arc<Action> = Arc::new(move |cuda: &Simulated| {
        let _ = bytes.as_ref().map(|bytes| cuda.store(target, bytes));
    });
    Operation { name: call.name().into(), reads: [].into(), writes, work: Work::Run(action) }
}

impl MachineState {
    fn check_peers(&mut self, transfer: &Transfer<'_>) -> DriverResult<()> {
        let CopyRoute::Peer { from, to } = transfer.route else { return Ok(()) };
        let mut is_there = |address: u64, context: Context| -> DriverResult<bool> {
            let ordinal = self.contexts.ordinal(context)?;
            Ok(self.memory.pointer(address).is_some_and(|found| found.ordinal == ordinal))
        };
        if is_there(transfer.source, from)? && is_there(transfer.target, to)? {
            return Ok(());
        }
        Err(codes::INVALID_VALUE)
    }
}

impl Copies for Simulated {
    fn allocate(&self, bytes: u64, stream: Alive<'_>) -> Result<u64> {
        let stream = stream.named_here();
        let call_it = |state: &mut MachineState| {
            let id = state.native(stream)?;
            state.refuse_unsafe()?;
            if bytes == 0 {
                return Err(codes::INVALID_VALUE);
            }
            state.refuse_implicit(id)?;
            state.refuse_capturing(id)?;
            state.take_from_pool(id, bytes, "")
        };
        self.relaxed(|| self.ask(Call::MemAllocAsync, CallArguments::stream(stream), call_it))
    }

    fn free_on(&self, pointer: u64, stream: Alive<'_>) -> Result<()> {
        let stream = stream.named_here();
        let call_it = |state: &mut MachineState| {
            let id = state.native(stream)?;
            state.refuse_unsafe()?;
            state.free_in_order(pointer, id)
        };
        self.relaxed(|| self.act(Call::MemFreeAsync, CallArguments::stream(stream), call_it))
    }

    fn allocate_now(&self, bytes: u64) -> Result<u64> {
        let call_it = |state: &mut MachineState| {
            state.refuse_unsafe()?;
            let context = state.contexts.current().ok_or(codes::INVALID_CONTEXT)?;
            state.allocate(context, bytes, MemoryKind::Device, "")
        };
        self.relaxed(|| self.ask(Call::MemAlloc, CallArguments::default(), call_it))
    }

    fn free_now(&self, pointer: u64) -> Result<()> {
        self.relaxed(|| {
            let waited = self.synchronize(Call::MemFree, CallArguments::default(), |state| {
                state.refuse_unsafe()?;
                state.end_of_context()
            })?;
            if waited { self.free(pointer, None) } else { Ok(()) }
        })
    }

    fn copy(&self, transfer: Transfer<'_>, stream: Alive<'_>) -> Result<()> {
        let (call, stream) = (call_of(transfer.call()), stream.named_here());
        // The driver knows pinned host memory, which is read when the copy runs. Pageable memory is read now.
        let is_pageable = self.lock().memory.pointer(transfer.source).is_none();
        let operation = operation(call, &transfer, is_pageable);
        self.act(call, CallArguments::stream(stream), |state| {
            let id = state.native(stream)?;
            state.check_peers(&transfer)?;
            state.launch(id, &operation)
        })
    }

    fn wait_stream(&self, stream: Alive<'_>) -> Result<()> {
        self.relaxed(|| self.synchronize_stream(stream.named_here()))
    }
}
