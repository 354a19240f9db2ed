//! DLPack 1.3: a tensor's fields, and with the feature `dlpack` managed tensors by dlpark.
//!
//! [`Fields`] holds the fields of a tensor as plain values. [`Fields::decode`] checks the fields and makes a
//! [`Descriptor`](crate::Descriptor). [`Fields::of`] makes the fields for a descriptor. `Fields` needs no feature, no
//! Python and no driver, and fits any declaration of `DLTensor`. The specification is
//! [`dlpack.h`](https://dmlc.github.io/dlpack/latest/c_api.html) and its [Python
//! page](https://dmlc.github.io/dlpack/latest/python_spec.html).
//!
//! ```
//! use cai_bridge::Device;
//! use cai_bridge::dlpack::Fields;
//!
//! // The transpose of a row-major matrix, as another library describes it in a `DLTensor`.
//! let array = Fields {
//!     data: 0x7f00_0000,
//!     device: (2, 0),    // kDLCUDA
//!     dtype: (2, 32, 1), // float32
//!     shape: &[3, 2],
//!     strides: Some(&[1, 3]),
//!     byte_offset: 256,
//!     version: Some((1, 3)),
//!     readonly: false,
//!     padded: false,
//! }
//! .decode()?;
//! assert_eq!((array.ptr(), array.dtype().typestr(), array.device()), (0x7f00_0100, "<f4", Device::cuda(0)));
//! assert!(!array.layout().is_contiguous());
//!
//! // Back to the fields of a tensor.
//! let said = Fields::of(&array);
//! assert_eq!((said.data, said.byte_offset, said.strides), (0x7f00_0100, 0, Some(&[1, 3][..])));
//! # Ok::<(), cai_bridge::Error>(())
//! ```
//!
//! With the feature `dlpack`, `decode` reads C structures and `encode` makes managed tensors, by
//! [dlpark](https://docs.rs/dlpark). Neither orders any work: a tensor does not say on which stream it is ready.
//!
#![cfg_attr(feature = "dlpack", doc = "```")]
#![cfg_attr(not(feature = "dlpack"), doc = "```ignore")]
//! use cai_bridge::dlpack::{decode, encode};
//! use cai_bridge::dlpark::Managed;
//! use cai_bridge::layout::Layout;
//! use cai_bridge::{Descriptor, Device, Dtype};
//!
//! let float = Dtype::from_name("float32").unwrap();
//! let layout = Layout::from_elements(&[2, 3], None, float.element_size())?;
//! let array = Descriptor::new(0x7f00_0000, float, layout, Device::cuda(0), true)?;
//!
//! let owner = Box::new("what keeps the memory, and is dropped with the tensor");
//! let tensor = encode::versioned(&array, owner)?.into_raw(); // a `DLManagedTensorVersioned *` for C
//!
//! // SAFETY: `tensor` came from `into_raw` above, and nothing else uses or deletes it.
//! let taken = unsafe { Managed::from_raw(tensor) }.unwrap();
//! assert_eq!(decode::managed(&taken)?, array);
//! assert!(encode::legacy(&array, Box::new(())).is_err(), "it could not say that it is read-only");
//! let array = array.with_readonly(Some(false));
//! assert_eq!(decode::managed_legacy(&encode::legacy(&array, Box::new(()))?)?, array);
//! # Ok::<(), cai_bridge::Error>(())
//! ```

mod fields;

pub use self::fields::Fields;

#[cfg(feature = "dlpack")]
pub mod decode;
#[cfg(feature = "dlpack")]
pub mod encode;

#[doc(hidden)]
#[cfg(feature = "python")]
pub mod capsule;
#[doc(hidden)]
#[cfg(feature = "python")]
pub mod exchange;
#[doc(hidden)]
#[cfg(feature = "python")]
pub mod host;
