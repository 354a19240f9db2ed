//! Arrays for Rust, in memory of Rust, of Python, or of a DLPack tensor.

mod argument;
#[cfg(feature = "cudarc")]
mod borrow;
#[cfg(feature = "cudarc")]
mod cuda;
mod device_stream;
mod element;
#[cfg(feature = "cudarc")]
mod events;
mod kernel;
mod launch;
mod memory;
#[cfg(all(loom, test))]
mod model;
mod on;
mod on_host;
pub(crate) mod origin;
mod owner;
pub(crate) mod retry;
mod scope;
mod shape;
mod simulated;
#[cfg(feature = "cudarc")]
mod slices;
mod stream;
mod tensor;
pub(crate) mod unlocked;
pub(crate) mod users;
mod view;

use std::sync::Arc;

pub use self::argument::{Argument, Arguments, ByValue, Scalar};
#[cfg(feature = "cudarc")]
pub use self::borrow::{CudaBorrow, CudaBorrowMut};
pub use self::device_stream::DeviceStream;
pub use self::element::{Bool, Element};
pub use self::kernel::{Grid, Kernel};
pub use self::on::{On, OnMut};
pub use self::on_host::OnHost;
pub use self::owner::Owner;
pub use self::scope::{Scope, scope};
pub use self::simulated::SimulatedStream;
pub use self::stream::WorkStream;
pub use self::tensor::{LegacyTensor, Tensor};
pub use self::view::{View, ViewMut};

use self::origin::{Origin, RustMemory, Use};
pub(crate) use self::stream::RustStream;
use self::users::UsedBytes;
use crate::descriptor::Descriptor;
use crate::device::Device;
use crate::dtype::Dtype;
use crate::error::Result;
use crate::layout::Layout;

/// An array in memory that a GPU can access. Rust code, Python code or a C library may own the memory.
///
/// A clone shares the memory. Work on the array happens in a [`scope`]. To write to the array you need an [`ArrayMut`].
///
/// With the feature `python`, an `Array` can be an argument of a `#[pyfunction]`. The function then accepts a GPU array
/// of any library that speaks DLPack or the CUDA Array Interface. A returned `Array` speaks both.
///
/// # Examples
///
/// ```
/// use cai_bridge::Array;
/// use cai_bridge::testing::SimulatedCuda;
///
/// let stream = SimulatedCuda::new(1).stream(0)?;
/// let x: Array = Array::from_host(&stream, &[1.0_f32; 6], &[2, 3])?.into();
/// assert_eq!((x.shape(), x.dtype().name(), x.is_contiguous()), (&[2, 3][..], "float32", true));
/// # Ok::<(), cai_bridge::Error>(())
/// ```
#[derive(Clone)]
pub struct Array {
    pub(crate) descriptor: Descriptor,
    pub(crate) origin: Arc<dyn Origin>,
}

/// An array whose memory may be written. Python code, and clones of the [`Array`] that became this `ArrayMut`, can use
/// the same memory.
///
/// # Examples
///
/// ```
/// use cai_bridge::testing::SimulatedCuda;
/// use cai_bridge::{Array, ArrayMut, ErrorKind};
///
/// let stream = SimulatedCuda::new(1).stream(0)?;
/// let x: ArrayMut = Array::empty::<f32>(&stream, &[3])?;
/// let x: Array = x.into_readonly();
/// assert_eq!(x.writable().unwrap_err().kind(), ErrorKind::NotWritable);
/// # Ok::<(), cai_bridge::Error>(())
/// ```
pub struct ArrayMut(Array);

impl Array {
    /// Makes an array in the memory of `owner`. After the array's last use the crate drops `owner`, as [`Owner`] says.
    ///
    /// # Errors
    ///
    /// An invalid shape, stride, address or device number, or no driver. `owner` is then dropped.
    ///
    /// # Examples
    ///
    /// See [`Owner`].
    pub fn from_owner(owner: impl Owner) -> Result<Self> {
        let descriptor = Self::describe(&owner)?;
        let (driver, producer) = (owner.stream().driver()?, RustStream::of(owner.stream()));
        let origin = Arc::new(RustMemory::new(driver, producer, Box::new(owner)));
        Ok(Self { descriptor, origin })
    }

    fn used(&self, writes: bool) -> Use {
        let origin = Arc::clone(&self.origin);
        Use { origin, work: UsedBytes::of(&self.descriptor, writes) }
    }

    pub(crate) fn describe(owner: &impl Owner) -> Result<Descriptor> {
        let dtype = owner.dtype();
        let layout = Layout::from_elements(owner.shape(), owner.strides(), dtype.element_size())?;
        let ptr = if layout.0.size() == 0 { 0 } else { owner.ptr() };
        Descriptor::new(ptr, dtype, layout, owner.device(), owner.readonly())
    }

    /// The extents.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(x: &cai_bridge::Array) {
    /// let [height, width] = *x.shape() else { return };
    /// # }
    /// ```
    pub fn shape(&self) -> &[i64] {
        self.descriptor.layout().shape()
    }

    /// The strides, in elements.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(x: &cai_bridge::Array) {
    /// assert_eq!(x.strides().len(), x.shape().len());
    /// # }
    /// ```
    pub fn strides(&self) -> &[i64] {
        self.descriptor.layout().strides()
    }

    /// Whether the array is C-contiguous. An array without elements is C-contiguous.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(x: &cai_bridge::Array) {
    /// assert!(x.is_contiguous() || x.strides().len() > 0);
    /// # }
    /// ```
    pub const fn is_contiguous(&self) -> bool {
        self.descriptor.layout().is_contiguous()
    }

    /// The element type.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(x: &cai_bridge::Array) {
    /// assert_eq!(x.dtype().name(), "float32");
    /// # }
    /// ```
    pub const fn dtype(&self) -> Dtype {
        self.descriptor.dtype()
    }

    /// Where the memory is.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(x: &cai_bridge::Array) {
    /// assert_eq!(x.device(), cai_bridge::Device::cuda(0));
    /// # }
    /// ```
    pub const fn device(&self) -> Device {
        self.descriptor.device()
    }

    /// The address of the first element; 0 if there are no elements. An address alone orders no work: to work on the
    /// array, [take](Array::on) it in a scope.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(x: &cai_bridge::Array) {
    /// assert_eq!(x.ptr() % 256, 0);
    /// # }
    /// ```
    pub const fn ptr(&self) -> u64 {
        self.descriptor.ptr()
    }

    /// Whether the memory must not be written through this array.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(x: cai_bridge::Array) {
    /// assert_eq!(x.readonly(), x.writable().is_err());
    /// # }
    /// ```
    pub const fn readonly(&self) -> bool {
        self.descriptor.readonly()
    }
}
