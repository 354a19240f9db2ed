//! The gate: a kernel of one thread that holds a stream up.
//!
//! A gate ends when the host's number reaches its ticket, when the device's clock reaches its time, or when it
//! has run for its time limit. So a gate delays a program, but never for good.

use alloc::vec::Vec;
use core::ffi::{CStr, c_void};
use core::ptr::{null, null_mut};

use crate::driver;
use crate::streams::Behind;
use crate::sys::{Locked, now};

/// `gate(word, ticket, until, limit)`, and `tick(to)`, which stores the device's clock.
const PTX: &CStr = c"\
.version 7.0
.target sm_75
.address_size 64
.visible .entry gate(.param .u64 pw, .param .u64 pt, .param .u64 pu, .param .u64 pl)
{
.reg .u64 %w,%t,%u,%l,%s,%n,%v;
.reg .pred %p;
ld.param.u64 %w,[pw];
ld.param.u64 %t,[pt];
ld.param.u64 %u,[pu];
ld.param.u64 %l,[pl];
mov.u64 %s,%globaltimer;
again:
mov.u64 %n,%globaltimer;
setp.ge.s64 %p,%n,%u;
@%p bra done;
sub.u64 %v,%n,%s;
setp.ge.u64 %p,%v,%l;
@%p bra done;
ld.volatile.global.u64 %v,[%w];
setp.ge.u64 %p,%v,%t;
@%p bra done;
nanosleep.u32 500;
bra again;
done:
ret;
}
.visible .entry tick(.param .u64 po)
{
.reg .u64 %o,%n;
ld.param.u64 %o,[po];
mov.u64 %n,%globaltimer;
st.volatile.global.u64 [%o],%n;
membar.sys;
ret;
}
";
/// The clocks of host and device drift, so they are compared again after this many nanoseconds.
const AGAIN: u64 = 10_000_000_000;
/// A comparison that took longer, in nanoseconds, is ignored, unless the context has none yet.
const EXACT: u64 = 1_000_000;
/// Flags for the shared memory: portable, and mapped into the device's addresses.
const SHARED: u32 = 3;
const NON_BLOCKING: u32 = 1;

/// A context's gate.
#[derive(Clone, Copy, Debug)]
struct Gate {
    context: u64,
    /// The kernel `gate`; 0 if it could not be loaded, or the clocks could not be compared.
    kernel: u64,
    tick: u64,
    /// Two numbers that host and device share: the ticket up to which gates are open, and a clock.
    word: *mut u64,
    /// The device's clock minus the host's.
    offset: i64,
    compared: u64,
}

// SAFETY: on the host, only the holder of `GATES` writes the shared numbers, with volatile accesses.
unsafe impl Send for Gate {}

static GATES: Locked<Vec<Gate>> = Locked::new(Vec::new());

/// Queues a gate on a stream. Returns false on failure. With `beside`, a capture is active: then the clocks are
/// not compared again, because comparing makes the host wait.
///
/// # Safety
/// The context and the stream are alive, and the stream is not being captured.
pub(crate) unsafe fn queue(context: u64, stream: u64, behind: Behind, beside: bool) -> bool {
    // SAFETY: the caller guarantees the context and the stream.
    let gate = unsafe { of(context, beside, |gate| launch_gate(gate, stream, behind)) };
    gate == Some(true)
}

/// Loads a context's gate, if needed, and compares the clocks, before a capture begins.
///
/// # Safety
/// The context is alive.
pub(crate) unsafe fn prepare(context: u64) {
    // SAFETY: the caller guarantees the context.
    unsafe { of(context, false, |_| ()) };
}

fn launch_gate(gate: Gate, stream: u64, behind: Behind) -> bool {
    let until = behind.until.saturating_add_signed(gate.offset);
    // The gate begins now or later.
    let limit = behind.until.saturating_sub(now());
    let arguments = [gate.word as u64, behind.ticket, until, limit];
    // SAFETY: the kernel takes these four arguments, and the stream is alive, as the caller of `queue`
    // guarantees.
    unsafe { launch(gate.kernel, stream, &arguments) }
}

/// Makes a context current, and calls a function with its gate, in the relaxed capture mode. None if the
/// context has no working gate.
unsafe fn of<T>(context: u64, beside: bool, call: impl FnOnce(Gate) -> T) -> Option<T> {
    let mut popped = 0;
    // SAFETY: the context is alive, as the caller guarantees.
    if unsafe { driver::cuCtxPushCurrent_v2(context) } != 0 {
        return None;
    }
    // SAFETY: the context is current now.
    let result = driver::relaxed(|| unsafe { ready(context, beside) }.map(call));
    // SAFETY: the result is a local, and the context was pushed above.
    unsafe { driver::cuCtxPopCurrent_v2(&raw mut popped) };
    result
}

/// Opens all gates up to a ticket, in every context, unless the driver is gone.
pub(crate) fn open(ticket: u64) {
    let mut current = 0;
    // When a process ends, the driver may be gone, and its memory with it.
    // SAFETY: the result is a local.
    if unsafe { driver::cuCtxGetCurrent(&raw mut current) } != 0 {
        return;
    }
    for gate in GATES.lock().iter().filter(|one| !one.word.is_null()) {
        // SAFETY: the memory lives as long as its context, which is forgotten before it is destroyed.
        unsafe {
            if gate.word.read_volatile() < ticket {
                gate.word.write_volatile(ticket);
            }
        }
    }
}

/// The contexts that have a gate.
pub(crate) fn contexts() -> Vec<u64> {
    GATES.lock().iter().map(|one| one.context).collect()
}

/// Forgets a context that is about to be destroyed, or is gone.
pub(crate) fn forget(context: u64) {
    GATES.lock().retain(|one| one.context != context);
}

/// Forgets all gates, in a fork's child, which has no context.
pub(crate) fn renew() {
    GATES.renew();
    GATES.lock().clear();
}

/// The current context's gate. Loads it on first use; compares its clocks then, and again if that is long ago
/// and not `beside` a capture. None if the gate does not work.
unsafe fn ready(context: u64, beside: bool) -> Option<Gate> {
    let mut gates = GATES.lock();
    let place = gates.iter().position(|one| one.context == context);
    let place = place.unwrap_or_else(|| {
        // SAFETY: the context is current.
        let new = unsafe { load() }.unwrap_or(Gate {
            context,
            kernel: 0,
            tick: 0,
            word: null_mut(),
            offset: 0,
            compared: 0,
        });
        gates.push(Gate { context, ..new });
        gates.len() - 1
    });
    let gate = gates.get_mut(place)?;
    let is_old = !beside && now() - gate.compared.min(now()) > AGAIN;
    if gate.kernel != 0 && (gate.compared == 0 || is_old) {
        // SAFETY: the context is current, and the kernels are loaded.
        unsafe { compare(gate) };
    }
    (gate.kernel != 0).then_some(*gate)
}

unsafe fn load() -> Option<Gate> {
    let (mut word, mut module, mut gate, mut tick) = (null_mut(), 0, 0, 0);
    // SAFETY: the results are locals, and the strings end with a zero.
    let codes = unsafe {
        [
            driver::cuMemHostAlloc(&raw mut word, 4096, SHARED),
            driver::cuModuleLoadData(&raw mut module, PTX.as_ptr().cast()),
            driver::cuModuleGetFunction(&raw mut gate, module, c"gate".as_ptr()),
            driver::cuModuleGetFunction(&raw mut tick, module, c"tick".as_ptr()),
        ]
    };
    if codes != [0; 4] {
        return None;
    }
    // SAFETY: the driver has just allocated this page of host memory.
    unsafe { word.write_bytes(0, 2) };
    Some(Gate { context: 0, kernel: gate, tick, word, offset: 0, compared: 0 })
}

/// Compares the clocks of host and device by four kernels that store the device's clock. The quickest one
/// counts. If the clocks were never compared and this fails, the gate does not work.
unsafe fn compare(gate: &mut Gate) {
    let mut side = 0;
    // SAFETY: the result is a local.
    if unsafe { driver::cuStreamCreate(&raw mut side, NON_BLOCKING) } != 0 {
        gate.kernel = 0;
        return;
    }
    // Launches an open gate now, so that its code is loaded before a real gate blocks loading.
    // SAFETY: the kernel takes these arguments.
    unsafe { launch(gate.kernel, side, &[gate.word as u64, 0, 0, 0]) };
    let first = gate.compared == 0;
    let mut best = if first { u64::MAX } else { EXACT };
    for _ in 0..4 {
        // SAFETY: the shared page has two numbers; the second is the clock's.
        let clock = unsafe { gate.word.add(1) };
        // SAFETY: the stream was made above.
        unsafe { driver::cuStreamSynchronize(side) };
        let before = now();
        // SAFETY: the stream was made above, and the kernel takes the address of the second number.
        let done = unsafe {
            launch(gate.tick, side, &[clock as u64]) && driver::cuStreamSynchronize(side) == 0
        };
        let after = now();
        if done && after - before < best {
            best = after - before;
            let middle = before + best / 2;
            // SAFETY: the kernel has written the clock.
            gate.offset = unsafe { clock.read_volatile() }.wrapping_sub(middle).cast_signed();
            gate.compared = after;
        }
    }
    if gate.compared == 0 {
        gate.kernel = 0;
    }
    // SAFETY: the stream has no more work.
    unsafe { driver::cuStreamDestroy_v2(side) };
}

/// Launches one thread of a kernel whose arguments are all words.
unsafe fn launch(kernel: u64, stream: u64, arguments: &[u64]) -> bool {
    let mut addresses: [*const c_void; 4] = [null(); 4];
    for (to, argument) in addresses.iter_mut().zip(arguments) {
        *to = (&raw const *argument).cast();
    }
    // SAFETY: the caller guarantees the kernel, the stream and the number of arguments. The driver copies the
    // arguments before it returns.
    let code = unsafe {
        driver::cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, addresses.as_ptr(), null())
    };
    code == 0
}
