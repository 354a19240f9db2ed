//! The exchange API of the bridge's classes. All its functions but the allocator take the interpreter's lock and call
//! dlpark's. dlpark would take the lock by PyO3's count of attachments, which is wrong if foreign code further up the
//! stack has released the lock.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};

use dlpark::ffi::DLPackExchangeAPI;
use dlpark::python::DlpackExchangeProducer;
use pyo3::PyTypeInfo;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::interpreter::attached;

/// The capsule's name (`dlpack.h`, "DLPackExchangeAPI").
pub(super) const NAME: &CStr = c"dlpack_exchange_api";

#[derive(Debug)]
pub(super) struct DlparkTable(pub(super) &'static DLPackExchangeAPI);

// SAFETY: nothing writes to the table any more, and the bridge calls its functions with the interpreter's lock.
unsafe impl Send for DlparkTable {}
// SAFETY: nothing writes to the table any more, and the bridge calls its functions with the interpreter's lock.
unsafe impl Sync for DlparkTable {}

/// Makes dlpark install its table on the class, removes the table from the class, and returns it.
pub(super) fn dlparks<T: DlpackExchangeProducer>(py: Python<'_>) -> PyResult<DlparkTable> {
    dlpark::python::install_exchange_api::<T>(py)?;
    let (class, name) = (py.get_type::<T>(), "__dlpack_c_exchange_api__");
    let capsule = class.getattr(name)?;
    class.delattr(name)?;
    let pointer = capsule.cast::<PyCapsule>()?.pointer_checked(Some(NAME))?;
    // SAFETY: dlpark has just made this capsule, and leaks the table in it.
    Ok(DlparkTable(unsafe { pointer.cast::<DLPackExchangeAPI>().as_ref() }))
}

pub(super) fn put<T: PyTypeInfo>(py: Python<'_>, table: DLPackExchangeAPI) -> PyResult<()> {
    let table = Box::leak(Box::new(table));
    // SAFETY: the table lives as long as the process, so the capsule needs no destructor.
    let capsule = unsafe {
        let made = pyo3::ffi::PyCapsule_New((&raw mut *table).cast(), NAME.as_ptr(), None);
        Bound::from_owned_ptr_or_err(py, made)?
    };
    py.get_type::<T>().setattr("__dlpack_c_exchange_api__", capsule)
}

/// Returns -1 if this thread may not take the interpreter's lock. A pending exception stays pending, unless `call` sets
/// another exception.
pub(super) fn entered(call: impl FnOnce() -> c_int) -> c_int {
    let answer = attached(|py| {
        let pending = PyErr::take(py);
        let code = call();
        if let Some(pending) = pending
            && !PyErr::occurred(py)
        {
            pending.restore(py);
        }
        code
    });
    answer.unwrap_or(-1)
}

/// Puts the exchange API of `$class` on `$on`, the class itself or a subclass.
macro_rules! install_table {
    ($class:ty => $on:ty, $py:expr) => {{
        use std::ffi::{c_int, c_void};

        use dlpark::ffi::{DLDeviceType, DLManagedTensorVersioned, DLPackExchangeAPI, DLTensor};
        use $crate::py::exchange_api::{DlparkTable, dlparks, entered, put};

        static INNER: std::sync::OnceLock<DlparkTable> = std::sync::OnceLock::new();

        /// Returns -1 if dlpark's table lacks the function.
        fn call<F>(
            field: impl FnOnce(&DLPackExchangeAPI) -> Option<F>,
            call: impl FnOnce(F) -> c_int,
        ) -> c_int {
            let function = INNER.get().and_then(|inner| field(inner.0));
            entered(|| function.map_or(-1, call))
        }

        #[allow(unsafe_code)]
        unsafe extern "C" fn export(
            object: *mut c_void,
            out: *mut *mut DLManagedTensorVersioned,
        ) -> c_int {
            // SAFETY: the arguments are the caller's own, passed on unchanged.
            call(|t| t.managed_tensor_from_py_object_no_sync, |f| unsafe { f(object, out) })
        }

        #[allow(unsafe_code)]
        unsafe extern "C" fn import(
            tensor: *mut DLManagedTensorVersioned,
            out: *mut *mut c_void,
        ) -> c_int {
            // SAFETY: the arguments are the caller's own, passed on unchanged.
            call(|t| t.managed_tensor_to_py_object_no_sync, |f| unsafe { f(tensor, out) })
        }

        #[allow(unsafe_code)]
        unsafe extern "C" fn borrow(object: *mut c_void, out: *mut DLTensor) -> c_int {
            // SAFETY: the arguments are the caller's own, passed on unchanged.
            call(|t| t.dltensor_from_py_object_no_sync, |f| unsafe { f(object, out) })
        }

        #[allow(unsafe_code)]
        unsafe extern "C" fn stream(kind: DLDeviceType, id: i32, out: *mut *mut c_void) -> c_int {
            // SAFETY: the arguments are the caller's own, passed on unchanged.
            call(|t| t.current_work_stream, |f| unsafe { f(kind, id, out) })
        }

        (|| {
            let made = dlparks::<$class>($py)?;
            let DlparkTable(inner) = *INNER.get_or_init(|| made);
            put::<$on>(
                $py,
                DLPackExchangeAPI {
                    header: inner.header,
                    managed_tensor_allocator: inner.managed_tensor_allocator,
                    managed_tensor_from_py_object_no_sync: Some(export),
                    managed_tensor_to_py_object_no_sync: Some(import),
                    dltensor_from_py_object_no_sync: Some(borrow),
                    current_work_stream: Some(stream),
                },
            )
        })()
    }};
}
pub(crate) use install_table;
