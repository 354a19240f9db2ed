//! The Python layer: the module's classes and functions. A file or folder uses only files and folders above it in the
//! list of modules below. Docs of what Python sees are numpydoc.
#![allow(clippy::doc_markdown)]
// In an extension that links this crate, much of this layer is unused.
#![cfg_attr(not(feature = "wheel"), allow(dead_code, unused_imports))]

mod errors;

mod this_thread;

mod native;

mod by_type;

mod habits;

mod library;

mod interpreter;

mod imported;

mod plain;

mod text;

mod flag;

mod item_error;

mod anywhere;

mod numpy;

mod exchange_api;

mod observe;

mod streams;

mod cai_dict;

mod lease;

mod source;

mod hand_over;

mod views;

mod producers;

mod libraries;

mod doors;

pub(crate) mod rust;

#[cfg(feature = "wheel")]
mod c;

#[cfg(feature = "wheel")]
mod simulated;

#[cfg(feature = "wheel")]
mod ipc;

#[cfg(feature = "wheel")]
use pyo3::prelude::*;

#[cfg(feature = "wheel")]
#[pymodule(gil_used = false)]
mod _core {
    use pyo3::exceptions::PyImportError;
    use pyo3::prelude::*;

    use super::doors::convert::convert;
    use super::doors::copies::_detached;
    use super::doors::from_cai::from_cai;
    use super::doors::to_cai::to_cai;
    use super::doors::to_dlpack::to_dlpack;
    use super::doors::{_unraisable, CallArgument, Converter};
    use super::errors::{DriverError, HostSyncWarning};
    use super::imported::_imported;
    use super::lease::{_end, _settle};
    use super::library::{_forget_habits, _habits};
    use super::numpy::_dtypes;
    use super::observe::to_logging::_set_event_level;
    use super::observe::trace::{_start_trace, _stop_trace, Recording};
    use super::plain::_plain_types;
    use super::text::_shown;
    use super::views::{_to_numpy, ArrayView, BaseView, CaiView, DLPackView};
    use crate::array::unlocked::set_detach;
    use crate::driver::fork;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        // Check this first: PyO3 makes each class once per process, and so for the interpreter that imports the module
        // first.
        if super::native::interpreter(py) != 0 {
            return Err(PyImportError::new_err(
                "cai_bridge: got a subinterpreter; allowed: the main interpreter",
            ));
        }
        super::libraries::know(py);
        fork::watch();
        super::observe::to_logging::install();
        super::interpreter::quiet();
        super::producers::cai::ordering_wanted();
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add_class::<BaseView>()?;
        // PyO3 makes `__del__` an ordinary method. Setting it as an attribute makes it the class's finalizer.
        let view = py.get_type::<BaseView>();
        view.setattr("__del__", view.getattr("__del__")?)?;
        module.add_class::<CaiView>()?;
        // Create the type here, not at the first import of an array: PyO3 panics if there is not enough memory for it.
        py.get_type::<ArrayView>();
        module.add_class::<DLPackView>()?;
        let failed = py.get_type::<DriverError>();
        failed.setattr("call", py.None())?;
        failed.setattr("code", py.None())?;
        module.add("DriverError", failed)?;
        module.add("HostSyncWarning", py.get_type::<HostSyncWarning>())?;
        module.add_function(wrap_pyfunction!(to_cai, module)?)?;
        module.add_function(wrap_pyfunction!(from_cai, module)?)?;
        module.add_function(wrap_pyfunction!(to_dlpack, module)?)?;
        module.add_function(wrap_pyfunction!(convert, module)?)?;
        for function in ["to_cai", "from_cai", "to_dlpack", "convert"] {
            module.getattr(function)?.setattr("__module__", "cai_bridge")?;
        }
        module.add_class::<CallArgument>()?;
        module.add_class::<Converter>()?;
        module.add_function(wrap_pyfunction!(_detached, module)?)?;
        module.add_function(wrap_pyfunction!(_shown, module)?)?;
        module.add_function(wrap_pyfunction!(_plain_types, module)?)?;
        module.add_function(wrap_pyfunction!(_unraisable, module)?)?;
        module.add_function(wrap_pyfunction!(_imported, module)?)?;
        module.add_function(wrap_pyfunction!(_set_event_level, module)?)?;
        module.add_function(wrap_pyfunction!(_dtypes, module)?)?;
        module.add_function(wrap_pyfunction!(_habits, module)?)?;
        module.add_function(wrap_pyfunction!(_forget_habits, module)?)?;
        module.add_function(wrap_pyfunction!(_to_numpy, module)?)?;
        module.add_class::<Recording>()?;
        module.add_function(wrap_pyfunction!(_start_trace, module)?)?;
        module.add_function(wrap_pyfunction!(_stop_trace, module)?)?;
        module.add_function(wrap_pyfunction!(_end, module)?)?;
        module.add_function(wrap_pyfunction!(_settle, module)?)?;
        super::libraries::register(module)?;
        super::c::register(module)?;
        super::simulated::register(module)?;
        super::ipc::register(module)?;
        set_detach(super::interpreter::unlocked);
        super::exchange_api::install_table!(BaseView => ArrayView, py)?;
        super::exchange_api::install_table!(BaseView => DLPackView, py)
    }
}
