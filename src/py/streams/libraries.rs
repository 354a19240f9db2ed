//! The streams that PyTorch, CuPy, Numba, tvm-ffi and the simulated device's libraries name, each asked by the cheapest
//! way that it has. What a library raises is no answer; an interrupt passes through.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyType};

use crate::device::Device;
use crate::dlpack::exchange::Table;
use crate::py::imported::imported;
use crate::py::interpreter::{Answer, answered, entry};
use crate::stream::{Stream, Thread};

/// How PyTorch is asked for its current stream.
enum Torch {
    /// By its exchange API.
    Table(Table),
    /// `torch._C._cuda_getCurrentRawStream(device)`: before 2.10 it has no exchange API.
    Python(Py<PyAny>),
}

impl Torch {
    /// `None` where it is built without CUDA.
    fn of(torch: &Bound<'_, PyAny>, tensor: &Bound<'_, PyType>) -> PyResult<Option<Self>> {
        let py = torch.py();
        if let Some(table) = answered(py, Table::of(tensor))?.flatten() {
            return Ok(Some(Self::Table(table)));
        }
        let function = torch
            .getattr(intern!(py, "_C"))
            .and_then(|native| native.getattr(intern!(py, "_cuda_getCurrentRawStream")));
        Ok(answered(py, function)?.map(|function| Self::Python(function.unbind())))
    }
}

/// The stream that PyTorch works on now, as the driver names it.
pub(crate) fn torchs(py: Python<'_>, ordinal: i32) -> PyResult<Option<u64>> {
    static TORCH: PyOnceLock<Option<Torch>> = PyOnceLock::new();
    let torch = if let Some(torch) = TORCH.get(py) {
        torch
    } else {
        let Some(module) = imported(py, intern!(py, "torch"))? else { return Ok(None) };
        let tensor = answered(py, module.getattr(intern!(py, "Tensor")))?;
        let Some(tensor) = tensor.and_then(|tensor| tensor.cast_into::<PyType>().ok()) else {
            return Ok(None);
        };
        let torch = Torch::of(&module, &tensor)?;
        TORCH.get_or_init(py, || torch)
    };
    match torch {
        None => Ok(None),
        Some(Torch::Table(table)) => {
            answered(py, table.current_work_stream(py, Device::cuda(ordinal)))
        }
        Some(Torch::Python(function)) => {
            let native = function.bind(py).call1((ordinal,));
            answered(py, native.and_then(|native| native.extract::<u64>()))
        }
    }
}

/// How CuPy is asked for its current stream.
enum Cupy {
    /// `cupy_backends.cuda.stream.get_stream_ptr(device)`, which CuPy's own extensions call.
    Native(unsafe extern "C" fn(c_int) -> isize),
    /// By [`cupys_object`]: before 14.
    Python(Py<PyAny>),
}

/// The stream that CuPy works on now, as the driver names it.
pub(super) fn cupys(py: Python<'_>, ordinal: i32) -> PyResult<Option<u64>> {
    static CUPY: PyOnceLock<Cupy> = PyOnceLock::new();
    let cupy = if let Some(cupy) = CUPY.get(py) {
        cupy
    } else {
        let Some(module) = imported(py, intern!(py, "cupy"))? else { return Ok(None) };
        if let Some(function) = answered(py, native(py))?.flatten() {
            CUPY.get_or_init(py, || Cupy::Native(function))
        } else {
            CUPY.get_or_init(py, || Cupy::Python(module.unbind()))
        }
    };
    match cupy {
        Cupy::Native(function) => {
            // SAFETY: the capsule says that this is the function's type, and the lock is held.
            let native = unsafe { function(ordinal) };
            if PyErr::occurred(py)
                && let Some(error) = PyErr::take(py)
            {
                return answered(py, Err(error));
            }
            Ok(u64::try_from(native).ok())
        }
        Cupy::Python(module) => {
            let native = cupys_object(module.bind(py), ordinal)
                .and_then(|stream| stream.getattr(intern!(py, "ptr"))?.extract::<u64>());
            answered(py, native)
        }
    }
}

/// The object of the stream that CuPy works on now: `cupy.cuda.get_current_stream(device)`, which before 13 takes none
/// and is of the current one.
pub(super) fn cupys_object<'py>(
    cupy: &Bound<'py, PyAny>,
    ordinal: i32,
) -> PyResult<Bound<'py, PyAny>> {
    let py = cupy.py();
    let cuda = cupy.getattr(intern!(py, "cuda"))?;
    let function = cuda.getattr(intern!(py, "get_current_stream"))?;
    match function.call1((ordinal,)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            let device = cuda.call_method1(intern!(py, "Device"), (ordinal,))?;
            device.call_method0(intern!(py, "__enter__"))?;
            let stream = function.call0();
            device.call_method1(intern!(py, "__exit__"), (py.None(), py.None(), py.None()))?;
            stream
        }
        answer => answer,
    }
}

/// The same, as `to_cai` takes it.
#[pyfunction]
pub(crate) fn _stream_of_cupy(py: Python<'_>, device: i32) -> Answer<'_> {
    entry(py, || {
        let native = cupys_or_legacy(py, device)?;
        Ok(Stream::from_native(native, Thread::current()).handle())
    })
}

/// The same; the legacy default stream where it is not known.
pub(crate) fn cupys_or_legacy(py: Python<'_>, ordinal: i32) -> PyResult<u64> {
    Ok(cupys(py, ordinal)?.unwrap_or_default())
}

/// Whether CuPy says which stream it works on.
pub(crate) fn knows_cupy(py: Python<'_>) -> PyResult<bool> {
    Ok(cupys(py, 0)?.is_some())
}

/// CuPy's own entry point, which Cython keeps in a capsule whose name is the function's type.
fn native(py: Python<'_>) -> PyResult<Option<unsafe extern "C" fn(c_int) -> isize>> {
    const SIGNATURE: &CStr = c"intptr_t (int)";
    let name = intern!(py, "cupy_backends.cuda.stream");
    let Some(module) = imported(py, name)? else { return Ok(None) };
    let functions = module.getattr(intern!(py, "__pyx_capi__"))?;
    let capsule = functions.get_item(intern!(py, "get_stream_ptr"))?;
    let pointer = capsule.cast::<PyCapsule>()?.pointer_checked(Some(SIGNATURE))?;
    // SAFETY: Cython names the capsule of a C function by its type, which was just compared; the module, and
    // so the function, stays loaded.
    Ok(Some(unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> isize>(pointer.as_ptr())
    }))
}

/// Numba's default stream, or numba-cuda-mlir's, if `is_mlir`: the legacy one or, by its setting, the per-thread one.
pub(crate) fn numbas_default(py: Python<'_>, is_mlir: bool) -> PyResult<Stream> {
    let name = if is_mlir {
        intern!(py, "numba_cuda_mlir.numba_cuda.core")
    } else {
        intern!(py, "numba.cuda")
    };
    let Some(cuda) = imported(py, name)? else { return Ok(Stream::Legacy) };
    let per_thread = cuda
        .getattr(intern!(py, "config"))
        .and_then(|config| config.getattr(intern!(py, "CUDA_PER_THREAD_DEFAULT_STREAM")))
        .and_then(|flag| flag.is_truthy());
    Ok(match answered(py, per_thread)? {
        Some(true) => Stream::PerThread(Thread::current()),
        _ => Stream::Legacy,
    })
}

/// The stream that tvm-ffi's environment has for a GPU, as the driver names it: functions that are called through it
/// work on that one.
pub(crate) fn tvm_ffis(py: Python<'_>, ordinal: i32) -> PyResult<Option<u64>> {
    let Some(module) = imported(py, intern!(py, "tvm_ffi"))? else { return Ok(None) };
    let native = module
        .call_method1(intern!(py, "device"), ("cuda", ordinal))
        .and_then(|device| module.call_method1(intern!(py, "get_raw_stream"), (device,)))
        .and_then(|native| native.extract::<u64>());
    answered(py, native)
}

/// The streams that the simulated device's libraries work on, and whether each ignores those of dicts.
pub(super) fn simulated(py: Python<'_>, ordinal: i32) -> PyResult<Vec<(Bound<'_, PyAny>, bool)>> {
    let name = intern!(py, "cai_bridge.testing");
    let Some(testing) = imported(py, name)? else { return Ok(vec![]) };
    let streams = testing.call_method1(intern!(py, "_current_streams"), (ordinal,));
    Ok(answered(py, streams.and_then(|streams| streams.extract()))?.unwrap_or_default())
}
