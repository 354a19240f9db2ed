//! `convert`: an array of any library as one of another. One array for a library that is known by now takes the
//! way that is written here; trees, copies and first calls go by Python (`_convert.py`), which comes back here
//! with lists.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use super::Maybe;
use super::maker::Maker;
use crate::py::flag;
use crate::py::interpreter::{Answer, answered, entry};

/// Give an array of any library as one of another, over the same memory.
///
/// The array is usable on the stream that its library works on now, or on `stream`: the host does
/// not wait (but for NumPy, which copies to the host). It keeps the producer alive, and at its end
/// the producer's stream waits for the consumer's.
///
/// Parameters
/// ----------
/// x : object
///     An array that speaks DLPack or the CUDA Array Interface, or a tree of them: lists, tuples,
///     named tuples, dicts, dataclasses, and what JAX or PyTorch were told are containers. A tree
///     comes back in its shape; what is no array on a GPU stays as it is. One event orders all
///     arrays of a stream, and either all are converted or none.
/// to : module, str or type
///     The library: ``cupy``, ``"torch"``, or the type of its arrays, such as ``jax.Array``;
///     ``"cai"`` and ``"dlpack"`` give a `CaiView` and a `DLPackView`. Known are torch, cupy,
///     numba, jax, cuda (cuda.core), tvm_ffi and numpy; `register` adds others.
/// stream : None, int or stream object, optional
///     The stream to use the array on, as in `to_cai`; None for the library's current one. Numba's
///     is its default stream.
/// copy : bool, optional
///     True makes a copy in memory of the bridge's own; False refuses where there has to be one.
/// readonly : bool, optional
///     True hands out read-only memory; with False the caller vouches that writing is right.
/// detach : bool, optional
///     Detach tensors that require a gradient, which are refused otherwise.
///
/// Returns
/// -------
/// object
///     The array, or the tree; `x` itself where it is an array of `to` already. Then `stream` waits for
///     its pending work, and has no end: what `stream` does with it is the caller's to order.
///
/// Raises
/// ------
/// BufferError
///     The other library's protocol cannot express the array, it is read-only and the library may
///     write to it, or it is not in CUDA's reach.
/// ValueError, TypeError, DriverError
///     As in `to_cai`. Of a tree the message names the array: ``x["mask"][2]``.
///
/// Notes
/// -----
/// DLPack 1.3, "Python Specification"; CUDA Array Interface (Version 3), "Synchronization".
#[pyfunction]
#[pyo3(signature = (x, to, *, stream=None, copy=None, readonly=None, detach=None))]
pub(crate) fn convert<'py>(
    x: &Bound<'py, PyAny>,
    to: &Bound<'py, PyAny>,
    stream: Maybe<'_, 'py>,
    copy: Maybe<'_, 'py>,
    readonly: Maybe<'_, 'py>,
    detach: Maybe<'_, 'py>,
) -> Answer<'py> {
    static GENERAL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = x.py();
    entry(py, || {
        let copy = flag::parse("copy", copy)?;
        let detach = flag::parse("detach", detach)?;
        if copy.is_none()
            && detach.is_none()
            && let Some(maker) = known(to)?
            && let Some(made) = maker.get().single(x, stream, readonly)?
        {
            return Ok(made);
        }
        GENERAL
            .import(py, "cai_bridge._convert", "general")?
            .call1((x, to, stream, copy, readonly, detach))
    })
}

/// The library that `to` was found to name before.
fn known<'py>(to: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, Maker>>> {
    static FOUND: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let py = to.py();
    let found = FOUND.import(py, "cai_bridge._libraries", "FOUND")?;
    // What has no hash, or one that fails, is looked at where it is refused.
    let found = answered(py, found.get_item(to))?.flatten();
    Ok(found.and_then(|maker| maker.cast_into().ok()))
}
