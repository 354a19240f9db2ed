//! The class of a view: what both have, defined once.

/// Defines the class of a view: the attributes that both have, and `methods` of its own.
macro_rules! view_class {
    ($(#[doc = $doc:expr])* $class:ident { $($methods:tt)* }) => {
        $(#[doc = $doc])*
        #[pyclass(frozen, weakref, module = "cai_bridge")]
        #[derive(Debug)]
        pub(crate) struct $class(pub(super) $crate::py::views::View);

        #[pymethods]
        impl $class {
            /// The extents, in items. DLPack lanes are a trailing dimension.
            #[getter]
            fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
                pyo3::types::PyTuple::new(py, self.0.array.cai_shape().as_slice())
            }

            /// The strides, in bytes, one a dimension.
            #[getter]
            fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
                pyo3::types::PyTuple::new(py, self.0.array.cai_strides().as_slice())
            }

            /// The element type as a typestr of NumPy's array interface; bfloat16 is ``<V2``, 8-bit
            /// floats ``|V1``.
            #[getter]
            fn typestr(&self) -> &'static str {
                self.0.array.dtype().typestr()
            }

            /// The element type as a ``numpy.dtype``: the one of ``ml_dtypes`` for bfloat16 and 8-bit
            /// floats where that package is installed, else a void type of their size.
            #[getter]
            fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                self.0.dtype(py)
            }

            /// The size of an item, in bytes.
            #[getter]
            fn itemsize(&self) -> i64 {
                self.0.array.dtype().itemsize()
            }

            /// The number of dimensions.
            #[getter]
            fn ndim(&self) -> usize {
                self.0.array.cai_shape().as_slice().len()
            }

            /// The number of items.
            #[getter]
            fn size(&self) -> i64 {
                self.0.array.cai_size()
            }

            /// The number of bytes of all items, gaps between them not counted.
            #[getter]
            fn nbytes(&self) -> i64 {
                self.0.array.cai_size() * self.0.array.dtype().itemsize()
            }

            /// The address of the first item; 0 where there is none.
            #[getter]
            fn ptr(&self) -> u64 {
                // Whoever has the address works on the memory.
                let _ = self.0.held($crate::py::lease::Holding::read);
                self.0.array.ptr()
            }

            /// ``(device_type, device_id)`` in DLPack's numbers: 2 CUDA, 3 pinned host, 13 managed memory.
            #[getter]
            fn device(&self) -> (u32, i32) {
                self.0.device()
            }

            /// Whether the memory must not be written.
            #[getter]
            fn readonly(&self) -> bool {
                self.0.array.readonly()
            }

            /// The stream that the array is ready on: 1, 2, a handle, or None where nothing is pending.
            #[getter]
            fn stream(&self) -> Option<u64> {
                self.0.ready.to_cai($crate::stream::Thread::current())
            }

            /// The producer that the view keeps alive; None once the view is released.
            #[getter]
            fn owner(&self, py: Python<'_>) -> Option<Py<PyAny>> {
                self.0.producer(py)
            }

            /// Gives the memory back to its producer at once; the view then refuses to export.
            ///
            /// The producer's stream is made to wait for the consumer's, so that what the producer does
            /// with the memory next comes after the consumer's queued work. The host does not wait.
            /// The same happens at the end of a ``with`` block and of the last reference, and when a
            /// capsule that was handed out ends, for the stream that it was asked for with.
            ///
            /// Capsules that were handed out keep the producer. A CAI dict keeps nothing: release a
            /// ``CaiView`` only when all work on every array that a consumer made of it is queued.
            /// Calling it again does nothing.
            ///
            /// Parameters
            /// ----------
            /// stream : None, int or stream object, optional
            ///     The stream that the consumer worked on, beside the one that the view was made for:
            ///     1, 2, a handle, or an object with ``__cuda_stream__``. None: no other. -1: the
            ///     consumer's work is done, and no order is wanted.
            ///
            /// Raises
            /// ------
            /// ValueError, TypeError
            ///     A malformed stream, or one of another device.
            /// DriverError
            ///     A call of the CUDA driver failed. The view is as before, and may be released again.
            ///
            /// Notes
            /// -----
            /// CUDA Array Interface (Version 3), "Lifetime management", "Streams".
            #[pyo3(signature = (stream=None))]
            fn release(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
                self.0.release(py, stream, $crate::py::observe::End::Release)
            }

            fn __enter__(slf: Py<Self>) -> PyResult<Py<Self>> {
                slf.get().0.check_leased()?;
                Ok(slf)
            }

            #[pyo3(signature = (kind, value, traceback, /))]
            fn __exit__(
                &self,
                kind: &Bound<'_, PyAny>,
                value: &Bound<'_, PyAny>,
                traceback: &Bound<'_, PyAny>,
            ) -> PyResult<()> {
                let _ = (kind, traceback);
                self.0.exit(value.py(), !value.is_none())
            }

            fn __repr__(&self) -> String {
                format!(concat!("<", stringify!($class), " {}>"), self.0.describe())
            }

            fn __reduce__(&self) -> PyResult<Py<PyAny>> {
                Err(pyo3::exceptions::PyTypeError::new_err(concat!(
                    "cannot pickle a ", stringify!($class), ": it refers to memory of this process"
                )))
            }

            fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
                self.0.visit(&visit)
            }

            fn __clear__(&self) {
                self.0.clear();
            }

            $($methods)*
        }

        impl $class {
            /// What it is, whichever protocol it speaks.
            pub(crate) const fn as_view(&self) -> &$crate::py::views::View {
                &self.0
            }

            /// A view that speaks this protocol.
            pub(crate) const fn of(view: $crate::py::views::View) -> Self {
                Self(view)
            }
        }
    };
}
pub(super) use view_class;
