//! DLPack 1.3 over [`dlpark`]: the second door, where foreign C structures are read and written.
//!
//! [`decode`] reads a `DLTensor` into a [`Descriptor`](crate::Descriptor), [`encode`] makes managed tensors. Neither needs
//! Python or a driver, and neither orders anything: a tensor does not say on which stream it is ready. The specification
//! is [`dlpack.h`](https://dmlc.github.io/dlpack/latest/c_api.html) and its
//! [Python page](https://dmlc.github.io/dlpack/latest/python_spec.html).
//!
//! ```
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
//! // SAFETY: the tensor that was given up above.
//! let taken = unsafe { Managed::from_raw(tensor) }.unwrap();
//! assert_eq!(decode::managed(&taken)?, array);
//! assert!(encode::legacy(&array, Box::new(())).is_err(), "it could not say that it is read-only");
//! let array = array.with_readonly(Some(false));
//! assert_eq!(decode::managed_legacy(&encode::legacy(&array, Box::new(()))?)?, array);
//! # Ok::<(), cai_bridge::Error>(())
//! ```

pub mod decode;
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
