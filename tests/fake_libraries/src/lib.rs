//! Extension types that stand in for `torch.Tensor`, its streams, `cupy.ndarray` and JAX's arrays where conversions are counted.
//!
//! They do what the real ones do on a conversion's way, as cheaply as an extension type can: [`Tensor`] has an
//! exchange API, and answers `requires_grad`, `is_neg()` and `is_conj()`; [`NdArray`] has a dict of version 3 that
//! names its current stream, and the C function by which CuPy's own extensions ask for that stream;
//! [`CudaStreamBase`] has a handle and an id as attributes; [`ArrayImpl`] has a sharding, and jaxlib's function that
//! makes capsules of such arrays. What is not on the way, they do not have.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicIsize, Ordering};

use dlpark::DlpackFlags;
use dlpark::ffi::{
    DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned,
    DLPackExchangeAPI, DLPackExchangeAPIHeader, DLPackVersion, DLTensor,
};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Plays `torch.Tensor`: 32-bit floats of device 0.
#[pyclass(frozen, module = "torch")]
struct Tensor {
    pointer: u64,
    shape: Vec<i64>,
    strides: Vec<i64>,
    /// Where it was made of a managed tensor.
    managed: usize,
}

#[pymethods]
impl Tensor {
    #[new]
    fn new(pointer: u64, shape: Vec<i64>) -> Self {
        let mut strides = vec![1; shape.len()];
        for at in (1..shape.len()).rev() {
            strides[at - 1] = strides[at] * shape[at];
        }
        Self { pointer, shape, strides, managed: 0 }
    }

    #[getter]
    const fn requires_grad(&self) -> bool {
        false
    }

    const fn is_neg(&self) -> bool {
        false
    }

    const fn is_conj(&self) -> bool {
        false
    }

    const fn __dlpack_device__(&self) -> (i32, i32) {
        (2, 0)
    }

    fn __dlpack__(&self) -> PyResult<()> {
        Err(PyBufferError::new_err("the stand-in is asked by its exchange API only"))
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        if self.managed != 0 {
            let managed = self.managed as *mut DLManagedTensorVersioned;
            // SAFETY: it was given to this tensor, which calls its deleter once.
            unsafe {
                if let Some(deleter) = (*managed).deleter {
                    deleter(managed);
                }
            }
        }
    }
}

/// A managed tensor and the tensor that it holds.
struct Export {
    managed: DLManagedTensorVersioned,
    tensor: Py<Tensor>,
}

unsafe extern "C" fn delete(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: the managed tensor's context is the `Export` that `from_object` leaked; torch's deleter, too, needs
    // the interpreter's lock, and takes it by CPython's own state.
    unsafe {
        let state = ffi::PyGILState_Ensure();
        let export = Box::from_raw((*managed).manager_ctx.cast::<Export>());
        let Export { managed: _, tensor } = *export;
        ffi::Py_DECREF(tensor.into_ptr());
        ffi::PyGILState_Release(state);
    }
}

fn describe(tensor: &Tensor) -> DLTensor {
    DLTensor {
        data: tensor.pointer as *mut c_void,
        device: DLDevice { device_type: DLDeviceType::CUDA, device_id: 0 },
        ndim: c_int::try_from(tensor.shape.len()).unwrap_or(0),
        dtype: DLDataType { code: DLDataTypeCode(2), bits: 32, lanes: 1 },
        shape: tensor.shape.as_ptr().cast_mut(),
        strides: tensor.strides.as_ptr().cast_mut(),
        byte_offset: 0,
    }
}

unsafe extern "C" fn from_object(
    object: *mut c_void,
    out: *mut *mut DLManagedTensorVersioned,
) -> c_int {
    // SAFETY: the table's contract: an object of this type, the lock held, and a place for the answer.
    unsafe {
        let py = Python::assume_attached();
        let tensor = Bound::from_borrowed_ptr(py, object.cast()).cast_into_unchecked::<Tensor>();
        let managed = DLManagedTensorVersioned {
            version: DLPackVersion { major: 1, minor: 3 },
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(delete),
            flags: DlpackFlags::empty(),
            dl_tensor: describe(tensor.get()),
        };
        let export = Box::into_raw(Box::new(Export { managed, tensor: tensor.unbind() }));
        (*export).managed.manager_ctx = export.cast();
        *out = &raw mut (*export).managed;
    }
    0
}

unsafe extern "C" fn to_object(
    managed: *mut DLManagedTensorVersioned,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: the table's contract: a valid tensor, which is ours from here on, and the lock held.
    unsafe {
        let py = Python::assume_attached();
        let tensor = &(*managed).dl_tensor;
        let ndim = usize::try_from(tensor.ndim).unwrap_or(0);
        let shape = std::slice::from_raw_parts(tensor.shape, ndim).to_vec();
        let strides = std::slice::from_raw_parts(tensor.strides, ndim).to_vec();
        let made =
            Tensor { pointer: tensor.data as u64, shape, strides, managed: managed as usize };
        match Py::new(py, made) {
            Ok(made) => *out = made.into_ptr().cast(),
            Err(error) => {
                error.restore(py);
                return -1;
            }
        }
    }
    0
}

unsafe extern "C" fn borrow(object: *mut c_void, out: *mut DLTensor) -> c_int {
    // SAFETY: as for `from_object`.
    unsafe {
        let py = Python::assume_attached();
        let tensor = Bound::from_borrowed_ptr(py, object.cast()).cast_into_unchecked::<Tensor>();
        *out = describe(tensor.get());
    }
    0
}

unsafe extern "C" fn stream(_kind: DLDeviceType, _id: i32, out: *mut *mut c_void) -> c_int {
    // SAFETY: a place for the answer.
    unsafe { *out = TORCHS.load(Ordering::Relaxed) as *mut c_void };
    0
}

/// Plays `cupy.cuda.MemoryPointer`.
#[pyclass(frozen, module = "cupy.cuda.memory")]
struct MemoryPointer {
    #[pyo3(get)]
    ptr: u64,
}

/// Plays `cupy.ndarray`: 32-bit floats of device 0.
#[pyclass(frozen, subclass, module = "cupy")]
struct NdArray {
    #[pyo3(get)]
    shape: Py<PyTuple>,
    #[pyo3(get)]
    strides: Py<PyTuple>,
    #[pyo3(get, name = "_c_contiguous")]
    contiguous: bool,
    #[pyo3(get)]
    dtype: Py<PyAny>,
    #[pyo3(get)]
    data: Py<MemoryPointer>,
    dict: Py<PyTuple>,
}

#[pymethods]
impl NdArray {
    /// `dict` is the shape that its dict has, if that is another one. Where it is not `contiguous`, it is in
    /// Fortran's order.
    #[new]
    #[pyo3(signature = (pointer, shape, dict=None, contiguous=true))]
    fn new(
        py: Python<'_>,
        pointer: u64,
        shape: Bound<'_, PyTuple>,
        dict: Option<Py<PyTuple>>,
        contiguous: bool,
    ) -> PyResult<Self> {
        let mut extents = shape.extract::<Vec<i64>>()?;
        if contiguous {
            extents.reverse();
        }
        let (mut strides, mut step) = (Vec::new(), 4_i64);
        for extent in extents {
            strides.push(step);
            step *= extent.max(1);
        }
        if contiguous {
            strides.reverse();
        }
        Ok(Self {
            strides: PyTuple::new(py, strides)?.unbind(),
            contiguous,
            dtype: py.import("numpy")?.call_method1("dtype", ("float32",))?.unbind(),
            data: Py::new(py, MemoryPointer { ptr: pointer })?,
            dict: dict.unwrap_or_else(|| shape.clone().unbind()),
            shape: shape.unbind(),
        })
    }

    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item(intern!(py, "shape"), &self.dict)?;
        dict.set_item(intern!(py, "typestr"), intern!(py, "<f4"))?;
        dict.set_item(intern!(py, "version"), 3)?;
        let strides = (!self.contiguous).then(|| self.strides.clone_ref(py));
        dict.set_item(intern!(py, "strides"), strides)?;
        dict.set_item(intern!(py, "data"), (self.data.get().ptr, false))?;
        dict.set_item(intern!(py, "stream"), 1)?;
        Ok(dict)
    }

    const fn __dlpack_device__(&self) -> (i32, i32) {
        (2, 0)
    }
}

/// Plays JAX's arrays: 32-bit floats of device 0. Python adds what JAX has in Python.
#[pyclass(frozen, module = "jaxlib._jax")]
struct ArrayImpl {
    #[pyo3(get, name = "_sharding")]
    sharding: Py<PyAny>,
    pointer: u64,
    shape: Vec<i64>,
}

#[pymethods]
impl ArrayImpl {
    #[new]
    const fn new(pointer: u64, shape: Vec<i64>, sharding: Py<PyAny>) -> Self {
        Self { sharding, pointer, shape }
    }
}

/// A managed tensor and the array that it holds.
struct LegacyExport {
    managed: DLManagedTensor,
    array: Py<ArrayImpl>,
}

unsafe extern "C" fn delete_legacy(managed: *mut DLManagedTensor) {
    // SAFETY: the managed tensor's context is the `LegacyExport` that `buffer_to_dlpack_managed_tensor` leaked; the
    // lock is taken by CPython's own state.
    unsafe {
        let state = ffi::PyGILState_Ensure();
        let export = Box::from_raw((*managed).manager_ctx.cast::<LegacyExport>());
        let LegacyExport { managed: _, array } = *export;
        ffi::Py_DECREF(array.into_ptr());
        ffi::PyGILState_Release(state);
    }
}

unsafe extern "C" fn delete_unconsumed(capsule: *mut ffi::PyObject) {
    // SAFETY: called by CPython with the capsule; one that was consumed has another name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, c"dltensor".as_ptr()) == 1 {
            delete_legacy(ffi::PyCapsule_GetPointer(capsule, c"dltensor".as_ptr()).cast());
        }
    }
}

/// Plays jaxlib's function of that name, whose capsules are legacy ones. Its strides are NULL.
#[pyfunction]
fn buffer_to_dlpack_managed_tensor<'py>(
    array: Bound<'py, ArrayImpl>,
    stream: u64,
) -> PyResult<Bound<'py, PyAny>> {
    std::hint::black_box(stream);
    let (py, of) = (array.py(), array.get());
    let managed = DLManagedTensor {
        manager_ctx: std::ptr::null_mut(),
        deleter: Some(delete_legacy),
        dl_tensor: DLTensor {
            data: of.pointer as *mut c_void,
            device: DLDevice { device_type: DLDeviceType::CUDA, device_id: 0 },
            ndim: c_int::try_from(of.shape.len()).unwrap_or(0),
            dtype: DLDataType { code: DLDataTypeCode(2), bits: 32, lanes: 1 },
            shape: of.shape.as_ptr().cast_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        },
    };
    let export = Box::into_raw(Box::new(LegacyExport { managed, array: array.unbind() }));
    // SAFETY: the export is leaked, and the capsule's destructor or its consumer frees it.
    unsafe {
        (*export).managed.manager_ctx = export.cast();
        let managed: *mut DLManagedTensor = &raw mut (*export).managed;
        let name = c"dltensor".as_ptr();
        let capsule = ffi::PyCapsule_New(managed.cast(), name, Some(delete_unconsumed));
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}

/// Plays `torch._C._CudaStreamBase`: a stream of a pool, or one around somebody's handle.
#[pyclass(frozen, subclass, module = "torch")]
struct CudaStreamBase {
    #[pyo3(get)]
    cuda_stream: u64,
    #[pyo3(get)]
    stream_id: i64,
}

#[pymethods]
impl CudaStreamBase {
    #[new]
    const fn new(cuda_stream: u64, stream_id: i64) -> Self {
        Self { cuda_stream, stream_id }
    }
}

static CUPYS: AtomicIsize = AtomicIsize::new(0);
static TORCHS: AtomicIsize = AtomicIsize::new(0);

unsafe extern "C" fn current_stream(_device: c_int) -> isize {
    CUPYS.load(Ordering::Relaxed)
}

/// The stream that CuPy works on from now on.
#[pyfunction]
fn work_on(handle: isize) {
    CUPYS.store(handle, Ordering::Relaxed);
}

/// The stream that torch works on from now on.
#[pyfunction]
fn torch_works_on(handle: isize) {
    TORCHS.store(handle, Ordering::Relaxed);
}

/// Callgrind counts what runs from here on: `--zero-before='*counts_begin'`.
#[inline(never)]
fn counts_begin(row: u64) -> u64 {
    std::hint::black_box(row)
}

/// Callgrind writes down what it counted: `--dump-before='*counts_end'`.
#[inline(never)]
fn counts_end(row: u64) -> u64 {
    std::hint::black_box(row.wrapping_add(1))
}

/// Runs `rounds`, counted.
#[pyfunction]
fn counted<'py>(
    rounds: &Bound<'py, PyAny>,
    many: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    counts_begin(1);
    let answer = rounds.call1((many,));
    counts_end(1);
    answer
}

/// Whether callgrind looks at the instructions that run from here on, where it was started with `--instr-atstart=no`:
/// what it does not look at runs far quicker. On other processors than x86-64 it looks at all of them.
#[pyfunction]
fn instrumented(on: bool) {
    #[cfg(target_arch = "x86_64")]
    {
        // Valgrind's client requests ("The Client Request mechanism"): `CT` of callgrind, its fifth and its sixth.
        const START: usize = 0x4354_0004;
        let request = [if on { START } else { START + 1 }, 0, 0, 0, 0, 0];
        // SAFETY: without valgrind the four rotations give the register back as it was, and the exchange does nothing.
        unsafe {
            std::arch::asm!(
                "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
                inout("rdx") 0_usize => _,
                in("rax") request.as_ptr(),
            );
        }
    }
}

/// Puts a C table or function into a capsule.
fn capsule<'py>(
    py: Python<'py>,
    what: *mut c_void,
    name: &'static CStr,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: `what` is static, or leaked.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(what, name.as_ptr(), None)) }
}

#[pymodule]
fn fake_libraries(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let table = Box::leak(Box::new(DLPackExchangeAPI {
        header: DLPackExchangeAPIHeader {
            version: DLPackVersion { major: 1, minor: 3 },
            prev_api: std::ptr::null_mut(),
        },
        managed_tensor_allocator: None,
        managed_tensor_from_py_object_no_sync: Some(from_object),
        managed_tensor_to_py_object_no_sync: Some(to_object),
        dltensor_from_py_object_no_sync: Some(borrow),
        current_work_stream: Some(stream),
    }));
    let table = capsule(py, (&raw mut *table).cast(), c"dlpack_exchange_api")?;
    py.get_type::<Tensor>().setattr("__dlpack_c_exchange_api__", table)?;
    module.add_class::<Tensor>()?;
    module.add_class::<NdArray>()?;
    module.add_class::<CudaStreamBase>()?;
    module.add_class::<ArrayImpl>()?;
    let entry = wrap_pyfunction!(buffer_to_dlpack_managed_tensor, module)?;
    module.add_function(entry)?;
    module.add_function(wrap_pyfunction!(work_on, module)?)?;
    module.add_function(wrap_pyfunction!(torch_works_on, module)?)?;
    module.add_function(wrap_pyfunction!(counted, module)?)?;
    module.add_function(wrap_pyfunction!(instrumented, module)?)?;
    let current: unsafe extern "C" fn(c_int) -> isize = current_stream;
    module.add("get_stream_ptr", capsule(py, current as *mut c_void, c"intptr_t (int)")?)
}
