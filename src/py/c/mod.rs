//! The C interface: a table of functions in a capsule of the Python package, for extensions in C and C++. An extension
//! imports the table with `PyCapsule_Import(CAI_BRIDGE_CAPSULE, 0)`, and shares the state of the Python package.
#![allow(unsafe_code)]

mod abi;
mod answer;
mod array;
mod export;

use pyo3::prelude::*;

use self::abi::{CAI_BRIDGE_VERSION, CaiBridgeApi};
use self::array::{
    describe, describe_sized, device, give_back, import_object, order, ready_on, release, tensor,
};
use self::export::{export_object, export_sized, import_tensor};

static API: CaiBridgeApi = CaiBridgeApi {
    version: CAI_BRIDGE_VERSION,
    import_object,
    describe,
    order,
    give_back,
    release,
    export_object,
    device,
    describe_sized,
    export_sized,
    import_tensor,
    ready_on,
    tensor,
};

const CAPSULE: &std::ffi::CStr = c"cai_bridge._core._c_api";

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let table: *const CaiBridgeApi = &raw const API;
    // SAFETY: `module` shows that the interpreter's lock is held. The table and the name are static, so the capsule
    // needs no destructor.
    let capsule = unsafe {
        let made = pyo3::ffi::PyCapsule_New(table.cast_mut().cast(), CAPSULE.as_ptr(), None);
        Bound::from_owned_ptr_or_err(module.py(), made)?
    };
    module.setattr("_c_api", capsule)
}
