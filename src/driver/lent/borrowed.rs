//! The simulated device of another library, as the library that borrows it sees it.
//!
//! Allocations, frees and waits are lent. Copies are not: an extension copies by queued work of its own.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::sync::Arc;

use super::{LentTable, LentWork, Op, Raw, VERSION};
use crate::capture::CaptureStatus;
use crate::device::MemoryKind;
use crate::driver::copies::{Copies, Transfer};
use crate::driver::fork::Process;
use crate::driver::ipc::Ipc;
use crate::driver::simulated::{Machine, Span, Task};
use crate::driver::{Context, Driver, Event, PointerAttributes, codes};
use crate::error::{Result, caught};
use crate::stream::Alive;

#[derive(Debug)]
pub struct BorrowedDevice {
    table: &'static LentTable,
    machine: Raw,
    process: Process,
}

// SAFETY: the machine is a `Simulated` of some build, which is `Send` and `Sync`. The table's functions accept it
// from any thread.
unsafe impl Send for BorrowedDevice {}
// SAFETY: as above.
unsafe impl Sync for BorrowedDevice {}

impl Drop for BorrowedDevice {
    fn drop(&mut self) {
        // SAFETY: only values from `current` are dropped. `current` took a reference for each, which only this drop
        // releases.
        unsafe { (self.table.release)(self.machine) }
    }
}

impl BorrowedDevice {
    /// The simulated device that is installed in the table's library, if any. `None` for a table of another version.
    ///
    /// # Safety
    ///
    /// `table` begins with a version number and is the [`LentTable`] of that version. Its library stays loaded.
    pub unsafe fn current(table: *const LentTable) -> Option<Self> {
        // SAFETY: a table of any version begins with its number. Its other fields are not read yet.
        if unsafe { table.cast::<u32>().read() } != VERSION {
            return None;
        }
        // SAFETY: the version was checked, so the table has this structure. It is never freed.
        let table = unsafe { &*table };
        // SAFETY: the version was checked, so the table has this function.
        let machine = unsafe { (table.current)() };
        (!machine.is_null()).then(|| Self { table, machine, process: Process::current() })
    }

    pub const fn process(&self) -> Process {
        self.process
    }

    pub fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self.machine, other.machine)
    }

    fn call(&self, op: Op, arguments: [u64; 4]) -> Result<[u64; 4]> {
        let mut answers = [0; 4];
        // SAFETY: the machine exists: `self` holds a reference to it, or it is running the caller's work. Both lists
        // have four numbers.
        let code = unsafe {
            (self.table.call)(self.machine, op as u32, &raw const arguments, &raw mut answers)
        };
        checked(op.name(), code).map(|()| answers)
    }

    fn one(&self, op: Op, argument: u64) -> Result<u64> {
        self.call(op, [argument, 0, 0, 0]).map(|[answer, ..]| answer)
    }
}

fn checked(call: &'static str, code: u32) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(codes::failed(call, code)) }
}

fn context(number: u64) -> Option<Context> {
    usize::try_from(number).ok().and_then(NonZeroUsize::new).map(Context)
}

fn some(op: Op, number: u64) -> Result<Context> {
    context(number).ok_or_else(|| codes::failed(op.name(), codes::INVALID_CONTEXT))
}

fn number(context: Context) -> u64 {
    context.0.get() as u64
}

fn ordinal(number: u64) -> i32 {
    i32::try_from(number.cast_signed()).unwrap_or(-1)
}

fn signed(ordinal: i32) -> u64 {
    i64::from(ordinal).cast_unsigned()
}

fn event(event: Event, last: u64) -> [u64; 4] {
    [event.handle as u64, number(event.context), event.life, last]
}

impl Driver for BorrowedDevice {
    fn pointer(&self, pointer: u64) -> Result<Option<PointerAttributes>> {
        let [known, at, kind, owner] = self.call(Op::Pointer, [pointer, 0, 0, 0])?;
        let kind = match kind {
            3 => MemoryKind::Host,
            13 => MemoryKind::Managed,
            _ => MemoryKind::Device,
        };
        let found = PointerAttributes { ordinal: ordinal(at), kind, context: context(owner) };
        Ok((known != 0).then_some(found))
    }

    fn primary_context(&self, ordinal: i32) -> Result<Context> {
        some(Op::Primary, self.one(Op::Primary, signed(ordinal))?)
    }

    fn current_context(&self) -> Result<Option<Context>> {
        self.one(Op::Current, 0).map(context)
    }

    fn current_ordinal(&self) -> Result<i32> {
        self.one(Op::Ordinal, 0).map(ordinal)
    }

    fn push_context(&self, context: Context) -> Result<()> {
        self.one(Op::Push, number(context)).map(drop)
    }

    fn pop_context(&self) -> Result<()> {
        self.one(Op::Pop, 0).map(drop)
    }

    fn life(&self, context: Context) -> Result<u64> {
        self.one(Op::Life, number(context))
    }

    fn take_event(&self, context: Context) -> Result<Event> {
        let [handle, life, ..] = self.call(Op::TakeEvent, [number(context), 0, 0, 0])?;
        let handle = usize::try_from(handle)
            .map_err(|_| codes::failed(Op::TakeEvent.name(), codes::INVALID_VALUE))?;
        Ok(Event { handle, context, life })
    }

    fn spare_event(&self, spare: Event) {
        let _ = self.call(Op::SpareEvent, event(spare, 0));
    }

    fn is_reached(&self, asked: Event) -> Result<bool> {
        self.call(Op::IsReached, event(asked, 0)).map(|[reached, ..]| reached != 0)
    }

    fn wait_until(&self, awaited: Event) -> Result<()> {
        self.call(Op::WaitUntil, event(awaited, 0)).map(drop)
    }

    fn capture_status(&self, stream: Alive<'_>) -> Result<CaptureStatus> {
        let [status, capture, ..] = self.call(Op::CaptureStatus, [stream.native(), 0, 0, 0])?;
        Ok(match status {
            0 => CaptureStatus::Outside,
            1 => CaptureStatus::Inside(capture),
            _ => CaptureStatus::Beside,
        })
    }

    fn is_blocking(&self, stream: Alive<'_>) -> Result<bool> {
        self.one(Op::IsBlocking, stream.native()).map(|blocking| blocking != 0)
    }

    fn stream_context(&self, stream: Alive<'_>) -> Result<Context> {
        some(Op::StreamContext, self.one(Op::StreamContext, stream.native())?)
    }

    fn stream_number(&self, stream: Alive<'_>) -> Result<u64> {
        self.one(Op::StreamNumber, stream.native())
    }

    fn record_event(&self, recorded: Event, stream: Alive<'_>) -> Result<()> {
        self.call(Op::Record, event(recorded, stream.native())).map(drop)
    }

    fn wait_event(&self, stream: Alive<'_>, awaited: Event) -> Result<()> {
        self.call(Op::Wait, event(awaited, stream.native())).map(drop)
    }

    fn wait_external(&self, stream: Alive<'_>, awaited: Event) -> Result<()> {
        self.call(Op::WaitExternal, event(awaited, stream.native())).map(drop)
    }

    fn synchronize_context(&self) -> Result<()> {
        self.one(Op::Synchronize, 0).map(drop)
    }
}

impl Copies for BorrowedDevice {
    fn allocate(&self, bytes: u64, stream: Alive<'_>) -> Result<u64> {
        self.call(Op::Allocate, [bytes, stream.native(), 0, 0]).map(|[ptr, ..]| ptr)
    }

    fn free_on(&self, pointer: u64, stream: Alive<'_>) -> Result<()> {
        self.call(Op::Free, [pointer, stream.native(), 0, 0]).map(drop)
    }

    fn allocate_now(&self, bytes: u64) -> Result<u64> {
        self.one(Op::AllocateNow, bytes)
    }

    fn free_now(&self, pointer: u64) -> Result<()> {
        self.one(Op::FreeNow, pointer).map(drop)
    }

    fn copy(&self, _transfer: Transfer<'_>, _stream: Alive<'_>) -> Result<()> {
        Err(codes::failed("cuMemcpyAsync", codes::NOT_SUPPORTED))
    }

    fn wait_stream(&self, stream: Alive<'_>) -> Result<()> {
        self.one(Op::WaitStream, stream.native()).map(drop)
    }
}

struct Data {
    task: Arc<Task>,
    table: &'static LentTable,
}

unsafe extern "C" fn run(data: *mut c_void, machine: Raw) {
    // SAFETY: `queue` passed this pointer to the machine, which frees the data only after the work has run.
    let data = unsafe { &*data.cast::<Data>() };
    let (table, process) = (data.table, Process::current());
    // No reference to the machine was taken, so none is released.
    let machine = ManuallyDrop::new(BorrowedDevice { table, machine, process });
    // A panic must not unwind into the lender's library.
    let _ = caught(|| (data.task)(&*machine));
}

unsafe extern "C" fn end(data: *mut c_void) {
    // SAFETY: `queue` passed this pointer to the machine, which calls this function once.
    drop(unsafe { Box::from_raw(data.cast::<Data>()) });
}

impl Ipc for BorrowedDevice {}

impl Machine for BorrowedDevice {
    fn new_stream(&self, ordinal: i32) -> Result<u64> {
        self.one(Op::NewStream, signed(ordinal))
    }

    fn end_stream(&self, stream: u64) -> Result<()> {
        self.one(Op::EndStream, stream).map(drop)
    }

    fn queue(
        &self,
        stream: u64,
        name: &str,
        reads: &[Span],
        writes: &[Span],
        task: Arc<Task>,
    ) -> Result<()> {
        let pairs = reads.iter().chain(writes).map(|span| [span.ptr, span.len]);
        let pairs: Vec<[u64; 2]> = pairs.collect();
        let data = Box::into_raw(Box::new(Data { task, table: self.table }));
        let work = LentWork {
            name: name.as_ptr(),
            name_length: name.len(),
            spans: pairs.as_ptr(),
            reads: reads.len(),
            writes: writes.len(),
            run,
            data: data.cast(),
            end,
        };
        // SAFETY: the machine exists: `self` holds a reference to it, or it is running the caller's work. The lists
        // outlive the call, and the data belongs to the machine from now on.
        let code = unsafe { (self.table.queue)(self.machine, stream, &raw const work) };
        checked("cuLaunchKernel", code)
    }

    fn load(&self, ptr: u64, bytes: &mut [u8]) -> Result<()> {
        let (to, length) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: the machine exists: `self` holds a reference to it, or it is running the caller's work. `bytes` is
        // borrowed for the call.
        checked("load", unsafe { (self.table.load)(self.machine, ptr, to, length) })
    }

    fn store(&self, ptr: u64, bytes: &[u8]) -> Result<()> {
        let (from, length) = (bytes.as_ptr(), bytes.len());
        // SAFETY: as for `load`.
        checked("store", unsafe { (self.table.store)(self.machine, ptr, from, length) })
    }

    fn read_on_host(&self, ptr: u64, bytes: &mut [u8]) -> Result<()> {
        let (to, length) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: as for `load`.
        checked("read", unsafe { (self.table.read_on_host)(self.machine, ptr, to, length) })
    }

    fn failed(&self, kernel: &str, why: &str) {
        let failed = self.table.failed;
        // SAFETY: as for `load`, for both texts.
        unsafe { failed(self.machine, kernel.as_ptr(), kernel.len(), why.as_ptr(), why.len()) }
    }
}
