//! The Python layer: the module, the two views, and what reads and writes Python objects.
//!
//! Nothing here decides on streams or layouts; the core does. Docs of what Python sees are numpydoc.
#![allow(clippy::doc_markdown)]

mod errors;

mod native;

mod unraised;

mod traced;

mod stream;

mod flag;

mod current;

mod adopt;

mod parked;

mod back;

mod ending;

mod keep;

mod source;

mod fields;

mod view;

mod view_class;

mod types;

mod guards;

mod dlpack_source;

mod cai_source;

mod cai_view;

mod wish;

mod shared;

mod copy_end;

mod copied;

mod dlpack_view;

mod trace;

mod events;

mod simulated;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _core {
    use pyo3::exceptions::PyImportError;
    use pyo3::prelude::*;

    use super::cai_view::{CaiView, to_cai};
    use super::dlpack_view::{DLPackView, from_cai};
    use super::errors::{DriverError, HostSyncWarning};
    use super::events::_set_event_level;
    use super::parked::_stop_watching;
    use super::trace::{_start_trace, _stop_trace, Recording};
    use crate::driver::fork;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        // First of all: classes are made once a process, and would belong to a subinterpreter that
        // comes first. CPython refuses those with a lock of their own by itself.
        if super::native::interpreter(py) != 0 {
            return Err(PyImportError::new_err(
                "cai_bridge: got a subinterpreter; allowed: the main interpreter of a process",
            ));
        }
        fork::watch();
        super::events::install();
        super::cai_source::ordering_wanted();
        let stop = wrap_pyfunction!(_stop_watching, module)?;
        py.import("atexit")?.call_method1("register", (&stop,))?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add_class::<CaiView>()?;
        module.add_class::<DLPackView>()?;
        module.add("DriverError", py.get_type::<DriverError>())?;
        module.add("HostSyncWarning", py.get_type::<HostSyncWarning>())?;
        module.add_function(wrap_pyfunction!(to_cai, module)?)?;
        module.add_function(wrap_pyfunction!(from_cai, module)?)?;
        module.add_function(wrap_pyfunction!(_set_event_level, module)?)?;
        module.add_class::<Recording>()?;
        module.add_function(wrap_pyfunction!(_start_trace, module)?)?;
        module.add_function(wrap_pyfunction!(_stop_trace, module)?)?;
        module.add_function(stop)?;
        super::simulated::register(module)?;
        dlpark::python::install_exchange_api::<DLPackView>(py)
    }
}
