//! Typed GPU memory of Rust's, lent to Python's libraries under read and write locks.
//!
//! The memory stays Rust's: a lock lends it for the length of a `with` block, to any number of readers or to one writer,
//! by DLPack (legacy or versioned, as the consumer asks) and by the CUDA Array Interface. At its end the memory comes
//! back in the order of the consumers' streams. A deleter is called once nobody uses the memory any more.

mod block;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cai_bridge::{Array, ArrayMut, DeviceStream, Element, Grid, Kernel, Result, scope};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;

use block::Block;

/// Adds the index to each element, as 32-bit floats.
static ADD_INDEX: Kernel =
    Kernel::new("add_index", include_str!("add_index.ptx")).on_host(|call| {
        let indexed: Vec<f32> =
            (0_u16..).zip(call.values::<f32>(0)?).map(|(i, x)| x + f32::from(i)).collect();
        call.store(0, &indexed)
    });

/// The memory, and who has it.
struct State {
    array: Array,
    readers: usize,
    writer: bool,
}

type Shared = Arc<Mutex<State>>;

fn locked(state: &Shared) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory on a GPU: of `shape`, of int32, int64, float32 or float64 elements, all 0. `deleter` is called without
/// arguments once the memory is free again.
#[pyclass(frozen)]
struct MemArray {
    state: Shared,
    stream: DeviceStream,
}

#[pymethods]
impl MemArray {
    #[new]
    #[pyo3(signature = (shape, dtype="float32", device=0, deleter=None))]
    fn new(
        py: Python<'_>,
        shape: Vec<i64>,
        dtype: &str,
        device: i32,
        deleter: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let stream = DeviceStream::in_python(py, device)?;
        let memory = match dtype {
            "int32" => zeros::<i32>(&stream, &shape),
            "int64" => zeros::<i64>(&stream, &shape),
            "float32" => zeros::<f32>(&stream, &shape),
            "float64" => zeros::<f64>(&stream, &shape),
            other => {
                return Err(PyTypeError::new_err(format!(
                    "dtype: got {other}; allowed: int32, int64, float32, float64"
                )));
            }
        }?;
        let array = Array::from_owner(Block::new(memory.into(), stream.clone(), deleter))?;
        Ok(Self { state: Arc::new(Mutex::new(State { array, readers: 0, writer: false })), stream })
    }

    #[getter]
    fn shape(&self) -> Vec<i64> {
        locked(&self.state).array.shape().to_vec()
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        locked(&self.state).array.dtype().name()
    }

    /// Lends the memory to readers: `with m.read() as x`.
    fn read(&self) -> Lock {
        Lock { state: Arc::clone(&self.state), writes: false, view: Mutex::new(None) }
    }

    /// Lends the memory to one writer: `with m.write() as x`.
    fn write(&self) -> Lock {
        Lock { state: Arc::clone(&self.state), writes: true, view: Mutex::new(None) }
    }

    /// Adds its index to each element, by a kernel. Needs the memory for itself.
    fn add_index(&self, py: Python<'_>) -> PyResult<()> {
        let array = take(&self.state, true)?;
        let done = py.detach(|| add_index(&self.stream, array.writable()?));
        give_back(&self.state, true);
        Ok(done?)
    }

    /// Copies the values of another library's array into the memory, which has to be of that shape and type.
    fn assign(&self, py: Python<'_>, values: Array) -> PyResult<()> {
        let shape = self.shape();
        if values.shape() != shape {
            let got = values.shape();
            return Err(PyValueError::new_err(format!("shape: got {got:?}; allowed: {shape:?}")));
        }
        let array = take(&self.state, true)?;
        let done = py.detach(|| copy(&self.stream, &values, array.writable()?));
        give_back(&self.state, true);
        Ok(done?)
    }
}

fn zeros<T: Element + Default>(stream: &DeviceStream, shape: &[i64]) -> Result<ArrayMut> {
    let size = shape.iter().product::<i64>();
    Array::from_host(stream, &vec![T::default(); usize::try_from(size).unwrap_or(0)], shape)
}

fn add_index(stream: &DeviceStream, mut array: ArrayMut) -> Result<()> {
    scope(stream, |s| {
        let mut x = array.on_mut(s)?.view_mut::<f32>()?;
        let n = u32::try_from(x.len()).unwrap_or(u32::MAX);
        // SAFETY: the kernel takes the address of n floats and n, and writes to them alone.
        unsafe { s.launch(&ADD_INDEX, Grid::cover(x.len(), 256), (&mut x, n)) }
    })
}

fn copy(stream: &DeviceStream, values: &Array, mut array: ArrayMut) -> Result<()> {
    scope(stream, |s| {
        let from = values.on(s)?.view::<f32>()?;
        let mut to = array.on_mut(s)?.view_mut::<f32>()?;
        let n = u32::try_from(from.len().min(to.len())).unwrap_or(u32::MAX);
        // SAFETY: the kernel takes two addresses of n floats and n, reads the first and writes to the second alone.
        unsafe { s.launch(&block::COPY, Grid::cover(from.len(), 256), (&from, &mut to, n)) }
    })
}

/// Locks the memory.
fn take(state: &Shared, writes: bool) -> PyResult<Array> {
    let mut state = locked(state);
    if state.writer || (writes && state.readers > 0) {
        let by = if state.writer { "a writer" } else { "readers" };
        return Err(PyRuntimeError::new_err(format!("the memory is locked by {by}")));
    }
    state.writer = writes;
    state.readers += usize::from(!writes);
    Ok(state.array.clone())
}

fn give_back(state: &Shared, writes: bool) {
    let mut state = locked(state);
    if writes {
        state.writer = false;
    } else {
        state.readers = state.readers.saturating_sub(1);
    }
}

/// A lock on the memory, held for the length of a `with` block, whose value speaks DLPack and the CUDA Array Interface.
#[pyclass(frozen)]
struct Lock {
    state: Shared,
    writes: bool,
    view: Mutex<Option<Py<PyAny>>>,
}

#[pymethods]
impl Lock {
    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let array = take(&self.state, self.writes)?;
        let array = if self.writes { array } else { array.into_readonly() };
        let view =
            array.into_pyobject(py).inspect_err(|_| give_back(&self.state, self.writes))?.unbind();
        // Whoever has the address works on the memory: at the end of the block the streams that the
        // libraries work on are waited for, also where somebody keeps a tensor of it.
        view.getattr(py, "ptr")?;
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = Some(view.clone_ref(py));
        Ok(view)
    }

    #[pyo3(signature = (*_reason))]
    fn __exit__(&self, py: Python<'_>, _reason: &Bound<'_, PyAny>) -> PyResult<()> {
        let view = self.view.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(view) = view else { return Ok(()) };
        view.call_method0(py, "release")?;
        give_back(&self.state, self.writes);
        Ok(())
    }
}

#[pymodule(gil_used = false)]
mod memory_class {
    #[pymodule_export]
    use super::{Lock, MemArray};
}
