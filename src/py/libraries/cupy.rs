//! CuPy: each thread has a current stream object for each GPU, and arrays do not keep a stream. The bridge can read
//! arrays by their attributes, and makes arrays from CuPy's own parts.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};

use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyType};

use crate::py::habits::{Habit, HabitRow, known};
use crate::py::imported::imported;
use crate::py::interpreter::{Answer, answered, entry};
use crate::py::library::{
    Address, ArrayParts, AttributeQuestions, Current, Library, Makes, NamedBy,
};
use crate::py::native::{self, ObjectQuestion};
use crate::py::numpy;
use crate::py::views::BaseView;
use crate::stream::Ready;

#[derive(Debug)]
pub(super) struct Cupy;

const HABITS: &[HabitRow] = &[
    known("cupy", Habit::KeepsToDlpack, "14.2.0", "gpu/test_races.py"),
    known("cupy", Habit::NamesCurrentStream, "14.2.0", "gpu/test_habits.py"),
    known("cupy", Habit::NeverClosesStreams, "14.2.0", "gpu/test_habits.py"),
];

impl Library for Cupy {
    fn name(&self) -> &'static str {
        "cupy"
    }

    fn habits(&self) -> &'static [HabitRow] {
        HABITS
    }

    fn current(&self) -> Option<&dyn Current> {
        Some(self)
    }

    fn handle_attribute(&self) -> Option<&'static str> {
        Some("ptr")
    }

    fn attributes(
        &'static self,
        x: &Bound<'_, PyAny>,
        kind: &Bound<'_, PyType>,
    ) -> PyResult<Option<AttributeQuestions>> {
        let py = x.py();
        let of = |kind, name| {
            Ok::<_, PyErr>(ObjectQuestion::attribute(kind, name)?.filter(ObjectQuestion::is_native))
        };
        // If a derived type overrides `__cuda_array_interface__` in Python, the bridge reads its arrays by their dicts.
        let own = of(kind, intern!(py, "__cuda_array_interface__"))?;
        if own.is_none() || self.native(py, 0)?.is_none() {
            return Ok(None);
        }
        let data = x.getattr(intern!(py, "data"))?.get_type();
        let (Some(shape), Some(strides), Some(dtype), Some(memory), Some(ptr)) = (
            of(kind, intern!(py, "shape"))?,
            of(kind, intern!(py, "strides"))?,
            of(kind, intern!(py, "dtype"))?,
            of(kind, intern!(py, "data"))?,
            of(&data, intern!(py, "ptr"))?,
        ) else {
            return Ok(None);
        };
        let contiguous = of(kind, intern!(py, "_c_contiguous"))?;
        numpy::know_all(py)?;
        let address = Box::new(CupyPointer { memory, kind: data.unbind(), ptr });
        Ok(Some(AttributeQuestions { shape, contiguous, strides, dtype, address }))
    }

    fn makes(&self, make: &Bound<'_, PyAny>) -> Option<Box<dyn Makes>> {
        let quick = make.cast::<Ndarrays>().ok()?;
        Some(Box::new(quick.clone().unbind()))
    }
}

enum CupyStreamRoute {
    /// `cupy_backends.cuda.stream.get_stream_ptr(device)`.
    Native(unsafe extern "C" fn(c_int) -> isize),
    /// The module `cupy`, which [`object`] asks if that C function was not found. CuPy before 14 has no such function.
    Python(Py<PyAny>),
}

impl Current for Cupy {
    fn native(&self, py: Python<'_>, ordinal: i32) -> PyResult<Option<u64>> {
        static ROUTE: PyOnceLock<CupyStreamRoute> = PyOnceLock::new();
        let asked = if let Some(asked) = ROUTE.get(py) {
            asked
        } else {
            let Some(module) = imported(py, intern!(py, "cupy"))? else { return Ok(None) };
            if let Some(function) = answered(py, entry_point(py))?.flatten() {
                ROUTE.get_or_init(py, || CupyStreamRoute::Native(function))
            } else {
                ROUTE.get_or_init(py, || CupyStreamRoute::Python(module.unbind()))
            }
        };
        match asked {
            CupyStreamRoute::Native(function) => {
                // SAFETY: the capsule's name says that the function has this type, and this thread holds the lock.
                let native = unsafe { function(ordinal) };
                if PyErr::occurred(py)
                    && let Some(error) = PyErr::take(py)
                {
                    return answered(py, Err(error));
                }
                Ok(u64::try_from(native).ok())
            }
            CupyStreamRoute::Python(module) => {
                let native = object(module.bind(py), ordinal)
                    .and_then(|stream| stream.getattr(intern!(py, "ptr"))?.extract::<u64>());
                answered(py, native)
            }
        }
    }

    fn object<'py>(&self, py: Python<'py>, ordinal: i32) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(cupy) = imported(py, intern!(py, "cupy"))? else { return Ok(None) };
        answered(py, object(&cupy, ordinal))
    }
}

/// Before CuPy 13, `get_current_stream` takes no device, and returns the stream of the current device.
fn object<'py>(cupy: &Bound<'py, PyAny>, ordinal: i32) -> PyResult<Bound<'py, PyAny>> {
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

/// `None` if the function's module is not imported.
fn entry_point(py: Python<'_>) -> PyResult<Option<unsafe extern "C" fn(c_int) -> isize>> {
    const SIGNATURE: &CStr = c"intptr_t (int)";
    let name = intern!(py, "cupy_backends.cuda.stream");
    let Some(module) = imported(py, name)? else { return Ok(None) };
    let functions = module.getattr(intern!(py, "__pyx_capi__"))?;
    let capsule = functions.get_item(intern!(py, "get_stream_ptr"))?;
    let pointer = capsule.cast::<PyCapsule>()?.pointer_checked(Some(SIGNATURE))?;
    // SAFETY: Cython names a C function's capsule by the function's type, which was just compared. The module, and so
    // the function, stays loaded.
    Ok(Some(unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> isize>(pointer.as_ptr())
    }))
}

/// Reads `x.data.ptr` if `x.data` is exactly of the type `kind`.
#[derive(Debug)]
struct CupyPointer {
    memory: ObjectQuestion,
    kind: Py<PyType>,
    ptr: ObjectQuestion,
}

impl Address for CupyPointer {
    fn read(&self, x: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        let data = self.memory.answer(x)?;
        if !data.get_type().is(&self.kind) {
            return Ok(None);
        }
        let address = self.ptr.answer(&data)?;
        Ok(native::small(&address).and_then(|ptr| u64::try_from(ptr).ok()))
    }

    fn stream<'py>(&self, _x: &Bound<'py, PyAny>) -> PyResult<Option<(Ready, NamedBy<'py>)>> {
        Ok(Some((Ready::Nothing, NamedBy::Library(&Cupy))))
    }
}

/// Makes an `ndarray` of a view, as `cupy.asarray` does of a dict, but reads no dict and makes no stream wait. The
/// array's memory keeps the view. `cai_bridge._libraries._cupy` passes CuPy's classes, and compares the first array
/// that has elements with the array of `cupy.asarray`.
#[pyclass(frozen, module = "cai_bridge", name = "_Ndarrays")]
#[derive(Debug)]
pub(super) struct Ndarrays {
    ndarray: Py<PyAny>,
    /// `__new__` and `_init` of the base class of `cupy.ndarray`. Calling the type instead takes twice as long.
    halves: Option<(Py<PyAny>, Py<PyAny>)>,
    /// `cupy.cuda.MemoryPointer`.
    pointer: Py<PyAny>,
    /// `cupy.cuda.UnownedMemory`.
    memory: Py<PyAny>,
}

#[pymethods]
impl Ndarrays {
    #[new]
    #[pyo3(signature = (ndarray, halves, pointer, memory))]
    const fn new(
        ndarray: Py<PyAny>,
        halves: Option<(Py<PyAny>, Py<PyAny>)>,
        pointer: Py<PyAny>,
        memory: Py<PyAny>,
    ) -> Self {
        Self { ndarray, halves, pointer, memory }
    }

    /// The array of `view`, which the caller has made ready on CuPy's current stream.
    fn __call__<'py>(
        &self,
        view: &Bound<'py, BaseView>,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> Answer<'py> {
        let _ = stream;
        entry(view.py(), || self.of(view.as_any(), view.get().parts(view.py())?))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.ndarray)?;
        if let Some((new, init)) = &self.halves {
            visit.call(new)?;
            visit.call(init)?;
        }
        visit.call(&self.pointer)?;
        visit.call(&self.memory)
    }
}

impl Ndarrays {
    fn of<'py>(
        &self,
        view: &Bound<'py, PyAny>,
        parts: ArrayParts<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = view.py();
        let memory = self.memory.bind(py).call1((parts.ptr, parts.nbytes, view, parts.device))?;
        let pointer = self.pointer.bind(py).call1((memory, 0))?;
        let ndarray = self.ndarray.bind(py);
        match &self.halves {
            Some((new, init)) => {
                let made = new.bind(py).call1((ndarray,))?;
                init.bind(py).call1((&made, parts.shape, parts.dtype, pointer, parts.strides))?;
                Ok(made)
            }
            None => ndarray.call1((parts.shape, parts.dtype, pointer, parts.strides)),
        }
    }
}

impl Makes for Py<Ndarrays> {
    fn make<'py>(
        &self,
        view: &Bound<'py, PyAny>,
        parts: ArrayParts<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.get().of(view, parts)
    }
}
