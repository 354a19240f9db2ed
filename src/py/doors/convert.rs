//! `convert`: an array of any library as one of another, and trees of them.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use super::Optional;
use super::converter::Converter;
use super::library_traits::DOOR;
use super::tree::{ConvertOptions, Root};
use super::walk::is_container;
use crate::py::flag;
use crate::py::interpreter::{Answer, answered, entry};
use crate::py::observe::CallSpan;

/// Convert an array of any library to an array of another, over the same memory.
///
/// The library's current stream, or `stream`, waits for the producer's. The host waits for a copy to the
/// host, as for NumPy, and if nobody says on which stream the array is ready, see `from_cai`. It may wait
/// for a copy from the host to a GPU. The new array keeps the producer alive, and at its end the
/// producer's stream waits for the consumer's.
///
/// Parameters
/// ----------
/// x : object
///     An array that speaks DLPack or the CUDA Array Interface, a DLPack capsule, or a tree of them.
///     A tree is made of lists, tuples, named tuples, dicts, dataclasses, `UserDict`, `UserList`,
///     `ChainMap`, `deque`, and containers registered with JAX or PyTorch. Other mappings, sequences
///     and sets with arrays are refused. A tree comes back in its shape. Numbers, text and other
///     objects in it stay as they are; a list of numbers alone is refused. A container that stands in
///     several places is converted once, and stays one container. One event orders all arrays of a
///     stream. Either all arrays are converted or none. NumPy, PyTorch, JAX and tvm-ffi share an
///     array on the host. Other libraries get a copy of it with ``copy=True``; without that it is
///     refused, or in a tree stays as it is.
/// to : module, str or type
///     The library: ``cupy``, ``"torch"``, or the type of its arrays, such as ``jax.Array``;
///     ``"cai"`` and ``"dlpack"`` give a `CaiView` and a `DLPackView`. The bridge knows torch, cupy,
///     numba, jax, warp, cuda (cuda.core), tvm_ffi, rmm and numpy; `register` adds others.
/// stream : None, int or stream object, optional
///     The consumer's stream, as in `to_cai`. None for the library's current one, which for Numba is
///     its default stream.
/// copy : bool, optional
///     True makes a copy in the bridge's own memory. The copy of a GPU's array is on that GPU. The
///     copy of a host array is on the GPU of ``stream`` or on the current one, or on the host if the
///     library has host arrays. NumPy's arrays are copies in NumPy's memory, and True copies NumPy's
///     own arrays as well. False refuses if a copy is needed.
/// readonly : bool, optional
///     True hands out read-only memory; with False you vouch that writing is right. For NumPy, True
///     gives a read-only array, and a read-only view of NumPy's own arrays.
/// detach : bool, optional
///     Detach tensors that require a gradient, instead of refusing them.
///
/// Returns
/// -------
/// object
///     The array, or the tree. If `x` is already an array of `to`, and no option asks for another, this
///     is `x` itself. Then `stream` waits for its pending work, but there is no end: the caller orders
///     later work after that of `stream`.
///
/// Raises
/// ------
/// BufferError
///     The other library's protocol cannot express the array, the array is read-only and the library
///     may write to it, or CUDA cannot reach its memory.
/// ValueError, TypeError, DriverError
///     As in `to_cai`. For a tree the message names the array: ``x["mask"][2]``.
///
/// Notes
/// -----
/// DLPack 1.3, "Python Specification"; CUDA Array Interface (Version 3), "Synchronization".
///
/// Examples
/// --------
/// >>> import numpy as np
/// >>> from cai_bridge import convert
/// >>> from cai_bridge.testing import simulated_cuda
/// >>> with simulated_cuda() as cuda:
/// ...     x = cuda.array([1.0, 2.0])
/// ...     convert(x, "numpy"), convert({"a": [x, 3]}, "cai")["a"][1]
/// (array([1., 2.], dtype=float32), 3)
#[pyfunction]
#[pyo3(signature = (x, to, *, stream=None, copy=None, readonly=None, detach=None))]
pub(crate) fn convert<'py>(
    x: &Bound<'py, PyAny>,
    to: &Bound<'py, PyAny>,
    stream: Optional<'_, 'py>,
    copy: Optional<'_, 'py>,
    readonly: Optional<'_, 'py>,
    detach: Optional<'_, 'py>,
) -> Answer<'py> {
    let (py, span) = (x.py(), CallSpan::begin());
    entry(py, || {
        let converted = converted(x, to, stream, readonly, copy, detach);
        converted.map_err(|error| span.refused(DOOR, error))
    })
}

fn converted<'py>(
    x: &Bound<'py, PyAny>,
    to: &Bound<'py, PyAny>,
    stream: Optional<'_, 'py>,
    readonly: Optional<'_, 'py>,
    copy: Optional<'_, 'py>,
    detach: Optional<'_, 'py>,
) -> Answer<'py> {
    let copy = flag::parse("copy", copy)?;
    let detach = flag::parse("detach", detach)?;
    let converter = known(to)?.map_or_else(|| found(to), Ok)?;
    let readonly = flag::parse("readonly", readonly)?;
    let how = ConvertOptions { stream, readonly, copy, detach, ..ConvertOptions::default() };
    let is_plain = copy.is_none() && detach.is_none();
    if is_plain
        && !is_container(x)
        && let Some(made) = converter.get().single(x, &how)?
    {
        return Ok(made);
    }
    match converter.get().tree(x, &Root::Given, &how)? {
        Some(converted) => Ok(converted.tree),
        None => converter.get().other(x, &how),
    }
}

#[cold]
fn found<'py>(to: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Converter>> {
    let libraries = to.py().import("cai_bridge._libraries")?;
    Ok(libraries.call_method1("find", (to,))?.getattr("converter")?.cast_into()?)
}

fn known<'py>(to: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, Converter>>> {
    static FOUND: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let py = to.py();
    let found = FOUND.import(py, "cai_bridge._libraries", "FOUND")?;
    // If `to` cannot be hashed, this lookup finds nothing. The Python function `find` needs no hash.
    let found = answered(py, found.get_item(to))?.flatten();
    Ok(found.and_then(|converter| converter.cast_into().ok()))
}
