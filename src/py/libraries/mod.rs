//! The libraries that the bridge knows. `habits_only.rs` has the libraries with habits only. A library's Python half,
//! if any, is in `python/cai_bridge/_libraries`. `docs/adding.md` says how to add a library.

mod cuda_core;
mod cupy;
mod habits_only;
mod jax;
mod numba;
mod ordinary;
mod registered;
mod simulated;
mod torch;
mod tvm_ffi;
mod warp;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;

use super::interpreter::{Answer, entry};
use super::library::{self, Current, Library};
use crate::stream::{Stream, Thread};

const ALL: &[&dyn Library] = &[
    &torch::Torch,
    &jax::Jax,
    &cupy::Cupy,
    &numba::NUMBA,
    &numba::MLIR,
    &tvm_ffi::TvmFfi,
    &warp::WARP,
    &cuda_core::CUDA_CORE,
    &simulated::CaiBridgeTesting,
    &registered::Registered,
    &habits_only::HABITS_ONLY,
];

/// Call this before the first import of an array.
pub(crate) fn know(py: Python<'_>) {
    library::know(py, ALL);
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<CurrentStream>()?;
    module.add_class::<cupy::Ndarrays>()?;
    module.add_function(wrap_pyfunction!(jax::_xla_handler, module)?)?;
    module.add_function(wrap_pyfunction!(jax::_xla_said, module)?)?;
    module.add_function(wrap_pyfunction!(registered::_ask_for_streams, module)?)
}

/// A callable that returns a library's current stream, as `to_cai` takes it; the legacy default stream if the library
/// does not say. `convert` recognises objects of this class, and asks the library without calling them.
#[pyclass(frozen, module = "cai_bridge", name = "_CurrentStream")]
#[derive(Debug)]
pub(crate) struct CurrentStream {
    pub(super) library: &'static dyn Library,
    pub(super) current: &'static dyn Current,
}

#[pymethods]
impl CurrentStream {
    /// The callable for the library `name`. `KeyError` unless a known library of this name has a [`Current`].
    #[new]
    fn new(name: &str) -> PyResult<Self> {
        let library = ALL.iter().copied().find(|library| library.name() == name);
        let found = library.and_then(|library| Some(Self { library, current: library.current()? }));
        found.ok_or_else(|| PyKeyError::new_err(name.to_owned()))
    }

    fn __call__<'py>(&self, py: Python<'py>, device: i32) -> Answer<'py> {
        entry(py, || {
            let native = self.native(py, device)?;
            Ok(Stream::from_native(native, Thread::current()).handle())
        })
    }
}

impl CurrentStream {
    /// The driver handle of the library's current stream. If the library does not say, this is 0, the driver's handle
    /// for the legacy default stream.
    pub(crate) fn native(&self, py: Python<'_>, ordinal: i32) -> PyResult<u64> {
        Ok(self.current.native(py, ordinal)?.unwrap_or_default())
    }
}
