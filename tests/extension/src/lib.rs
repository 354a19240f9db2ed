//! An extension whose arrays wait for other threads of Python's, as a driver does with host functions in its queues.

mod double;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use cai_bridge::{Array, DeviceStream, Dtype, Error, Grid, Kernel, Owner, scope};
use pyo3::prelude::*;

/// What Python's threads open, for which they need the interpreter's lock, as a host function may.
#[pyclass(frozen)]
#[derive(Default)]
struct Gate {
    waited_for: AtomicBool,
    opened: AtomicBool,
    /// Whether somebody who waited for it saw it open.
    seen_open: AtomicBool,
}

#[pymethods]
impl Gate {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Whether somebody waits for it.
    fn is_waited_for(&self) -> bool {
        self.waited_for.load(Ordering::SeqCst)
    }

    fn open(&self) {
        self.opened.store(true, Ordering::SeqCst);
    }

    fn was_seen_open(&self) -> bool {
        self.seen_open.load(Ordering::SeqCst)
    }
}

impl Gate {
    /// Waits until it is open, five seconds at most, without a word to Python.
    fn wait(&self) {
        self.waited_for.store(true, Ordering::SeqCst);
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(5) {
            if self.opened.load(Ordering::SeqCst) {
                return self.seen_open.store(true, Ordering::SeqCst);
            }
            sleep(Duration::from_millis(1));
        }
    }
}

/// Memory whose end waits for Python, as pinned memory's waits for its stream.
struct Waiting {
    whole: Array,
    stream: DeviceStream,
    gate: Py<Gate>,
}

// SAFETY: the whole array's memory, as it says.
unsafe impl Owner for Waiting {
    type Stream = DeviceStream;

    fn stream(&self) -> &DeviceStream {
        &self.stream
    }

    fn ptr(&self) -> u64 {
        self.whole.ptr()
    }

    fn dtype(&self) -> Dtype {
        self.whole.dtype()
    }

    fn shape(&self) -> &[i64] {
        self.whole.shape()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.gate.get().wait();
    }
}

/// An array whose memory ends when the gate is open.
#[pyfunction]
fn waiting(py: Python<'_>, gate: Py<Gate>) -> PyResult<Array> {
    let stream = DeviceStream::in_python(py, 0)?;
    let whole = Array::from_host(&stream, &[1.0_f32; 4], &[4])?.into();
    Ok(Array::from_owner(Waiting { whole, stream, gate })?)
}

/// What takes `x` in a scope of another thread fails with.
#[pyfunction]
fn used_in_a_thread(py: Python<'_>, x: Array) -> PyResult<()> {
    let stream = DeviceStream::beside(&x)?;
    let work = || scope(&stream, |s| x.on(s).map(drop));
    let failed = py.detach(|| std::thread::scope(|threads| threads.spawn(work).join()));
    failed.unwrap_or_else(|_| Err(Error::new(cai_bridge::ErrorKind::Misuse, "a panic")))?;
    Ok(())
}

/// Two failures of which the second becomes an exception, and the first is dropped.
#[pyfunction]
fn second_failure(first: Array, second: Array) -> PyResult<()> {
    let take = |x: &Array| scope(&DeviceStream::beside(x)?, |s| x.on(s).map(drop));
    drop(take(&first));
    Ok(take(&second)?)
}

static TOUCH: Kernel = Kernel::new("touch", "").on_host(|call| call.store(0, &[2.0_f32; 4]));

/// Threads that write one array by views which they keep, this one with the interpreter's lock held.
#[pyfunction]
fn by_turns(x: Array) -> PyResult<()> {
    let run = |mut x: cai_bridge::ArrayMut| {
        scope(&DeviceStream::beside(&x)?, |s| {
            let mut x = x.on_mut(s)?.view_mut::<f32>()?;
            (0..50).try_for_each(|_| {
                // SAFETY: the stand-in alone runs.
                unsafe { s.launch(&TOUCH, Grid::cover(1, 1), (&mut x,)) }
            })
        })
    };
    let (theirs, mine) = (x.clone().writable()?, x.writable()?);
    let thread = std::thread::spawn(move || run(theirs));
    run(mine)?;
    // The other one may need the lock for its end.
    Python::attach(|py| py.detach(|| thread.join()))
        .unwrap_or_else(|_| Err(Error::new(cai_bridge::ErrorKind::Misuse, "a panic")))?;
    Ok(())
}

/// Writes `x` before and after it is handed to `call`, in one scope.
#[pyfunction]
fn written_around(py: Python<'_>, x: Array, call: &Bound<'_, PyAny>) -> PyResult<()> {
    let (stream, mut written) = (DeviceStream::in_python(py, 0)?, x.clone().writable()?);
    scope(&stream, |s| {
        let mut view = written.on_mut(s)?.view_mut::<f32>()?;
        // SAFETY: the stand-in alone runs.
        unsafe { s.launch(&TOUCH, Grid::cover(1, 1), (&mut view,)) }?;
        call.call1((&x,))?;
        // SAFETY: as above.
        Ok(unsafe { s.launch(&TOUCH, Grid::cover(1, 1), (&mut view,)) }?)
    })
}

#[pymodule(gil_used = false)]
mod tested_extension {
    #[pymodule_export]
    use super::{Gate, by_turns, second_failure, used_in_a_thread, waiting, written_around};
}
