//! An extension whose arrays wait for other threads of Python's, as a driver does with host functions in its queues.

use std::thread::sleep;
use std::time::{Duration, Instant};

use cai_bridge::{Array, DeviceStream, Dtype, Error, Grid, Kernel, Owner, scope};
use pyo3::prelude::*;

/// Waits until `done()` says so, which other threads of Python's have to bring about. Whether it did.
fn wait_for(done: &Py<PyAny>) -> bool {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(5) {
        let answer = Python::attach(|py| done.call0(py)?.extract::<bool>(py));
        if answer.is_ok_and(|is_done| is_done) {
            return true;
        }
        sleep(Duration::from_millis(1));
    }
    false
}

/// Memory whose end waits for Python, as pinned memory's waits for its stream.
struct Waiting {
    whole: Array,
    stream: DeviceStream,
    done: Py<PyAny>,
    /// Told whether the end came to pass.
    tell: Py<PyAny>,
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
        let came = wait_for(&self.done);
        let _ = Python::attach(|py| self.tell.call1(py, (came,)));
    }
}

/// An array whose memory ends when `done()` is true.
#[pyfunction]
fn waiting(py: Python<'_>, done: Py<PyAny>, tell: Py<PyAny>) -> PyResult<Array> {
    let stream = DeviceStream::in_python(py, 0)?;
    let whole = Array::from_host(&stream, &[1.0_f32; 4], &[4])?.into();
    Ok(Array::from_owner(Waiting { whole, stream, done, tell })?)
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


#[pymodule(gil_used = false)]
mod tested_extension {
    #[pymodule_export]
    use super::{by_turns, second_failure, used_in_a_thread, waiting};
}
