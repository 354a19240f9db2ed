//! Numba and numba-cuda-mlir: each array has its stream object, or 0 for the default stream, which a setting chooses.
//! The bridge can read arrays by their attributes.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::py::habits::{Habit, HabitRow, is_of, known};
use crate::py::imported::imported;
use crate::py::interpreter::answered;
use crate::py::library::{Address, AttributeQuestions, Library, NamedBy};
use crate::py::native::{self, ObjectQuestion};
use crate::py::numpy;
use crate::py::streams::handle_of;
use crate::stream::{Ready, Stream, Thread};

#[derive(Debug)]
pub(super) struct Numba {
    name: &'static str,
    habits: &'static [HabitRow],
    /// Returns the import name of the module whose attribute `config` has the library's settings.
    settings: for<'py> fn(Python<'py>) -> &'py Bound<'py, PyString>,
}

pub(super) const NUMBA: Numba = Numba {
    name: "numba",
    habits: &[
        known("numba", Habit::DefaultStreamUnnamed, "0.30.4", "gpu/test_habits.py"),
        known("numba", Habit::LeavesOutStrides, "0.30.4", "gpu/test_habits.py"),
        known("numba", Habit::KeepsStreamObject, "0.30.4", "gpu/test_habits.py"),
        known("numba", Habit::NeverClosesStreams, "0.30.4", "gpu/test_habits.py"),
    ],
    settings: |py| intern!(py, "numba.cuda"),
};

pub(super) const MLIR: Numba = Numba {
    name: "numba_cuda_mlir",
    habits: &[
        known("numba_cuda_mlir", Habit::DefaultStreamUnnamed, "0.6.0", TEST),
        known("numba_cuda_mlir", Habit::LeavesOutStrides, "0.6.0", TEST),
        known("numba_cuda_mlir", Habit::KeepsStreamObject, "0.6.0", TEST),
        known("numba_cuda_mlir", Habit::NeverClosesStreams, "0.6.0", TEST),
    ],
    settings: |py| intern!(py, "numba_cuda_mlir.numba_cuda.core"),
};

const TEST: &str = "python/libraries/test_numba.py";

impl Library for Numba {
    fn name(&self) -> &'static str {
        self.name
    }

    fn habits(&self) -> &'static [HabitRow] {
        self.habits
    }

    /// The legacy default stream or, by the library's setting, the per-thread one.
    fn default_stream(&self, py: Python<'_>) -> PyResult<Stream> {
        let Some(cuda) = imported(py, (self.settings)(py))? else { return Ok(Stream::Legacy) };
        let per_thread = cuda
            .getattr(intern!(py, "config"))
            .and_then(|config| config.getattr(intern!(py, "CUDA_PER_THREAD_DEFAULT_STREAM")))
            .and_then(|flag| flag.is_truthy());
        Ok(match answered(py, per_thread)? {
            Some(true) => Stream::PerThread(Thread::current()),
            _ => Stream::Legacy,
        })
    }

    fn older_handle(&self, stream: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        stream.call_method0(intern!(stream.py(), "__int__"))?.extract().map(Some)
    }

    /// `None` if a class overrides the library's `__cuda_array_interface__`.
    fn attributes(
        &'static self,
        _x: &Bound<'_, PyAny>,
        kind: &Bound<'_, PyType>,
    ) -> PyResult<Option<AttributeQuestions>> {
        let py = kind.py();
        let property = kind.getattr(intern!(py, "__cuda_array_interface__"))?;
        let maker = property.getattr(intern!(py, "fget"))?.getattr(intern!(py, "__module__"))?;
        if !is_of(maker.cast::<PyString>()?.to_str()?, self.name) {
            return Ok(None);
        }
        numpy::know_all(py)?;
        Ok(Some(AttributeQuestions {
            shape: ObjectQuestion::named(intern!(py, "shape")),
            contiguous: None,
            strides: ObjectQuestion::named(intern!(py, "strides")),
            dtype: ObjectQuestion::named(intern!(py, "dtype")),
            address: Box::new(Ctypes(self)),
        }))
    }
}

#[derive(Debug)]
struct Ctypes(&'static Numba);

impl Address for Ctypes {
    fn read(&self, x: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        let py = x.py();
        let memory = x.getattr(intern!(py, "gpu_data"))?;
        if memory.is_none() {
            return Ok(None);
        }
        let pointer = memory.getattr(intern!(py, "device_ctypes_pointer"))?;
        let address = match pointer.getattr_opt(intern!(py, "value"))? {
            Some(address) => address,
            // With NVIDIA's binding, Numba's own CUDA target (0.61) has a pointer object without `value`.
            None => pointer.call_method0(intern!(py, "__int__"))?,
        };
        Ok(native::small(&address).and_then(|ptr| u64::try_from(ptr).ok()))
    }

    fn stream<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Option<(Ready, NamedBy<'py>)>> {
        let py = x.py();
        let object = x.getattr(intern!(py, "stream"))?;
        let object = (native::small(&object) != Some(0)).then_some(object);
        let native = match &object {
            Some(object) => answered(py, handle_of(object))?,
            None => Some(0),
        };
        let stream = match native {
            None => return Ok(None),
            Some(0) => self.0.default_stream(py)?,
            Some(native) => Stream::from_native(native, Thread::current()),
        };
        Ok(Some((Ready::On(stream), NamedBy::Array(object))))
    }
}
