//! Arrays of Rust as return values of PyO3 functions.

use std::sync::Arc;

use dlpark::python::ImportedDlpack;
use pyo3::prelude::*;
use pyo3::{IntoPyObjectExt, PyErr};

use super::memory::PythonMemory;
use super::setup;
use crate::array::origin::{self, RustMemory, downcast};
use crate::array::{Array, ArrayMut};
use crate::dlpack::encode;
use crate::error::{Error, Kind};
use crate::py::interpreter::entry;
use crate::py::lease::{HeldMemory, Readiness};
use crate::py::observe::By;
use crate::py::source::consumers_place;
use crate::py::streams::{StreamArgument, StreamRef};
use crate::py::views::{ArrayView, BaseView, CaiView, DLPackView};
use crate::stream::Ready;

/// The protocol that a Python object speaks.
///
/// # Examples
///
/// ```no_run
/// use cai_bridge::{Array, OneProtocol, Speaking};
///
/// fn for_numba(x: Array) -> OneProtocol {
///     let answer = x.cai();
///     assert_eq!(answer.speaking(), Speaking::Cai);
///     answer
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaking {
    /// DLPack: `__dlpack__`, `__dlpack_device__` and the exchange API.
    Dlpack,
    /// The CUDA Array Interface, version 3.
    Cai,
}

/// An array that becomes a Python object with one protocol. [`Array::dlpack`] and [`Array::cai`] return it.
///
/// # Examples
///
/// ```no_run
/// use cai_bridge::{Array, OneProtocol};
///
/// /// For consumers that know both protocols but must take DLPack.
/// fn by_dlpack(x: Array) -> OneProtocol {
///     x.dlpack()
/// }
/// ```
#[derive(Debug, Clone)]
pub struct OneProtocol {
    array: Array,
    speaking: Speaking,
}

impl OneProtocol {
    /// The protocol of the Python object.
    ///
    /// # Examples
    ///
    /// See [`Speaking`].
    pub const fn speaking(&self) -> Speaking {
        self.speaking
    }
}

impl Array {
    /// Returns the array as a Python object that speaks DLPack only. A plain [`Array`] speaks both protocols.
    ///
    /// # Examples
    ///
    /// See [`OneProtocol`].
    pub const fn dlpack(self) -> OneProtocol {
        OneProtocol { array: self, speaking: Speaking::Dlpack }
    }

    /// Returns the array as a Python object that speaks the CUDA Array Interface only.
    ///
    /// # Examples
    ///
    /// See [`Speaking`].
    pub const fn cai(self) -> OneProtocol {
        OneProtocol { array: self, speaking: Speaking::Cai }
    }
}

/// Holds the memory for a new Python view. The producer's next work runs after the writes to the array that open scopes
/// have queued.
fn handed_out(py: Python<'_>, array: &Array) -> PyResult<Box<HeldMemory>> {
    setup::ready(py)?;
    if array.ptr() != 0 {
        origin::give_back(&*array.origin, &array.descriptor)?;
    }
    let mut source = source(py, array)?;
    if array.ptr() != 0 {
        let at = consumers_place(&source.array, source.producer_side.place);
        source.set_consumer(py, &StreamArgument::UNSPECIFIED, at)?;
    }
    Ok(source)
}

fn source(py: Python<'_>, array: &Array) -> PyResult<Box<HeldMemory>> {
    if let Some(taken) = downcast::<PythonMemory>(&array.origin) {
        return taken.source(py, &array.descriptor);
    }
    let Some(held) = downcast::<RustMemory>(&array.origin) else {
        return Err(Error::new(Kind::Released, "an array without an owner").into());
    };
    let managed = encode::versioned(&array.descriptor, Box::new(Arc::clone(&array.origin)))?;
    let (driver, place) = (array.origin.driver(), array.origin.place());
    let producer = StreamRef::held(driver, held.producer().clone())?;
    let managed = Some(ImportedDlpack::Versioned(managed));
    let mut source = HeldMemory::array(py.None(), managed, driver.clone(), By::Rust);
    source.set_place(place);
    source.array = array.descriptor.clone();
    source.produced(Readiness::of(Ready::On(producer.stream()), Some(producer)));
    Ok(source)
}

/// Makes a Python object that speaks both protocols. The object is ready on the array's stream.
impl<'py> IntoPyObject<'py> for Array {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        (&self).into_pyobject(py)
    }
}

impl<'py> IntoPyObject<'py> for &Array {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        entry(py, || BaseView::object::<ArrayView>(py, handed_out(py, self)?))
    }
}

impl<'py> IntoPyObject<'py> for ArrayMut {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Array::from(self).into_pyobject(py)
    }
}

/// Makes a Python object that speaks one protocol. The object is ready on the array's stream.
impl<'py> IntoPyObject<'py> for OneProtocol {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        entry(py, || {
            let source = handed_out(py, &self.array)?;
            match self.speaking {
                Speaking::Dlpack => {
                    BaseView::object::<DLPackView>(py, source)?.into_bound_py_any(py)
                }
                Speaking::Cai => BaseView::object::<CaiView>(py, source)?.into_bound_py_any(py),
            }
        })
    }
}
