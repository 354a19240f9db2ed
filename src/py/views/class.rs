//! The Python members that every view has, whichever protocol it speaks.

use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::{BaseView, reader};
use crate::error::{Error, Kind};
use crate::py::interpreter::{Answer, act, answered, entry, is_interrupt, raised};
use crate::py::library::ArrayParts;
use crate::py::observe::EndedBy;
use crate::stream::Thread;

#[pymethods]
impl BaseView {
    /// The extents, in items. DLPack lanes are a trailing dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || PyTuple::new(py, self.array.cai_shape().as_slice()))
    }

    /// The strides, in bytes, one for each dimension. Refused for elements of no whole number of bytes.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || {
            self.check_whole()?;
            PyTuple::new(py, self.array.cai_strides().as_slice())
        })
    }

    /// The element type as a typestr of NumPy's array interface; bfloat16 is ``<V2``, 8-bit
    /// floats ``|V1``. Refused for a type that only DLPack has.
    #[getter]
    fn typestr<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || {
            if let Some(words) = self.words(py) {
                return words.as_any().get_item(intern!(py, "typestr"));
            }
            self.array.dtype().check_shared()?;
            Ok(self.array.dtype().typestr().into_pyobject(py)?.into_any())
        })
    }

    /// The element type as a ``numpy.dtype``: for bfloat16 and 8-bit floats that of ``ml_dtypes`` if that
    /// package is installed and has it, else a void type of their size. Refused for a type that only
    /// DLPack has.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || self.numpys_dtype(py))
    }

    /// The size of an item, in bytes. Refused for elements of no whole number of bytes.
    #[getter]
    fn itemsize<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || {
            self.check_whole()?;
            Ok(self.array.cai_itemsize())
        })
    }

    /// The number of dimensions.
    #[getter]
    fn ndim<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || Ok(self.array.cai_shape().as_slice().len()))
    }

    /// The first extent. Refused for a view without dimensions. Warp asks for it to make an array.
    fn __len__(&self) -> PyResult<usize> {
        let shape = self.array.cai_shape();
        let first = shape.as_slice().first().and_then(|extent| usize::try_from(*extent).ok());
        first.ok_or_else(|| PyTypeError::new_err("len: a view of no dimensions has no length"))
    }

    /// A view is true, whatever its length.
    #[staticmethod]
    const fn __bool__() -> bool {
        true
    }

    /// The number of items.
    #[getter]
    fn size<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || Ok(self.array.cai_size()))
    }

    /// The bytes of all items, without the gaps between them.
    #[getter]
    fn nbytes<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || Ok(self.array.nbytes()))
    }

    /// The address of the first item; 0 for an array without items.
    #[getter]
    fn ptr<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || {
            reader::read_address(py, self)?;
            Ok(self.array.ptr())
        })
    }

    /// ``(device_type, device_id)`` in DLPack's numbers: 2 CUDA, 3 pinned host, 13 managed memory.
    #[getter]
    fn device<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || Ok(self.pair()))
    }

    /// Refuses: NumPy would otherwise make an array of objects, with the view as its item.
    #[pyo3(signature = (*_args, **_kwargs))]
    #[staticmethod]
    fn __array__<'py>(
        py: Python<'py>,
        _args: &Bound<'py, PyTuple>,
        _kwargs: Option<&Bound<'py, PyDict>>,
    ) -> Answer<'py> {
        entry(py, || -> PyResult<()> {
            Err(Error::new(Kind::NumpyArray, "a view of memory on a GPU").into())
        })
    }

    /// The parts from which a library makes an array: address, size in bytes, the device's number, shape, dtype, and
    /// strides or None if C-contiguous. Asking for them counts as a read.
    fn _fields<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || {
            let ArrayParts { ptr, nbytes, device, shape, dtype, strides } = self.parts(py)?;
            Ok((ptr, nbytes, device, shape, dtype, strides))
        })
    }

    /// The element type as `from_cai` takes it by ``dtype=``; None for a type that only CAI has. Refused for a type
    /// that only DLPack has.
    #[getter]
    fn _dtype_name<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || {
            let dtype = self.array.dtype();
            if self.words(py).is_some() {
                return Ok(None);
            }
            dtype.check_shared()?;
            Ok(Some(dtype.name()))
        })
    }

    /// Whether the memory is read-only.
    #[getter]
    const fn readonly(&self) -> bool {
        self.array.readonly()
    }

    /// The stream that the array is ready on: 1, 2, a handle, or None if nothing is pending.
    #[getter]
    fn stream<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || Ok(self.told().to_cai(Thread::current())))
    }

    /// The producer's object, which the view keeps alive. None after `release`, and for memory that came as a
    /// managed tensor without an object.
    #[getter]
    fn owner<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || Ok(self.with_memory(|held| held.object(py)).ok().flatten()))
    }

    /// Makes the host wait for the pending work on the array.
    ///
    /// Call it before code that takes an address and knows no stream, such as MPI, UCX and file
    /// libraries. Call it whether that code reads the memory or writes it. From then on ``stream`` and
    /// the dict's ``stream`` are None, so a reader of the dict does not wait for later work. If the
    /// producer had named no stream and names one later, the dict has that stream. Another ``wait()``
    /// and later hand-overs by DLPack wait for the work that has been queued on the array's stream by
    /// then. Other threads run meanwhile, and graph captures of other streams continue.
    ///
    /// The host waits only for the array's stream and, if the producer's dict names another stream by
    /// now, for that stream. If nothing keeps the array's stream alive, the host waits for all work in
    /// the stream's context, with a warning in the log. To avoid this, pass a stream object and not a
    /// bare handle.
    ///
    /// Raises
    /// ------
    /// BufferError
    ///     The view was released.
    /// DriverError
    ///     The array's stream is being captured, or it is the legacy default stream while a blocking
    ///     stream is being captured; or a call of the CUDA driver failed.
    ///
    /// Notes
    /// -----
    /// CUDA Array Interface (Version 3), "Synchronization".
    fn wait<'py>(&self, py: Python<'py>) -> Answer<'py> {
        act(py, || self.wait_on_host(py))
    }

    /// Gives the memory back to its producer; the view then refuses to export.
    ///
    /// The producer's stream waits for the consumer's, so the producer's next work on the memory runs
    /// after the consumer's queued work. The host waits only if nothing keeps one of these streams alive.
    /// The end of a ``with`` block and the last reference to the view do the same. So does the end of a
    /// capsule that the view handed out, for the stream that the consumer named.
    ///
    /// Such capsules keep the producer alive. A CAI dict does not: release a ``CaiView`` only after
    /// all work on every array that a consumer made from it is queued.
    /// A second call does nothing.
    ///
    /// Parameters
    /// ----------
    /// stream : None, int or stream object, optional
    ///     One more stream that the consumer worked on: 1, 2, a handle, or an object with
    ///     ``__cuda_stream__``. None: no other. -1: the consumer's work is done, and nothing waits.
    ///
    /// Raises
    /// ------
    /// ValueError, TypeError
    ///     A malformed stream, or one of another device.
    /// DriverError
    ///     A call of the CUDA driver failed. The view is as before, and you may release it again.
    ///
    /// Notes
    /// -----
    /// CUDA Array Interface (Version 3), "Lifetime management", "Streams".
    #[pyo3(signature = (stream=None))]
    fn release<'py>(&self, py: Python<'py>, stream: Option<&Bound<'py, PyAny>>) -> Answer<'py> {
        act(py, || self.give_back(py, stream, EndedBy::Release))
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> Answer<'py> {
        entry(slf.py(), || {
            slf.get().check_leased()?;
            Ok(slf.clone())
        })
    }

    #[pyo3(signature = (kind, value, traceback, /))]
    fn __exit__<'py>(
        &self,
        kind: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        traceback: &Bound<'py, PyAny>,
    ) -> Answer<'py> {
        let (py, _) = (kind.py(), traceback);
        act(py, || match self.give_back(py, None, EndedBy::With) {
            // Only an interrupt replaces the exception of the `with` block. Another error is reported as unraisable,
            // and the end is tried again later.
            Err(error) if !value.is_none() => {
                let error = raised(py, error);
                if is_interrupt(py, &error) {
                    if !error.value(py).is(value) {
                        error.set_context(py, Some(PyErr::from_value(value.clone())));
                    }
                    return Err(error);
                }
                error.write_unraisable(py, None);
                Ok(())
            }
            given_back => given_back,
        })
    }

    fn __repr__<'py>(slf: &Bound<'py, Self>) -> Answer<'py> {
        entry(slf.py(), || {
            Ok(format!("<{} {}>", slf.get_type().name()?, slf.get().describe(slf.py())))
        })
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Answer<'py> {
        entry(slf.py(), || {
            let name = slf.get_type().name()?;
            let text = format!(
                "cannot pickle a {name}: it refers to memory of this process; cai_bridge.share(x) makes bytes that \
                 another process of this machine opens, convert(x, 'numpy') copies it to the host, and \
                 import cai_bridge.dask lets Dask send it"
            );
            Err::<(), _>(PyTypeError::new_err(text))
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let visited = self.lease.try_with(|guard| guard.memory().map(|held| held.visit(&visit)));
        visited.flatten().unwrap_or(Ok(()))
    }

    /// Runs when the garbage collector has found the view. If only a Python object keeps the memory, makes
    /// the end's waits now, while that object still works: the collector clears garbage in any order. If
    /// that fails, the end itself tries again.
    fn __del__<'py>(&self, py: Python<'py>) -> Answer<'py> {
        act(py, || answered(py, self.order_for_collector(py)).map(drop))
    }

    /// Ends the lease for the garbage collector, which has found the view to be garbage.
    fn __clear__(&self) {
        if let Some(mut guard) = self.lease.end()
            && let Some(held) = guard.memory_mut()
        {
            held.collected();
        }
    }
}
