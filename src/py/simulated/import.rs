//! `_Import`: a managed tensor that a simulated consumer imported. dlpark decodes the tensor, because the bridge's own
//! decoder could hide a mistake of the bridge's encoder.

use dlpark::DlpackFlags;
use dlpark::python::ImportedDlpack;
use dlpark::python::consumer::exchange::ExchangeApi;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::tensor::region;
use crate::descriptor::Descriptor;
use crate::device::Device;
use crate::dlpack::exchange::ExchangeTable;
use crate::dtype::Dtype;
use crate::layout::Layout;
use crate::py::interpreter::{Answer, entry, without_lock};

/// An imported managed tensor. Dropping it deletes the tensor.
#[pyclass(frozen, weakref, module = "cai_bridge._core", name = "_Import")]
pub(crate) struct Import {
    managed: Option<ImportedDlpack>,
    array: Descriptor,
}

impl Drop for Import {
    /// Deletes the tensor without the interpreter's lock, as the destructor of PyTorch's tensors does.
    fn drop(&mut self) {
        if let Some(managed) = self.managed.take() {
            without_lock(|| drop(managed));
        }
    }
}

#[pymethods]
impl Import {
    fn region<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || region(py, &self.array))
    }
}

fn adopt(managed: ImportedDlpack) -> PyResult<Import> {
    let tensor = managed.validate().map_err(|error| PyBufferError::new_err(error.to_string()))?;
    let dtype = Dtype::of_dlpack(tensor.dtype().code.0, tensor.dtype().bits, tensor.dtype().lanes)?;
    let layout = Layout::from_elements(tensor.shape(), tensor.strides(), dtype.element_size())?;
    let device = Device::from_dlpack(tensor.device().device_type.0, tensor.device().device_id)?;
    let ptr = (tensor.data_ptr() as u64).wrapping_add(tensor.byte_offset());
    let readonly = managed.flags().contains(DlpackFlags::READ_ONLY);
    let array = Descriptor::new(ptr, dtype, layout, device, readonly)?;
    Ok(Import { managed: Some(managed), array })
}

/// Imports the managed tensor of a capsule, and marks the capsule as used.
#[pyfunction]
pub(super) fn _simulated_import_capsule<'py>(capsule: &Bound<'py, PyCapsule>) -> Answer<'py> {
    entry(capsule.py(), || {
        adopt(dlpark::python::from_dlpack(capsule.as_any().as_borrowed(), None, None)?)
    })
}

/// Imports `x` through its exchange API. Returns an `_Import` and the producer's current stream.
#[pyfunction]
pub(super) fn _simulated_import_exchange<'py>(x: &Bound<'py, PyAny>) -> Answer<'py> {
    entry(x.py(), || {
        let table = ExchangeApi::from_object(x.as_borrowed())?.ok_or_else(|| no_table(x))?;
        let (managed, stream) = table.import_managed_no_sync(x.as_borrowed())?.into_parts();
        Ok((adopt(ImportedDlpack::Versioned(managed))?, stream as u64))
    })
}

/// Borrows `x` through its exchange API. Returns the array's region and the producer's current stream.
#[pyfunction]
pub(super) fn _simulated_borrow_exchange<'py>(x: &Bound<'py, PyAny>) -> Answer<'py> {
    entry(x.py(), || {
        let table = ExchangeTable::of(&x.get_type())?.ok_or_else(|| no_table(x))?;
        let array = table.borrow(x)??;
        let stream = table.current_work_stream(x.py(), array.device())?;
        Ok((region(x.py(), &array)?, stream))
    })
}

fn no_table(x: &Bound<'_, PyAny>) -> PyErr {
    crate::py::text::type_name(x).map_or_else(
        |interrupt| interrupt,
        |name| {
            PyTypeError::new_err(format!(
                "object: got {name}; allowed: a type with __dlpack_c_exchange_api__"
            ))
        },
    )
}
