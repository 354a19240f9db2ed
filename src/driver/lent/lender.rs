//! The simulated device, as the library that owns it lends it to another.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::Arc;

use super::{LentTable, LentWork, Op, Raw, VERSION};
use crate::capture::CaptureStatus;
use crate::device::Place;
use crate::driver::simulated::{Machine, Simulated, Span};
use crate::driver::{Context, Driver, Event, Handle, codes, copies::Copies, current};
use crate::error::{Error, Result, caught};
use crate::stream::{Alive, Stream, Thread};

pub static TABLE: LentTable = LentTable {
    version: VERSION,
    current: current_machine,
    release,
    call,
    queue,
    load,
    store,
    read_on_host,
    failed,
};

unsafe extern "C" fn current_machine() -> Raw {
    match current() {
        Ok(Handle::Simulated(machine)) => Arc::into_raw(machine).cast(),
        _ => std::ptr::null(),
    }
}

unsafe extern "C" fn release(machine: Raw) {
    // SAFETY: the borrower releases each reference that it got from `current` once.
    drop(unsafe { Arc::from_raw(machine.cast::<Simulated>()) });
}

/// # Safety
///
/// `raw` came from [`TABLE`]'s `current`, or with a call of a `LentRun`. During `'a` the borrower holds a reference to
/// the machine, or its work is running on the machine.
unsafe fn machine<'a>(raw: Raw) -> &'a Simulated {
    // SAFETY: `current_machine` and `BorrowerData::run` give a borrower only addresses of a `Simulated`. The caller
    // promises that the machine exists during `'a`.
    unsafe { &*raw.cast::<Simulated>() }
}

/// Returns 0 or an error code, also if `call` panics. In a forked child of the device's process, `call` does not run.
fn answer(machine: &Simulated, call: impl FnOnce() -> Result<()>) -> u32 {
    let made = || machine.process().check().and_then(|()| call());
    match caught(made) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => error.driver_code().map_or(codes::INVALID_VALUE, |failed| failed.code),
        Err(_) => codes::UNKNOWN,
    }
}

unsafe extern "C" fn call(
    raw: Raw,
    op: u32,
    arguments: *const [u64; 4],
    answers: *mut [u64; 4],
) -> u32 {
    // SAFETY: the borrower holds a reference to the machine, or its work is running on the machine. Both lists have
    // four numbers and outlive the call.
    let (machine, arguments, answers) = unsafe { (machine(raw), *arguments, &mut *answers) };
    answer(machine, || {
        let op = Op::numbered(op).ok_or_else(|| unknown("call"))?;
        *answers = carried_out(machine, op, arguments)?;
        Ok(())
    })
}

#[cold]
fn unknown(call: &'static str) -> Error {
    codes::failed(call, codes::NOT_SUPPORTED)
}

fn ordinal(number: u64) -> Result<i32> {
    i32::try_from(number.cast_signed()).map_err(|_| unknown("cuDeviceGet"))
}

fn context(number: u64) -> Result<Context> {
    let number = usize::try_from(number).ok().and_then(std::num::NonZeroUsize::new);
    number.map(Context).ok_or_else(|| codes::failed("cuCtxPushCurrent", codes::INVALID_CONTEXT))
}

fn event([handle, of, life, _]: [u64; 4]) -> Result<Event> {
    let handle = usize::try_from(handle).map_err(|_| unknown("cuEventQuery"))?;
    Ok(Event { handle, context: context(of)?, life })
}

fn stream<'a>(native: u64) -> Alive<'a> {
    let stream = Stream::from_native(native, Thread::current());
    // SAFETY: the simulated device knows which of its streams exist, and returns an error for any other handle. It does
    // not read the place.
    unsafe { Alive::kept(stream, Place::gpu(0)) }
}

fn number(context: Context) -> u64 {
    context.0.get() as u64
}

fn carried_out(machine: &Simulated, op: Op, arguments: [u64; 4]) -> Result<[u64; 4]> {
    let [first, second, _, last] = arguments;
    let none = [0; 4];
    let one = |answer: u64| [answer, 0, 0, 0];
    Ok(match op {
        Op::Pointer => machine.pointer(first)?.map_or(none, |found| {
            let kind = u64::from(found.kind.code());
            let ordinal = i64::from(found.ordinal).cast_unsigned();
            [1, ordinal, kind, found.context.map_or(0, number)]
        }),
        Op::Primary => one(number(machine.primary_context(ordinal(first)?)?)),
        Op::Current => one(machine.current_context()?.map_or(0, number)),
        Op::Ordinal => one(i64::from(machine.current_ordinal()?).cast_unsigned()),
        Op::Push => machine.push_context(context(first)?).map(|()| none)?,
        Op::Pop => machine.pop_context().map(|()| none)?,
        Op::Life => one(machine.life(context(first)?)?),
        Op::TakeEvent => {
            let event = machine.take_event(context(first)?)?;
            [event.handle as u64, event.life, 0, 0]
        }
        Op::SpareEvent => {
            machine.spare_event(event(arguments)?);
            none
        }
        Op::IsReached => one(u64::from(machine.is_reached(event(arguments)?)?)),
        Op::WaitUntil => machine.wait_until(event(arguments)?).map(|()| none)?,
        Op::CaptureStatus => match machine.capture_status(stream(first))? {
            CaptureStatus::Outside => none,
            CaptureStatus::Inside(capture) => [1, capture, 0, 0],
            CaptureStatus::Beside => one(2),
        },
        Op::IsBlocking => one(u64::from(machine.is_blocking(stream(first))?)),
        Op::StreamContext => one(number(machine.stream_context(stream(first))?)),
        Op::Record => machine.record_event(event(arguments)?, stream(last)).map(|()| none)?,
        Op::Wait => machine.wait_event(stream(last), event(arguments)?).map(|()| none)?,
        Op::WaitExternal => {
            machine.wait_external(stream(last), event(arguments)?).map(|()| none)?
        }
        Op::Synchronize => machine.synchronize_context().map(|()| none)?,
        Op::Allocate => one(machine.allocate(first, stream(second))?),
        Op::Free => machine.free_on(first, stream(second)).map(|()| none)?,
        Op::AllocateNow => one(machine.allocate_now(first)?),
        Op::FreeNow => machine.free_now(first).map(|()| none)?,
        Op::WaitStream => machine.wait_stream(stream(first)).map(|()| none)?,
        Op::NewStream => one(machine.new_stream(ordinal(first)?)?),
        Op::EndStream => machine.end_stream(first).map(|()| none)?,
        Op::StreamNumber => one(machine.stream_number(stream(first))?),
    })
}

struct BorrowerData {
    run: super::LentRun,
    data: *mut c_void,
    end: super::LentEnd,
}

// SAFETY: the data is what `borrowed` queues: a task, whose type there is `Send` and `Sync`, and a static table.
unsafe impl Send for BorrowerData {}
// SAFETY: as above.
unsafe impl Sync for BorrowerData {}

impl BorrowerData {
    fn run(&self, machine: &Simulated) {
        // SAFETY: `run` and `data` come from the borrower and belong together. The data is not freed yet, and the
        // machine exists, since it runs this work.
        unsafe { (self.run)(self.data, std::ptr::from_ref(machine).cast()) }
    }
}

impl Drop for BorrowerData {
    fn drop(&mut self) {
        // SAFETY: `end` and `data` come from the borrower and belong together, and this drop runs once.
        unsafe { (self.end)(self.data) }
    }
}

unsafe extern "C" fn queue(raw: Raw, on: u64, work: *const LentWork) -> u32 {
    // SAFETY: as for `call`; `work` points to a piece of work that outlives the call.
    let (machine, work) = unsafe { (machine(raw), *work) };
    let data = BorrowerData { run: work.run, data: work.data, end: work.end };
    answer(machine, || {
        // SAFETY: the name has this many bytes, which outlive the call.
        let name = unsafe { std::slice::from_raw_parts(work.name, work.name_length) };
        // SAFETY: the list has a pair for each read and each write, and outlives the call.
        let spans = unsafe { std::slice::from_raw_parts(work.spans, work.reads + work.writes) };
        let spans: Vec<Span> = spans.iter().map(|&[ptr, len]| Span { ptr, len }).collect();
        let (reads, writes) = spans.split_at(work.reads);
        let (name, stream) = (String::from_utf8_lossy(name), stream(on).stream());
        machine.launch(stream, &name, reads, writes, move |machine| data.run(machine))
    })
}

unsafe extern "C" fn load(raw: Raw, ptr: u64, bytes: *mut u8, length: usize) -> u32 {
    // SAFETY: as for `call`; `bytes` points to `length` writable bytes, which outlive the call.
    let (machine, bytes) = unsafe { (machine(raw), std::slice::from_raw_parts_mut(bytes, length)) };
    answer(machine, || Machine::load(machine, ptr, bytes))
}

unsafe extern "C" fn store(raw: Raw, ptr: u64, bytes: *const u8, length: usize) -> u32 {
    // SAFETY: as for `call`; `bytes` points to `length` readable bytes, which outlive the call.
    let (machine, bytes) = unsafe { (machine(raw), std::slice::from_raw_parts(bytes, length)) };
    answer(machine, || Machine::store(machine, ptr, bytes))
}

unsafe extern "C" fn read_on_host(raw: Raw, ptr: u64, bytes: *mut u8, length: usize) -> u32 {
    // SAFETY: as for `load`.
    let (machine, bytes) = unsafe { (machine(raw), std::slice::from_raw_parts_mut(bytes, length)) };
    answer(machine, || machine.read_on_host(ptr, bytes))
}

unsafe extern "C" fn failed(
    raw: Raw,
    kernel: *const u8,
    kernel_length: usize,
    why: *const u8,
    why_length: usize,
) {
    // SAFETY: as for `store`, for both texts.
    let (machine, kernel, why) = unsafe {
        let kernel = std::slice::from_raw_parts(kernel, kernel_length);
        (machine(raw), kernel, std::slice::from_raw_parts(why, why_length))
    };
    answer(machine, || {
        Machine::failed(machine, &String::from_utf8_lossy(kernel), &String::from_utf8_lossy(why));
        Ok(())
    });
}
