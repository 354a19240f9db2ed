//! Imports an array by another protocol if its first protocol failed.

use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;

use crate::error::{Error, Kind};
use crate::py::hand_over::{Recipient, hand_over};
use crate::py::interpreter::{answered, is_interrupt, raised};
use crate::py::lease::{HeldMemory, look};
use crate::py::producers::types::{ProducerKind, TypeFacts, speaks};
use crate::py::producers::{ImportFor, Refused, cai, dlpack, types};
use crate::py::streams::StreamArgument;
use crate::py::text::{an_object, shown};

/// Handles `refused`, the error of the first import. If the type has changed since then, calls `again`. After some
/// errors tries another protocol. Otherwise fails.
#[cold]
#[inline(never)]
pub(super) fn take_in(
    x: &Bound<'_, PyAny>,
    facts: &TypeFacts,
    asked: ImportFor<'_, '_>,
    refused: Refused,
    again: impl FnOnce(&TypeFacts) -> Result<Box<HeldMemory>, Refused>,
) -> PyResult<Box<HeldMemory>> {
    let py = x.py();
    let refused = refused.map(|error| raised(py, error));
    let (Refused::Here(error) | Refused::ByProducer(error)) = &refused;
    if is_interrupt(py, error) {
        return Err(refused.into());
    }
    if let Some(facts) = types::changed(x, facts)? {
        return Ok(again(&facts)?);
    }
    let may_be =
        error.is_instance_of::<PyAttributeError>(py) || error.is_instance_of::<PyTypeError>(py);
    match may_be.then(|| unspoken(x, facts)).transpose()?.flatten() {
        Some(Unspoken::Lacking) => from_dict(x, facts, asked),
        Some(Unspoken::NoMethod(wrong)) => Err(wrong.into()),
        None if facts.producer == ProducerKind::Foreign && refused.is_of_protocol(py) => {
            by_another_protocol(x, facts, asked, refused)
        }
        None => Err(refused.into()),
    }
}

fn by_another_protocol(
    x: &Bound<'_, PyAny>,
    facts: &TypeFacts,
    asked: ImportFor<'_, '_>,
    refused: Refused,
) -> PyResult<Box<HeldMemory>> {
    let py = x.py();
    let because = |error: PyErr, cause: &PyErr| {
        // A producer may raise one exception object twice. The object must not become its own cause.
        let mut causes = std::iter::successors(Some(cause.clone_ref(py)), |one| one.cause(py));
        if !causes.any(|one| one.value(py).is(error.value(py))) {
            error.set_cause(py, Some(cause.clone_ref(py)));
        }
        error
    };
    let mut first = PyErr::from(refused);
    if facts.table.is_some() && facts.has_dlpack {
        match dlpack::protocol(x, facts, facts, asked) {
            Ok(source) => return Ok(source),
            Err(refused) if refused.is_of_protocol(py) => first = because(refused.into(), &first),
            Err(refused) => return Err(because(refused.into(), &first)),
        }
    }
    // Without a dict, the error of DLPack stands. If reading the dict raises an exception, `from_dict` reports it.
    if !matches!(answered(py, has_cai(x))?, Some(true) | None) {
        return Err(first);
    }
    tracing::debug!(
        name: "route", target: "cai_bridge", library = asked.door,
        "the bridge uses the array's dict: its DLPack raised an exception"
    );
    from_dict(x, facts, asked).map_err(|error| because(error, &first))
}

enum Unspoken {
    /// The object has no readable `__dlpack__`, but its type has `__cuda_array_interface__`.
    Lacking,
    NoMethod(Error),
}

fn unspoken(x: &Bound<'_, PyAny>, facts: &TypeFacts) -> PyResult<Option<Unspoken>> {
    let name = intern!(x.py(), "__dlpack__");
    if facts.producer != ProducerKind::Foreign || !facts.has_dlpack {
        return Ok(None);
    }
    let Some(Some(method)) = answered(x.py(), x.getattr_opt(name))? else {
        return Ok(facts.has_cai.then_some(Unspoken::Lacking));
    };
    if method.is_callable() {
        return Ok(None);
    }
    let got = format!("{} whose __dlpack__ is {}", an_object(x)?, shown(&method)?);
    Ok(Some(Unspoken::NoMethod(Error::new(Kind::Protocol, got))))
}

/// Reads the attribute `__cuda_array_interface__`, which may be slow. So call this only if nothing else works.
pub(super) fn has_cai(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    speaks(x, intern!(x.py(), "__cuda_array_interface__"))
}

pub(super) fn from_dict(
    x: &Bound<'_, PyAny>,
    facts: &TypeFacts,
    asked: ImportFor<'_, '_>,
) -> PyResult<Box<HeldMemory>> {
    let ImportFor { door, argument, consumer, wanted } = asked;
    let options = cai::ImportOptions {
        door,
        stream: &StreamArgument::UNSPECIFIED,
        consumer,
        wanted,
        owner: None,
        device: None,
        dtype: None,
    };
    look(x.py());
    let mut source = cai::import(x, facts, &options)?;
    hand_over(door, x.py(), &mut source, &Recipient::of(argument))?;
    Ok(source)
}
