//! Arrays of CuPy and Numba, read by their own attributes: what their dict says, at half its cost or less.
//!
//! The first array of a type is read both ways. Where the answers differ, or the attributes are others than
//! those known here, arrays of that type are read by their dict.
//!
//! Of one thing the attributes are right and a dict is not: the strides that [`super::strides`] adds to Numba's dicts.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString, PyType};

use crate::cai::{Claim, Decoded, VERSION};
use crate::device::Place;
use crate::dtype::Dtype;
use crate::layout::{Dims, Layout, Reach};
use crate::py::cai_dict;
use crate::py::habits::{Habit, Habits, is_of};
use crate::py::interpreter::answered;
use crate::py::native::{self, Question};
use crate::py::numpy;
use crate::py::streams::{handle_of, libraries};
use crate::stream::{Ready, Stream, Thread};

/// The attributes of a type of arrays.
#[derive(Debug)]
pub(super) struct Parts {
    shape: Question,
    /// Whether the elements lie in C order without gaps, which saves the strides.
    contiguous: Option<Question>,
    strides: Question,
    dtype: Question,
    address: Address,
    /// Whether its library is numba-cuda-mlir.
    is_mlir: bool,
}

/// Where an array has the address of its first element.
#[derive(Debug)]
enum Address {
    /// CuPy's: `data`, an object of that type, and its `ptr`.
    Pointer(Question, Py<PyType>, Question),
    /// Numba's: `gpu_data.device_ctypes_pointer.value`.
    Ctypes,
}

/// An array that was read, all but its layout and its stream.
type Array = (u64, Dtype, Reach);

/// What an array says.
pub(super) struct Attributes<'py> {
    /// What its dict would say.
    pub(super) decoded: Decoded,
    pub(super) stream: Names<'py>,
}

/// What names the stream that an array is ready on.
pub(super) enum Names<'py> {
    /// Its library, by its current stream, which depends on where the array is.
    Library,
    /// The array itself, which may have that stream's object.
    Array(Option<Bound<'py, PyAny>>),
}

impl Parts {
    /// Those of `kind`, the type of `x`; `None` where its arrays are read by their dict.
    pub(super) fn of(
        x: &Bound<'_, PyAny>,
        kind: &Bound<'_, PyType>,
        habits: Habits,
    ) -> PyResult<Option<Self>> {
        let py = x.py();
        let (library, found) = if habits.has(Habit::NamesCurrentStream) {
            ("cupy", answered(py, Self::cupys(x, kind))?.flatten())
        } else if habits.has(Habit::KeepsStreamObject) {
            (
                "numba",
                answered(py, Self::numbas(kind, habits.has(Habit::HasMlirSettings)))?.flatten(),
            )
        } else {
            return Ok(None);
        };
        let same = match &found {
            Some(parts) => answered(py, parts.agree(x))?,
            None => None,
        };
        if same == Some(true) {
            return Ok(found);
        }
        tracing::debug!(
            name: "route", target: "cai_bridge", library,
            "the bridge uses the public route: the attributes are not the library's, or its dict differs"
        );
        Ok(None)
    }

    fn cupys(x: &Bound<'_, PyAny>, kind: &Bound<'_, PyType>) -> PyResult<Option<Self>> {
        let py = x.py();
        let of = |kind, name| {
            Ok::<_, PyErr>(Question::attribute(kind, name)?.filter(Question::is_native))
        };
        // A type that says something else by its dict has one of its own.
        let own = of(kind, intern!(py, "__cuda_array_interface__"))?;
        if own.is_none() || !libraries::knows_cupy(py)? {
            return Ok(None);
        }
        let data = x.getattr(intern!(py, "data"))?.get_type();
        let (Some(shape), Some(strides), Some(dtype), Some(memory), Some(ptr)) = (
            of(kind, intern!(py, "shape"))?,
            of(kind, intern!(py, "strides"))?,
            of(kind, intern!(py, "dtype"))?,
            of(kind, intern!(py, "data"))?,
            of(&data, intern!(py, "ptr"))?,
        ) else {
            return Ok(None);
        };
        let contiguous = of(kind, intern!(py, "_c_contiguous"))?;
        numpy::know_all(py)?;
        let address = Address::Pointer(memory, data.unbind(), ptr);
        Ok(Some(Self { shape, contiguous, strides, dtype, address, is_mlir: false }))
    }

    /// Each array has the attributes in its own dict, and Numba's own property makes a CAI dict of them.
    fn numbas(kind: &Bound<'_, PyType>, is_mlir: bool) -> PyResult<Option<Self>> {
        let py = kind.py();
        let property = kind.getattr(intern!(py, "__cuda_array_interface__"))?;
        let maker = property.getattr(intern!(py, "fget"))?.getattr(intern!(py, "__module__"))?;
        let library = if is_mlir { "numba_cuda_mlir" } else { "numba" };
        if !is_of(maker.cast::<PyString>()?.to_str()?, library) {
            return Ok(None);
        }
        numpy::know_all(py)?;
        Ok(Some(Self {
            shape: Question::named(intern!(py, "shape")),
            contiguous: None,
            strides: Question::named(intern!(py, "strides")),
            dtype: Question::named(intern!(py, "dtype")),
            address: Address::Ctypes,
            is_mlir,
        }))
    }

    /// Whether the attributes of `x` say what its dict does.
    fn agree(&self, x: &Bound<'_, PyAny>) -> PyResult<bool> {
        let dict = x.getattr(intern!(x.py(), "__cuda_array_interface__"))?.cast_into::<PyDict>()?;
        let (mut said, mut layout) = (Layout::EMPTY, Layout::EMPTY);
        let by_dict =
            cai_dict::decode(&dict, (None, false), (None, |_| Ok((None, None))), &mut said, None)?;
        let Some((ptr, dtype, reach)) = self.read(x, &mut layout)? else { return Ok(false) };
        let broadcast = matches!(self.address, Address::Ctypes) && layout.strides().contains(&0);
        let same_layout = (layout == said && reach == by_dict.reach)
            || (broadcast && layout.shape() == said.shape());
        Ok(!by_dict.readonly && (ptr, dtype) == (by_dict.ptr, by_dict.dtype) && same_layout)
    }

    /// What `x` says, whose layout is put into `layout`; `None` where its dict has to be asked.
    fn read(&self, x: &Bound<'_, PyAny>, layout: &mut Layout) -> PyResult<Option<Array>> {
        let Some(shape) = native::tuple(&self.shape.answer(x)?) else { return Ok(None) };
        let strides = match &self.contiguous {
            Some(contiguous) if contiguous.answer(x)?.is(&*PyBool::new(x.py(), true)) => None,
            _ => match native::tuple(&self.strides.answer(x)?) {
                None => return Ok(None),
                strides => strides,
            },
        };
        let Some(dtype) = numpy::known(&self.dtype.answer(x)?) else { return Ok(None) };
        let (shape, itemsize) = (shape.as_slice(), dtype.itemsize());
        let steps = strides.as_ref().map(Dims::as_slice);
        // What is refused is so by the dict, or goes on as that has it.
        let Ok(mut reach) = layout.set_bytes(shape, steps, itemsize) else { return Ok(None) };
        let thin = || shape.iter().any(|&extent| extent < 2);
        if strides.is_some() && layout.is_contiguous() && thin() {
            // Its dict has no strides then, whatever those of extents of 1 are.
            reach = layout.set_bytes(shape, None, itemsize)?;
        }
        if layout.size() == 0 {
            return Ok(Some((0, dtype, reach)));
        }
        Ok(self.address.read(x)?.map(|ptr| (ptr, dtype, reach)))
    }

    /// What `x` says of itself, as [`cai_dict::decode`] has it; `None` where its dict has to be asked.
    pub(super) fn decode<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        layout: &mut Layout,
    ) -> PyResult<Option<Attributes<'py>>> {
        let Some((ptr, dtype, reach)) = self.read(x, layout)? else { return Ok(None) };
        let (ready, stream) = match self.address {
            Address::Pointer(..) => (Ready::Nothing, Names::Library),
            Address::Ctypes => {
                let object = x.getattr(intern!(x.py(), "stream"))?;
                let object = (native::small(&object) != Some(0)).then_some(object);
                let Some(stream) = numbas(x.py(), object.as_ref(), self.is_mlir)? else {
                    return Ok(None);
                };
                (Ready::On(stream), Names::Array(object))
            }
        };
        let claim = Claim::Stated(ready);
        let decoded = Decoded { version: VERSION, ptr, readonly: false, dtype, reach, claim };
        Ok(Some(Attributes { decoded, stream }))
    }
}

impl Address {
    /// The address of the first element of `x`; `None` where its dict has to be asked.
    fn read(&self, x: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        let py = x.py();
        let address = match self {
            Self::Pointer(data, kind, ptr) => {
                let data = data.answer(x)?;
                if !data.get_type().is(kind) {
                    return Ok(None);
                }
                ptr.answer(&data)?
            }
            Self::Ctypes => {
                let memory = x.getattr(intern!(py, "gpu_data"))?;
                if memory.is_none() {
                    return Ok(None);
                }
                let pointer = memory.getattr(intern!(py, "device_ctypes_pointer"))?;
                match pointer.getattr_opt(intern!(py, "value"))? {
                    Some(address) => address,
                    // Of NVIDIA's binding, in Numba's own CUDA target (0.61).
                    None => pointer.call_method0(intern!(py, "__int__"))?,
                }
            }
        };
        Ok(native::small(&address).and_then(|ptr| u64::try_from(ptr).ok()))
    }
}

/// The stream that CuPy works on at `place`, as a dict names it that is read there.
pub(super) fn current(py: Python<'_>, place: Place) -> PyResult<Claim> {
    let native = libraries::cupys_or_legacy(py, place.ordinal)?;
    Ok(Claim::Stated(Ready::On(Stream::from_native(native, Thread::current()))))
}

/// The stream of an array of Numba's that has `object` for it; `None` where that does not say its handle.
fn numbas(
    py: Python<'_>,
    object: Option<&Bound<'_, PyAny>>,
    is_mlir: bool,
) -> PyResult<Option<Stream>> {
    let native = match object {
        Some(object) => answered(py, handle_of(object))?,
        None => Some(0),
    };
    match native {
        Some(0) => libraries::numbas_default(py, is_mlir).map(Some),
        native => Ok(native.map(|native| Stream::from_native(native, Thread::current()))),
    }
}
