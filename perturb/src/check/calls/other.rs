//! Handles calls that are no operations: memory, streams, events, waits. Pure.

use super::super::clocks::Form;
use super::{Call, Reader};
use crate::entries::Row;
use crate::memory::{Effect, Place, effect};

impl Reader<'_> {
    /// Applies an allocation, a free, or another call's effect on memory, to the checker's memory.
    pub(super) fn follow(&mut self, call: &Call<'_>) {
        self.checker.memory.follow(call.row, call.arguments, [call.extra(0), call.extra(1)]);
    }

    fn take_memory(&mut self, call: &Call<'_>) {
        self.follow(call);
        let (low, _) = call.taken();
        if let Some(range) = self.checker.memory.find(low) {
            self.checker.taken(range.low, range.size);
            if range.place == Place::Pool {
                let at = if call.row == Row::cuMemAllocAsync { 2 } else { 3 };
                let stream = self.given(call, call.argument(at));
                let operation = Self::operation(call);
                self.checker.pooled(stream, operation, low, false);
            }
        }
    }

    pub(super) fn other(&mut self, call: &Call<'_>) {
        match effect(call.row) {
            Some(Effect::Allocates(_) | Effect::Names(_)) => return self.take_memory(call),
            Some(Effect::Frees | Effect::Releases) => {
                let operation = Self::operation(call);
                self.checker.freed(call.thread, operation, call.argument(0));
                return self.follow(call);
            }
            Some(Effect::Shares) => return self.follow(call),
            None => {}
        }
        match call.row {
            Row::cuStreamCreate | Row::cuStreamCreateWithPriority => {
                let form =
                    if call.argument(1) & 1 == 0 { Form::Blocking } else { Form::NonBlocking };
                let stream = self.checker.make(call.extra(0), 0, form);
                if let Some(one) = self.checker.streams.get_mut(stream) {
                    one.made = call.stack;
                }
            }
            Row::cuStreamDestroy_v2 => self.checker.destroy(call.argument(0)),
            Row::cuEventCreate => self.checker.event(call.extra(0)),
            Row::cuEventDestroy_v2 => self.checker.forget(call.argument(0)),
            Row::cuEventRecord | Row::cuEventRecordWithFlags => {
                let stream = self.given(call, call.argument(1));
                self.checker.record(call.argument(0), stream);
            }
            Row::cuStreamWaitEvent => {
                let stream = self.given(call, call.argument(0));
                self.checker.wait(stream, call.argument(1));
            }
            Row::cuStreamWaitValue32_v2 | Row::cuStreamWaitValue64_v2 => self.wait_value(call),
            Row::cuStreamBatchMemOp_v2 => {
                let stream = self.given(call, call.argument(0));
                self.checker.unknown(stream);
            }
            Row::cuWaitExternalSemaphoresAsync => {
                let stream = self.given(call, call.argument(3));
                self.checker.unknown(stream);
            }
            Row::cuGraphExecKernelNodeSetParams
            | Row::cuGraphExecKernelNodeSetParams_v2
            | Row::cuGraphExecMemcpyNodeSetParams
            | Row::cuGraphExecMemsetNodeSetParams
            | Row::cuGraphExecChildGraphNodeSetParams => {
                // A node touches other memory now, so the touches of the graph are no longer known. What it
                // waits for and records stays.
                if let Some(graph) = self.graphs.get_mut(&call.argument(0)) {
                    graph.touches.clear();
                }
            }
            Row::cuGraphExecNodeSetParams
            | Row::cuGraphExecEventRecordNodeSetEvent
            | Row::cuGraphExecEventWaitNodeSetEvent
            | Row::cuGraphExecDestroy => {
                self.graphs.remove(&call.argument(0));
            }
            _ => {
                if let Some(what) = self.waits(call) {
                    self.checker.waited(call.thread, what);
                }
            }
        }
    }

    fn wait_value(&mut self, call: &Call<'_>) {
        /// The comparison in the flags' low bits: at least.
        const AT_LEAST: u64 = 0;
        /// The comparison in the flags' low bits: equal.
        const EXACTLY: u64 = 1;
        let stream = self.given(call, call.argument(0));
        let (address, wanted, how) = (call.argument(1), call.argument(2), call.argument(3) & 3);
        let is_short = call.row == Row::cuStreamWaitValue32_v2;
        #[allow(clippy::cast_possible_truncation)] // so wide are the values that are compared
        self.checker.wait_value(stream, address, |value| match how {
            AT_LEAST if is_short => (value as u32).wrapping_sub(wanted as u32).cast_signed() >= 0,
            AT_LEAST => value.wrapping_sub(wanted).cast_signed() >= 0,
            EXACTLY if is_short => value as u32 == wanted as u32,
            EXACTLY => value == wanted,
            _ => false,
        });
    }
}
