//! An array's elements: their Rust types and their addresses.
#![allow(unsafe_code)]

use crate::descriptor::Descriptor;
use crate::dtype::Dtype;
use crate::error::{Error, Kind, Result};

/// A Rust type for the elements of an array.
///
/// The trait is implemented for `i8` to `i64`, `u8` to `u64`, `f32`, `f64` and [`Bool`]. Features of the crate add
/// `half::f16` and `half::bf16` (`half`), `num_complex::Complex<f32>` and `Complex<f64>` (`num-complex`), and
/// `float8::F8E4M3` and `F8E5M2` (`float8`). You can implement the trait for a type of your own. Wrap a type of another
/// crate first: Rust forbids an implementation of a foreign trait for a foreign type.
///
/// # Safety
///
/// The type has the size of the element type that it names, and no padding; any bytes are a valid value.
///
/// # Examples
///
/// ```
/// use cai_bridge::Element;
///
/// #[derive(Clone, Copy)]
/// #[repr(transparent)]
/// struct Bf16(u16);
///
/// // SAFETY: the type has two bytes, like bfloat16, and any two bytes are a valid value.
/// unsafe impl Element for Bf16 {
///     const NAME: &'static str = "bfloat16";
/// }
/// assert_eq!(f32::NAME, "float32");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an element type of arrays",
    label = "not an `Element`",
    note = "the integers, `f32`, `f64` and `cai_bridge::Bool`, which stands for `bool`, are element types",
    note = "with features of cai_bridge: \"half\" for `f16` and `bf16` of half 2, \"num-complex\" for `Complex` of num-complex 0.4, \"float8\" for `F8E4M3` and `F8E5M2` of float8 0.7"
)]
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The element type's name in NumPy or `ml_dtypes`.
    const NAME: &'static str;
}

macro_rules! elements {
    ($($type:ty = $name:literal,)+) => {
        $(
            // SAFETY: the lists below name integers, floats, pairs of floats, and `Bool`, a `u8`. Each has the size of
            // the element type beside it and no padding, and any bytes are a valid value.
            unsafe impl Element for $type {
                const NAME: &'static str = $name;
            }
        )+
    };
}

elements! {
    i8 = "int8",
    i16 = "int16",
    i32 = "int32",
    i64 = "int64",
    u8 = "uint8",
    u16 = "uint16",
    u32 = "uint32",
    u64 = "uint64",
    f32 = "float32",
    f64 = "float64",
}

#[cfg(feature = "half")]
elements! {
    half::f16 = "float16",
    half::bf16 = "bfloat16",
}

#[cfg(feature = "num-complex")]
elements! {
    num_complex::Complex<f32> = "complex64",
    num_complex::Complex<f64> = "complex128",
}

#[cfg(feature = "float8")]
elements! {
    float8::F8E4M3 = "float8_e4m3fn",
    float8::F8E5M2 = "float8_e5m2",
}

/// A boolean in an array: a byte, true unless it is 0. Rust's own `bool` allows only the bytes 0 and 1, and a kernel
/// can write other bytes.
///
/// # Examples
///
/// ```
/// use cai_bridge::testing::SimulatedCuda;
/// use cai_bridge::{Array, Bool};
///
/// let stream = SimulatedCuda::new(1).stream(0)?;
/// let x = Array::from_host(&stream, &[Bool::from(true), Bool::from(false)], &[2])?;
/// assert_eq!(x.dtype().name(), "bool");
/// assert!(x.to_vec::<Bool>(&stream)?[0].get());
/// # Ok::<(), cai_bridge::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[repr(transparent)]
pub struct Bool(u8);

impl Bool {
    /// The value as Rust's `bool`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cai_bridge::Bool;
    ///
    /// assert!(Bool::from(true).get());
    /// ```
    pub const fn get(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Bool {
    fn from(value: bool) -> Self {
        Self(u8::from(value))
    }
}

impl PartialEq for Bool {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Bool {}

elements! {
    Bool = "bool",
}

/// Fails if no element type has the name `T::NAME`, or if that element type and `T` differ in size.
pub(crate) fn dtype_of<T: Element>() -> Result<Dtype> {
    let size = i64::try_from(size_of::<T>()).unwrap_or(0);
    Dtype::from_name(T::NAME)
        .filter(|dtype| dtype.itemsize() == size)
        .ok_or_else(|| Error::new(Kind::ElementType, format!("{} of {size} bytes", T::NAME)))
}

pub(crate) fn bytes<T: Element>(values: &[T]) -> &[u8] {
    // SAFETY: an `Element` has no padding, so all its bytes are initialised. The result borrows the slice.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Drops an incomplete last value.
pub(crate) fn values<T: Element>(bytes: &[u8]) -> Vec<T> {
    let value = |bytes: &[u8]| {
        // SAFETY: `chunks_exact` gives exactly the bytes of a `T`, and any bytes are a valid value.
        unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
    };
    bytes.chunks_exact(size_of::<T>()).map(value).collect()
}

/// The elements' addresses in C order.
pub(super) fn addresses(array: &Descriptor) -> Vec<u64> {
    let (layout, size) = (array.layout(), array.dtype().element_size());
    if layout.size() == 0 {
        return Vec::new();
    }
    let mut found = vec![array.ptr()];
    for (extent, stride) in layout.shape().iter().zip(layout.strides()) {
        // Nothing wraps around: each sum is the address of an element.
        let along =
            |ptr: u64| (0..*extent).map(move |i| ptr.wrapping_add_signed(i * stride * size));
        found = found.into_iter().flat_map(along).collect();
    }
    found
}
