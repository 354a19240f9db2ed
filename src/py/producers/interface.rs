//! Reads an object's CAI dict, or explains why it has none.

use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::refusals;
use super::types::{self, ProducerKind, TypeFacts};
use crate::device::Device;
use crate::error::{Error, Kind};
use crate::py::interpreter::answered;
use crate::py::streams::argument::pair;
use crate::py::text::{an_object, printed, type_name};
use crate::py::this_thread::asking;

/// The CAI dict of `x`, or `x` itself if it is a dict.
pub(super) fn interface<'py>(
    x: &Bound<'py, PyAny>,
    facts: &TypeFacts,
) -> PyResult<Bound<'py, PyDict>> {
    if facts.producer == ProducerKind::Dict {
        return Ok(x.cast::<PyDict>()?.clone());
    }
    if facts.lazy.is_some() {
        refusals::check_layout(x, facts)?;
        refusals::check(x, facts, None)?;
    }
    match asking(x, || x.getattr(intern!(x.py(), "__cuda_array_interface__"))) {
        Ok(interface) => match interface.cast_into::<PyDict>() {
            Ok(dict) => Ok(dict),
            Err(error) => Err(Error::new(Kind::DictType, an_object(&error.into_inner())?).into()),
        },
        Err(error) if error.is_instance_of::<PyAttributeError>(x.py()) => {
            Err(speechless(x, facts, error).unwrap_or_else(|interrupt| interrupt))
        }
        Err(error) => Err(error),
    }
}

/// Explains `error`, the `AttributeError` that `x.__cuda_array_interface__` raised.
#[cold]
fn speechless(x: &Bound<'_, PyAny>, facts: &TypeFacts, error: PyErr) -> PyResult<PyErr> {
    let py = x.py();
    let device = answered(py, x.call_method0(intern!(py, "__dlpack_device__")))?;
    let device = device.map(|device| pair(&device)).transpose()?.flatten();
    let device = device.map(|(kind, id)| Device::from_dlpack(kind, id));
    let refused = match device {
        Some(Err(elsewhere)) => elsewhere,
        _ if facts.has_cai => {
            let (name, raised) = (type_name(x)?, printed(error.value(py))?);
            let got = format!("{name}, whose __cuda_array_interface__ raised {raised}");
            Error::new(Kind::NotCai, got)
        }
        _ if facts.producer == ProducerKind::DLPackView => Error::new(
            Kind::NotCai,
            "a DLPackView, which speaks only DLPack and which to_cai takes",
        ),
        _ => {
            let has_table = facts.table.is_some();
            let speaks = if has_table || types::speaks(x, intern!(py, "__dlpack__"))? {
                "which speaks only DLPack and which to_cai and to_dlpack take \
                 (from_cai(to_cai(x, stream=-1), stream=...) names its stream)"
            } else {
                "which has no __cuda_array_interface__"
            };
            Error::new(Kind::NotCai, format!("{}, {speaks}", type_name(x)?))
        }
    };
    let refused = PyErr::from(refused);
    refused.set_cause(py, Some(error));
    Ok(refused)
}
