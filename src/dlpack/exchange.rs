//! DLPack 1.3's C exchange API: the table behind `type(x).__dlpack_c_exchange_api__`. By DLPack's contract the table's
//! functions do not synchronise: a tensor is ready on the stream that `current_work_stream` names at the export.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};

use dlpark::ffi::{
    DLDevice, DLDeviceType, DLManagedTensorVersioned, DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION,
    DLPackExchangeAPI, DLPackExchangeAPIHeader, DLPackVersion, DLTensor,
};
use dlpark::{DlpackFlags, Managed};
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyType};
use pyo3::{PyClass, intern};

use super::decode::{Header, check_version, descriptor, read_into};
use crate::descriptor::Descriptor;
use crate::device::Device;
use crate::error::{Error, Kind, Result};

const NAME: &CStr = c"dlpack_exchange_api";

/// The bridge looks at this many tables of a chain at most, since a broken chain could be a cycle.
const MAX_CHAIN: usize = 16;

/// A type's DLPack exchange table, major version 1. It lives as long as the process (`dlpack.h`, `DLPackExchangeAPI`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeTable(NonNull<DLPackExchangeAPI>);

// SAFETY: the table is constant and lives as long as the process (`dlpack.h`, "DLPackExchangeAPI"). Each method that
// calls one of its functions requires the interpreter lock.
unsafe impl Send for ExchangeTable {}
// SAFETY: the table is constant, and each method that calls one of its functions requires the interpreter lock.
unsafe impl Sync for ExchangeTable {}

impl ExchangeTable {
    /// `None` if the bridge finds no table of major version 1.
    pub fn of(kind: &Bound<'_, PyType>) -> PyResult<Option<Self>> {
        let attribute = match kind.getattr(intern!(kind.py(), "__dlpack_c_exchange_api__")) {
            Ok(attribute) => attribute,
            Err(error) if error.is_instance_of::<PyAttributeError>(kind.py()) => return Ok(None),
            Err(error) => return Err(error),
        };
        // Early versions of the exchange API used an integer instead of a capsule.
        let Ok(capsule) = attribute.cast::<PyCapsule>() else {
            return Ok(None);
        };
        let Ok(pointer) = capsule.pointer_checked(Some(NAME)) else {
            return Ok(None);
        };
        Ok(Self::known(pointer.cast()))
    }

    fn known(header: NonNull<DLPackExchangeAPIHeader>) -> Option<Self> {
        let mut next = Some(header);
        for _ in 0..MAX_CHAIN {
            let table = next?;
            // SAFETY: every table of the chain lives as long as the process, and begins with this header, whose layout
            // is the same in all versions (`dlpack.h`, "DLPackExchangeAPIHeader").
            let DLPackExchangeAPIHeader { version, prev_api } = unsafe { table.read() };
            if version.major == DLPACK_MAJOR_VERSION {
                return Some(Self(table.cast()));
            }
            next = NonNull::new(prev_api);
        }
        None
    }

    /// `x` must be of the table's type. Fails for a tensor of a major version other than 1, and deletes the tensor.
    #[inline(always)]
    pub fn import(self, x: &Bound<'_, PyAny>) -> PyResult<Imported> {
        // SAFETY: a table of major version 1 has this field.
        let call = unsafe { (*self.0.as_ptr()).managed_tensor_from_py_object_no_sync };
        let call = call.ok_or_else(|| missing("managed_tensor_from_py_object_no_sync"))?;
        let mut raw: *mut DLManagedTensorVersioned = ptr::null_mut();
        // SAFETY: `x` is a live object, and callers pass one of the table's type. The interpreter lock is held, and
        // `raw` outlives the call.
        let code = unsafe { call(x.as_ptr().cast(), &raw mut raw) };
        let failed = check(x.py(), code);
        let Some(tensor) = NonNull::new(raw).filter(|_| code == 0) else {
            failed?;
            return Err(broken("a NULL tensor"));
        };
        // SAFETY: every version of the structure begins with the version field.
        let known = check_version(unsafe { (*tensor.as_ptr()).version });
        // SAFETY: the pointer is not NULL, and the producer initialised the tensor and handed it over. For another
        // major version only its deleter is called, which is all that may be done.
        let managed = unsafe { Managed::from_raw(tensor.as_ptr()) };
        failed?;
        known?;
        match managed {
            Ok(managed) => Ok(Imported(managed)),
            Err(error) => Err(broken(&error.to_string())),
        }
    }

    /// `x` must be of the table's type. The memory is valid only while the caller holds `x` and runs no code of the
    /// library. The descriptor is never read-only: a borrowed tensor has no flags.
    pub fn borrow(self, x: &Bound<'_, PyAny>) -> PyResult<Result<Descriptor>> {
        // SAFETY: a table of major version 1 has this field.
        let call = unsafe { (*self.0.as_ptr()).dltensor_from_py_object_no_sync };
        let call = call.ok_or_else(|| missing("dltensor_from_py_object_no_sync"))?;
        let mut tensor = DLTensor::default();
        // SAFETY: `x` is a live object, and callers pass one of the table's type. The interpreter lock is held, and
        // `tensor` outlives the call.
        let code = unsafe { call(x.as_ptr().cast(), &raw mut tensor) };
        check(x.py(), code)?;
        // Libraries with a table follow DLPack 1.2 or later, which requires explicit strides. So read the tensor, which
        // has no version, as one of the newest version.
        let version = DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION };
        let header = Header { version: Some(version), flags: DlpackFlags::empty() };
        // SAFETY: by contract the shape and strides hold `ndim` integers, or are NULL if `ndim` is 0, until the
        // producer runs again.
        Ok(unsafe { descriptor(&tensor, header) })
    }

    /// Once the library's function is called, the library owns `managed`, even if the function fails.
    pub fn give(
        self,
        py: Python<'_>,
        managed: Managed<DLManagedTensorVersioned>,
    ) -> PyResult<Bound<'_, PyAny>> {
        // SAFETY: a table of major version 1 has this field.
        let call = unsafe { (*self.0.as_ptr()).managed_tensor_to_py_object_no_sync };
        let call = call.ok_or_else(|| missing("managed_tensor_to_py_object_no_sync"))?;
        let mut made: *mut c_void = ptr::null_mut();
        // SAFETY: the tensor is valid, and this call passes on its ownership (`dlpack.h`: "the ownership of the tensor
        // is stolen"). The interpreter lock is held, and `made` outlives the call.
        let code = unsafe { call(managed.into_raw(), &raw mut made) };
        check(py, code)?;
        // SAFETY: the function has succeeded, so `made` is a new reference, or NULL.
        let made = unsafe { Bound::from_owned_ptr_or_opt(py, made.cast()) };
        made.ok_or_else(|| broken("a NULL object"))
    }

    /// The driver handle of the library's current stream on the GPU `device.id`. 0 is the legacy default stream.
    #[inline(always)]
    pub fn current_work_stream(self, py: Python<'_>, device: Device) -> PyResult<u64> {
        // SAFETY: a table of major version 1 has this field.
        let call = unsafe { (*self.0.as_ptr()).current_work_stream };
        let call = call.ok_or_else(|| missing("current_work_stream"))?;
        let mut stream: *mut c_void = ptr::null_mut();
        // Ask for device type CUDA even for managed and pinned memory: a library could refuse any other type.
        let kind = DLDeviceType::CUDA;
        // SAFETY: the interpreter lock is held, and `stream` outlives the call.
        let code = unsafe { call(kind, device.id, &raw mut stream) };
        check(py, code)?;
        Ok(stream as u64)
    }
}

/// A managed tensor of major version 1.
#[allow(missing_debug_implementations, reason = "dlpark's handle has none")]
pub struct Imported(pub Managed<DLManagedTensorVersioned>);

impl Imported {
    pub fn array(&self) -> Result<Descriptor> {
        let mut array = Descriptor::EMPTY;
        self.read_into(&mut array)?;
        Ok(array)
    }

    /// After an error `array` is unusable.
    #[inline(always)]
    pub(crate) fn read_into(&self, array: &mut Descriptor) -> Result<()> {
        let header = Header { version: Some(self.0.version()), flags: self.0.flags() };
        // SAFETY: the code that made the handle promised valid shape and strides while the handle exists
        // (`Managed::from_raw`).
        unsafe { read_into(array, self.0.tensor(), header) }
    }
}

#[cold]
fn missing(field: &'static str) -> PyErr {
    broken(&format!("NULL for {field}"))
}

#[cold]
fn broken(got: &str) -> PyErr {
    Error::new(Kind::ExchangeTable, got).into()
}

/// Fails unless a function of the table returned 0 and set no exception.
fn check(py: Python<'_>, code: i32) -> PyResult<()> {
    if code == 0 && !PyErr::occurred(py) {
        return Ok(());
    }
    Err(PyErr::take(py).unwrap_or_else(|| broken("a failure without an exception")))
}

pub trait Exchange: PyClass {
    /// The tensor must be ready on the stream that [`Exchange::work_stream`] returns for the tensor's device.
    fn export(&self, py: Python<'_>) -> PyResult<Managed<DLManagedTensorVersioned>>;

    /// While `self` lives, the descriptor must neither move nor change.
    fn borrow(&self, py: Python<'_>) -> PyResult<&Descriptor>;

    fn work_stream(py: Python<'_>, device: Device) -> PyResult<u64>;

    /// `array` must describe `managed`.
    fn import(
        py: Python<'_>,
        managed: Managed<DLManagedTensorVersioned>,
        array: Descriptor,
    ) -> PyResult<Py<Self>>;
}

pub fn import_managed<T: Exchange>(
    py: Python<'_>,
    managed: Managed<DLManagedTensorVersioned>,
) -> PyResult<Py<T>> {
    let imported = Imported(managed);
    let array = imported.array()?;
    let Imported(managed) = imported;
    T::import(py, managed, array)
}

/// NULL for the CPU, which has no stream. Fails for memory of another accelerator.
pub fn work_stream<T: Exchange>(py: Python<'_>, device: DLDevice) -> PyResult<*mut c_void> {
    match Device::from_dlpack(device.device_type.0, device.device_id) {
        Ok(device) => T::work_stream(py, device).map(|stream| stream as *mut c_void),
        Err(error) if error.kind() == Kind::CpuMemory => Ok(ptr::null_mut()),
        Err(error) => Err(Error::into(error)),
    }
}

/// `$class` must implement [`Exchange`]. `install_table!` puts the table on `$class` or on a subclass.
macro_rules! exchange_producer {
    ($class:ty) => {
        // SAFETY: `borrow` returns a descriptor that the frozen object owns and never changes, so the pointers to shape
        // and strides stay valid while the object lives. An object for which `borrow` succeeds holds its memory.
        // Managed tensors come from `encode`, which follows DLPack's ownership rules. The stream is the legacy default
        // stream, which is never destroyed, or the current stream of the simulated library.
        #[allow(unsafe_code)]
        unsafe impl dlpark::python::DlpackExchangeProducer for $class {
            const HAS_DLTENSOR_VIEW: bool = true;

            fn managed_tensor_no_sync(
                &self,
                py: pyo3::Python<'_>,
            ) -> pyo3::PyResult<dlpark::Managed<dlpark::ffi::DLManagedTensorVersioned>> {
                $crate::dlpack::exchange::Exchange::export(self, py)
            }

            fn tensor_view_no_sync(
                &self,
                py: pyo3::Python<'_>,
            ) -> pyo3::PyResult<dlpark::ffi::DLTensor> {
                $crate::dlpack::exchange::Exchange::borrow(self, py)
                    .map($crate::dlpack::encode::borrowed)
            }

            fn current_work_stream(
                py: pyo3::Python<'_>,
                device: dlpark::ffi::DLDevice,
            ) -> pyo3::PyResult<*mut std::ffi::c_void> {
                $crate::dlpack::exchange::work_stream::<Self>(py, device)
            }

            fn from_managed_tensor_no_sync(
                py: pyo3::Python<'_>,
                managed: dlpark::Managed<dlpark::ffi::DLManagedTensorVersioned>,
            ) -> pyo3::PyResult<pyo3::Py<Self>> {
                $crate::dlpack::exchange::import_managed(py, managed)
            }
        }
    };
}
pub(crate) use exchange_producer;
