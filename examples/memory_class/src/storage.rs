//! The memory on the GPU and on the host, which of them is current, and who has locked it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use cai_bridge::{Array, DeviceStream, Element, Result};
use pyo3::buffer::{self, PyBuffer};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::kernels;

/// An element type that Python's buffer protocol has, too.
pub(crate) trait Value: Element + buffer::Element + Default {}
impl Value for i32 {}
impl Value for i64 {}
impl Value for f32 {}
impl Value for f64 {}

/// Calls a function with the element type of `$array`.
macro_rules! by_type {
    ($array:expr, $function:ident($($argument:expr),*)) => {
        match $array.dtype().name() {
            "int32" => $function::<i32>($($argument),*),
            "int64" => $function::<i64>($($argument),*),
            "float32" => $function::<f32>($($argument),*),
            _ => $function::<f64>($($argument),*),
        }
    };
}
pub(crate) use by_type;

/// Where the current values are. The numbers are DLPack's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    Host = 1,
    Device = 2,
}

impl TryFrom<i32> for At {
    type Error = PyErr;

    fn try_from(device_type: i32) -> PyResult<Self> {
        match device_type {
            1 => Ok(Self::Host),
            2 => Ok(Self::Device),
            other => Err(PyValueError::new_err(format!(
                "device_type: got {other}; allowed: 1 (kDLCPU), 2 (kDLCUDA)"
            ))),
        }
    }
}

/// Writes values copied from the GPU into a NumPy array.
type Fill = Box<dyn FnOnce(&Bound<'_, PyAny>) -> PyResult<()> + Send>;

#[derive(Clone)]
pub(crate) struct Storage {
    state: Arc<Mutex<State>>,
    pub(crate) stream: DeviceStream,
}

struct State {
    array: Array,
    /// A NumPy array, made at the first move to the host.
    host: Option<Py<PyAny>>,
    at: At,
    /// A copy to the host that nobody has waited for yet. It holds the write lock.
    moving: Option<JoinHandle<Result<Fill>>>,
    readers: usize,
    writer: bool,
}

impl Storage {
    pub(crate) fn new(array: Array, stream: DeviceStream) -> Self {
        let (host, at, moving) = (None, At::Device, None);
        let state = State { array, host, at, moving, readers: 0, writer: false };
        Self { state: Arc::new(Mutex::new(state)), stream }
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn array(&self) -> Array {
        self.locked().array.clone()
    }

    pub(crate) fn at(&self) -> At {
        self.locked().at
    }

    /// Locks the memory. Waits for a running copy first.
    pub(crate) fn take(&self, py: Python<'_>, writes: bool) -> PyResult<Taken> {
        self.settle(py)?;
        let mut state = self.locked();
        if state.writer || (writes && state.readers > 0) {
            let by = if state.writer { "a writer" } else { "readers" };
            return Err(PyRuntimeError::new_err(format!("the memory is locked by {by}")));
        }
        state.writer = writes;
        state.readers += usize::from(!writes);
        Ok(Taken { storage: self.clone(), writes, ends: true })
    }

    /// Moves the memory to `at` and locks it there.
    pub(crate) fn take_at(&self, py: Python<'_>, writes: bool, at: At) -> PyResult<Taken> {
        self.settle(py)?;
        if self.at() != at {
            self.take(py, true)?.move_to(py, at)?;
        }
        let taken = self.take(py, writes)?;
        if self.at() != at {
            return Err(PyRuntimeError::new_err("the memory was moved by another thread"));
        }
        Ok(taken)
    }

    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        let Some(moving) = self.locked().moving.take() else { return Ok(()) };
        let taken = Taken { storage: self.clone(), writes: true, ends: true };
        let copied = py.detach(|| moving.join());
        let copied = copied.map_err(|_| PyRuntimeError::new_err("the copy to the host failed"))?;
        taken.fill(py, copied?)
    }
}

/// A lock on the memory, until dropped.
pub(crate) struct Taken {
    pub(crate) storage: Storage,
    writes: bool,
    /// False if a thread goes on with the lock.
    ends: bool,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !self.ends {
            return;
        }
        let mut state = self.storage.locked();
        if self.writes {
            state.writer = false;
        } else {
            state.readers = state.readers.saturating_sub(1);
        }
    }
}

impl Taken {
    /// The NumPy array on the host.
    pub(crate) fn host<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(host) = &self.storage.locked().host {
            return Ok(host.bind(py).clone());
        }
        let array = self.storage.array();
        let numpy = py.import("numpy")?;
        let made = numpy.call_method1("zeros", (array.shape().to_vec(), array.dtype().name()))?;
        self.storage.locked().host = Some(made.clone().unbind());
        Ok(made)
    }

    /// Makes the values at `at` the current ones.
    pub(crate) fn set_at(&self, at: At) {
        self.storage.locked().at = at;
    }

    /// Moves the values. The memory must be locked for writing. The host waits for a copy to the
    /// host.
    pub(crate) fn move_to(&self, py: Python<'_>, at: At) -> PyResult<()> {
        let (array, stream) = (self.storage.array(), self.storage.stream.clone());
        match at {
            _ if self.storage.at() == at => Ok(()),
            At::Host => {
                let copied = py.detach(|| by_type!(array, to_host(&stream, &array)))?;
                self.fill(py, copied)
            }
            At::Device => {
                let host = self.host(py)?;
                by_type!(array, to_device(&stream, &host, &array))?;
                self.set_at(at);
                Ok(())
            }
        }
    }

    /// Copies to the host in a thread. The next use of the memory waits for it.
    pub(crate) fn move_to_host_later(mut self, py: Python<'_>) -> PyResult<()> {
        self.host(py)?;
        let (array, stream) = (self.storage.array(), self.storage.stream.clone());
        let copy = move || by_type!(array, to_host(&stream, &array));
        let thread = thread::Builder::new().name("move_memory".to_owned()).spawn(copy)?;
        self.storage.locked().moving = Some(thread);
        self.ends = false; // `settle` ends the lock
        Ok(())
    }

    fn fill(&self, py: Python<'_>, copied: Fill) -> PyResult<()> {
        copied(&self.host(py)?)?;
        self.set_at(At::Host);
        Ok(())
    }
}

fn to_host<T: Value>(stream: &DeviceStream, array: &Array) -> Result<Fill> {
    let values = array.to_vec::<T>(stream)?;
    Ok(Box::new(move |host| PyBuffer::<T>::get(host)?.copy_from_slice(host.py(), &values)))
}

/// Copies the host array `from` to `to`, of the same shape and type.
pub(crate) fn to_device<T: Value>(
    stream: &DeviceStream,
    from: &Bound<'_, PyAny>,
    to: &Array,
) -> PyResult<()> {
    let values = PyBuffer::<T>::get(from)?.to_vec(from.py())?;
    let done = from.py().detach(|| {
        let values: Array = Array::from_host(stream, &values, to.shape())?.into();
        copy::<T>(stream, &values, to)
    });
    Ok(done?)
}

/// Copies `from` to `to` on a GPU. The kernel takes at most three dimensions; a contiguous array
/// counts as one.
pub(crate) fn copy<T: Element>(stream: &DeviceStream, from: &Array, to: &Array) -> Result<()> {
    if from.shape().len() <= 3 {
        return kernels::copy::<T>(stream, from, to.clone().writable()?);
    }
    let size = [from.shape().iter().product()];
    kernels::copy::<T>(stream, &from.reshape(&size)?, to.reshape(&size)?.writable()?)
}
