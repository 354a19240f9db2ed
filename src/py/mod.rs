//! The Python layer: the module, the two views, and what reads and writes Python objects.
//!
//! Nothing here decides on streams or layouts; the core does. Docs of what Python sees are numpydoc.
#![allow(clippy::doc_markdown)]

mod errors;

mod native;

mod unraised;

mod stream;

mod adopt;

mod parked;

mod keep;

mod source;

mod fields;

mod view;

mod types;

mod guards;

mod dlpack_source;

mod cai_source;

mod cai_view;

mod wish;

mod copied;

mod dlpack_view;

mod events;

mod simulated;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::cai_view::{CaiView, to_cai};
    #[pymodule_export]
    use super::dlpack_view::{DLPackView, from_cai};
    #[pymodule_export]
    use super::errors::{DriverError, HostSyncWarning};
    #[pymodule_export]
    use super::events::_set_event_level;
    #[pymodule_export]
    use super::parked::_stop_watching;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::events::install();
        super::cai_source::ordering_wanted();
        let stop = module.getattr("_stop_watching")?;
        module.py().import("atexit")?.call_method1("register", (stop,))?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        super::simulated::register(module)?;
        dlpark::python::install_exchange_api::<DLPackView>(module.py())
    }
}
