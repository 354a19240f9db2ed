//! Typed memory of Rust on a GPU and on the host, lent to Python libraries under read and write locks.
//!
//! The memory stays Rust's. A lock lends it for one `with` block, to any number of readers or to one writer. It lends
//! by DLPack (legacy or versioned, as the consumer asks) and by the CUDA Array Interface. At the end of the block the
//! memory comes back in the order of the consumers' streams.
//!
//! `move_memory` chooses whether the values on the GPU or on the host are current. A deleter is called once the GPU's
//! memory has no user left.

mod block;
mod indexer;
mod kernels;
mod lock;
mod storage;

use cai_bridge::{Array, ArrayMut, DeviceStream, Result};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

use block::Block;
use indexer::ArrayIndexer;
use kernels::add_index;
use lock::Lock;
use storage::{At, Storage, Value, by_type, copy, to_device};

/// Memory of int32, int64, float32 or float64 elements, all 0. It starts on a GPU, and gets host memory when moved
/// there. `deleter` is called without arguments once the GPU memory has no user left.
#[pyclass(frozen)]
struct MemArray {
    storage: Storage,
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
        Ok(Self { storage: Storage::new(array, stream) })
    }

    #[getter]
    fn shape(&self) -> Vec<i64> {
        self.storage.array().shape().to_vec()
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.storage.array().dtype().name()
    }

    /// Whether the values on the GPU are the current ones.
    #[getter]
    fn on_device(&self) -> bool {
        self.storage.at() == At::Device
    }

    /// Lends the GPU memory to readers: `with m.read() as x`. Moves the values to the GPU first.
    fn read(&self) -> Lock {
        Lock::new(&self.storage, false, At::Device)
    }

    /// Lends the GPU memory to one writer: `with m.write() as x`.
    fn write(&self) -> Lock {
        Lock::new(&self.storage, true, At::Device)
    }

    /// Lends the memory to one writer, where it is, or moved to `device_type`: 1 (kDLCPU) or 2 (kDLCUDA). On the host
    /// NumPy takes it without a copy. An array kept after the block sees the writes of later users.
    #[pyo3(signature = (device_type=None))]
    fn get_dlpack(&self, device_type: Option<i32>) -> PyResult<Lock> {
        let at = device_type.map_or(Ok(self.storage.at()), At::try_from)?;
        Ok(Lock::new(&self.storage, true, at))
    }

    /// Moves the values to `device_type`: 1 (kDLCPU) or 2 (kDLCUDA), unless they are there. The copy runs after the
    /// work queued on `stream`. For a copy to the GPU, `stream` waits.
    ///
    /// With `async_copy` a thread copies to the host, and the next use of the memory waits for it. The host never waits
    /// for a copy to the GPU.
    #[pyo3(signature = (device_type, stream=None, async_copy=false))]
    fn move_memory(
        &self,
        py: Python<'_>,
        device_type: i32,
        stream: Option<&Bound<'_, PyAny>>,
        async_copy: bool,
    ) -> PyResult<()> {
        let at = At::try_from(device_type)?;
        let taken = self.storage.take(py, true)?;
        if self.storage.at() == at {
            return Ok(());
        }
        if let Some(stream) = stream {
            let view = self.storage.array().into_pyobject(py)?;
            view.call_method1("release", (stream,))?;
        }
        if at == At::Host && async_copy {
            return taken.move_to_host_later(py);
        }
        taken.move_to(py, at)?;
        if let (Some(stream), At::Device) = (stream, at) {
            let view = self.storage.array().dlpack().into_pyobject(py)?;
            // `stream` waits for the memory's stream, as for any consumer.
            view.call_method("__dlpack__", (), Some(&[("stream", stream)].into_py_dict(py)?))?;
        }
        Ok(())
    }

    /// Copies a NumPy array, or an object that `numpy.asarray` takes, to the host memory, which is current from then
    /// on. The array must have the memory's shape. Its elements are converted.
    fn read_numpy_array(&self, py: Python<'_>, array: &Bound<'_, PyAny>) -> PyResult<()> {
        let values = self.on_host(py, array)?;
        let taken = self.storage.take(py, true)?;
        py.import("numpy")?.call_method1("copyto", (taken.host(py)?, values))?;
        taken.set_at(At::Host);
        Ok(())
    }

    /// Returns an indexer for the shape.
    fn get_indexer(&self) -> ArrayIndexer {
        ArrayIndexer::new(self.storage.array().shape())
    }

    /// Reads the element at `indices`, on the GPU or on the host.
    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        indices: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let at = self.place(indices)?;
        let taken = self.storage.take(py, false)?;
        if self.storage.at() == At::Host {
            return taken.host(py)?.getattr("flat")?.get_item(at)?.call_method0("item");
        }
        let one = self.storage.array().strided(at, &[1], &[1])?;
        by_type!(one, first(py, &self.storage.stream, &one))
    }

    /// Writes the element at `indices`, on the GPU or on the host.
    fn __setitem__(
        &self,
        py: Python<'_>,
        indices: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let at = self.place(indices)?;
        let taken = self.storage.take(py, true)?;
        if self.storage.at() == At::Host {
            return taken.host(py)?.getattr("flat")?.set_item(at, value);
        }
        let one = self.storage.array().strided(at, &[1], &[1])?;
        let value = py.import("numpy")?.call_method1("full", (1, value, one.dtype().name()))?;
        by_type!(one, to_device(&self.storage.stream, &value, &one))
    }

    /// Adds its index to each element, by a kernel on the GPU. Integers wrap around. Takes the write lock, and moves
    /// the values to the GPU.
    fn add_index(&self, py: Python<'_>) -> PyResult<()> {
        let taken = self.storage.take_at(py, true, At::Device)?;
        let array = self.storage.array();
        let stream = &taken.storage.stream;
        Ok(py.detach(|| by_type!(array, add_index(stream, array.clone().writable()?)))?)
    }

    /// Copies another library's array into the memory. It must have the memory's shape and type. On a GPU it may have
    /// up to three dimensions in any order, or be C-contiguous. On the host it works like `read_numpy_array`.
    fn assign(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        if is_on_host(values)? {
            return self.read_numpy_array(py, values);
        }
        let (values, array) = (values.extract::<Array>()?, self.storage.array());
        self.check_shape(values.shape())?;
        if values.dtype() != array.dtype() {
            let (got, allowed) = (values.dtype().name(), array.dtype().name());
            return Err(PyTypeError::new_err(format!("dtype: got {got}; allowed: {allowed}")));
        }
        let taken = self.storage.take(py, true)?;
        let stream = &self.storage.stream;
        py.detach(|| by_type!(array, copy(stream, &values, &array)))?;
        taken.set_at(At::Device);
        Ok(())
    }
}

impl MemArray {
    fn check_shape(&self, got: &[i64]) -> PyResult<()> {
        let shape = self.shape();
        if got != shape {
            return Err(PyValueError::new_err(format!("shape: got {got:?}; allowed: {shape:?}")));
        }
        Ok(())
    }

    fn on_host<'py>(&self, py: Python<'py>, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let numpy = py.import("numpy")?;
        let by_dlpack = x.hasattr("__dlpack__")? && !x.hasattr("__array__")?;
        let x = if by_dlpack { &numpy.call_method1("from_dlpack", (x,))? } else { x };
        let array = numpy.call_method1("asarray", (x, self.dtype()))?;
        self.check_shape(&array.getattr("shape")?.extract::<Vec<i64>>()?)?;
        Ok(array)
    }

    /// The position of the element `m[indices]`.
    fn place(&self, indices: &Bound<'_, PyAny>) -> PyResult<i64> {
        let indices = indices.extract().or_else(|_| indices.extract().map(|i: i64| vec![i]))?;
        self.get_indexer().__call__(indices)
    }
}

/// Whether `x` is on the host, by its own statement, or because it speaks no GPU protocol.
fn is_on_host(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Some(device) = x.getattr_opt("__dlpack_device__")? {
        return Ok(device.call0()?.get_item(0)?.extract::<i64>()? == At::Host as i64);
    }
    let arrays = x.hasattr("__array_interface__")? || x.hasattr("__len__")?;
    Ok(arrays && !x.hasattr("__cuda_array_interface__")?)
}

fn first<'py, T: Value + IntoPyObject<'py>>(
    py: Python<'py>,
    stream: &DeviceStream,
    one: &Array,
) -> PyResult<Bound<'py, PyAny>> {
    let value = py.detach(|| one.to_vec::<T>(stream))?;
    value.get(0..1).map(<[T]>::to_vec).unwrap_or_default().into_pyobject(py)?.get_item(0)
}

fn zeros<T: Value>(stream: &DeviceStream, shape: &[i64]) -> Result<ArrayMut> {
    let size = shape.iter().product::<i64>();
    Array::from_host(stream, &vec![T::default(); usize::try_from(size).unwrap_or(0)], shape)
}

#[pymodule(gil_used = false)]
mod memory_class {
    #[pymodule_export]
    use super::{ArrayIndexer, Lock, MemArray};
}
