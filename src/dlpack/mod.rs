//! DLPack 1.3 over [`dlpark`]: the second door, where foreign C structures are read and written.
//!
//! [`decode`] reads a `DLTensor` into a descriptor, [`encode`] makes managed tensors. With Python,
//! `capsule` reads capsules and `exchange` the C exchange API. The specification is
//! [`dlpack.h`](https://dmlc.github.io/dlpack/latest/c_api.html) and its
//! [Python page](https://dmlc.github.io/dlpack/latest/python_spec.html).

pub mod decode;
pub mod encode;

#[cfg(feature = "python")]
pub mod capsule;
#[cfg(feature = "python")]
pub mod exchange;
#[cfg(feature = "python")]
pub mod host;
