//! The Rust side of the simulated device: the private classes and functions of `cai_bridge._core` that
//! `cai_bridge.testing` uses. The Python side checks the arguments before it calls them.

mod import;
mod lend;
mod library;
mod record;
mod session;
mod tensor;
mod work;

use pyo3::prelude::*;
use pyo3::types::PyString;

/// Adds private names by `setattr`, because `PyModule::add` would list them in `__all__`.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.setattr("_Session", py.get_type::<session::Session>())?;
    module.setattr("_CapturedGraph", py.get_type::<session::CapturedGraph>())?;
    module.setattr("_Tensor", py.get_type::<tensor::SimulatedTensor>())?;
    module.setattr("_ExchangeTensor", py.get_type::<tensor::ExchangeTensor>())?;
    module.setattr("_Import", py.get_type::<import::Import>())?;
    for function in [
        wrap_pyfunction!(import::_simulated_import_capsule, module)?,
        wrap_pyfunction!(import::_simulated_import_exchange, module)?,
        wrap_pyfunction!(import::_simulated_borrow_exchange, module)?,
        wrap_pyfunction!(tensor::_simulated_region, module)?,
        wrap_pyfunction!(tensor::_simulated_values, module)?,
    ] {
        module.setattr(function.getattr("__name__")?.cast_into::<PyString>()?, function)?;
    }
    lend::register(module)?;
    crate::py::exchange_api::install_table!(tensor::ExchangeTensor => tensor::ExchangeTensor, py)
}
