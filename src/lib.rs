//! **CUDA kernels in Rust, called from Python with the arrays of any library.** Arrays of PyTorch, CuPy, JAX, Numba and
//! every other library that speaks DLPack or the CUDA Array Interface come in; arrays that speak both go out. Nothing
//! is copied, the host does not wait, and work on either side waits for work on the other where it has to.
//!
//! # Your kernel in Rust, called from torch
//!
#![cfg_attr(feature = "python", doc = "```no_run")]
#![cfg_attr(not(feature = "python"), doc = "```ignore")]
//! use cai_bridge::{Array, DeviceStream, Grid, Kernel, scope};
//! use pyo3::prelude::*;
//! # const PTX: &str = "";
//! # fn main() {}
//!
//! static DOUBLE: Kernel = Kernel::new("double", PTX); // an entry of your PTX
//!
//! #[pyfunction]
//! fn double(py: Python<'_>, x: Array) -> PyResult<Array> {
//!     let stream = DeviceStream::beside(&x)?; // a `CudaStream` of cudarc's, on the device of `x`
//!     let mut out = Array::empty::<f32>(&stream, x.shape())?;
//!     py.detach(|| {
//!         scope(&stream, |s| {
//!             let x = x.on(s)?.view::<f32>()?; // the stream waits for torch's; type and layout are checked
//!             let mut out = out.on_mut(s)?.view_mut::<f32>()?;
//!             let n = x.len() as u32;
//!             // SAFETY: the kernel reads n floats at x, and writes n at out.
//!             unsafe { s.launch(&DOUBLE, Grid::cover(x.len(), 256), (&x, &mut out, n)) }
//!         }) // torch's stream waits for this one
//!     })?;
//!     Ok(out.into()) // ready on `stream`, and freed there after its last consumer's work
//! }
//!
//! #[pymodule]
//! mod my_kernels {
//!     #[pymodule_export]
//!     use super::double;
//! }
//! ```
//!
//! ```python
//! y = torch.from_dlpack(my_kernels.double(torch.rand(1 << 20, device="cuda")))
//! z = cupy.asarray(my_kernels.double(cupy.ones(100, "float32")))
//! ```
//!
//! `examples/rust_extension` in the repository is the whole crate, with its PTX, and `maturin build` makes its wheel.
//!
//! ```toml
//! [dependencies]
//! cai_bridge = { version = "0.3", features = ["cudarc", "python"] }
//! cudarc = { version = "0.19", default-features = false, features = ["cuda-12000"] } # the version that you choose
//! ```
//!
//! # What there is
//!
//! - [`Array`] and [`ArrayMut`]: an array of any library, and one that may be written. As arguments of a `#[pyfunction]`
//!   they take whatever speaks either protocol; as return values they speak both, or one (`Array::dlpack`, `Array::cai`).
//! - [`scope`]: work on a stream. [`Array::on`] orders an array there and gives a checked [`View`]; the end of the scope
//!   gives the memory back in order. A view that leaves its scope, its array or its stream does not compile.
//! - [`Kernel`], of PTX, a cubin, a fatbin or what NVRTC compiles, and [`Scope::launch`]; structures as arguments
//!   ([`ByValue`]), disjoint parts of a view ([`ViewMut::split_at_mut`]), clusters and cooperative launches ([`Grid`]). Or `View::cuda` for cudarc's own calls.
//! - Rust's own memory as arrays: [`Array::empty`], `Array::from_slice` of a `CudaSlice`, `Array::from_shared` of an `Arc` of one, pinned and managed memory, and
//!   any [`Owner`]. [`Array::to_dlpack`] and [`Array::from_dlpack`] go between Rust crates, without Python, and so do
//!   [`Array::to_dlpack_legacy`] and [`Array::from_dlpack_legacy`] where one of them has DLPack's older structure.
//! - [`testing::SimulatedCuda`]: a device that needs no GPU, for `cargo test`.
//! - The protocols by themselves, without Python and without a driver: [`cai`], the entries of a dict, read and written;
//!   [`dtype`], typestrs and DLPack's types; [`layout`], shapes and strides, checked; [`stream`], the integers that name
//!   streams; [`dlpack`], a tensor's fields, read and written. A [`Descriptor`] is what they have in common.
//!
//! # Errors
//!
//! An [`Error`] says what was wrong, what it was and what is allowed, and its [`ErrorKind`] which Python exception it is:
//! `TypeError` for another element type, `BufferError` for strides or read-only memory that a function does not take,
//! `ValueError` for a stream of another device, `DriverError` where the driver failed.
//!
//! # Without a GPU
//!
//! An extension has this crate's state of its own, apart from that of the Python package `cai_bridge`, and needs that
//! package neither to build nor to run. Where the package is imported and `cai_bridge.testing.simulated_cuda()` is in
//! place, the extension borrows that simulated device: [`DeviceStream::beside`] gives a stream of it, and
//! [`Kernel::on_host`] says what runs there in place of the PTX. So the extension's tests run in a CI without a GPU, and
//! its work is checked against everybody else's, access by access.
//!
//! # Features
//!
//! - None: [`cai`], [`dlpack::Fields`], [`dtype`], [`layout`], [`stream`] and [`Descriptor`], without any dependency.
//! - `dlpack`: managed tensors in the module [`dlpack`], over [dlpark](https://docs.rs/dlpark).
//! - `arrays`: arrays, scopes, kernels and the simulated device. The features below set it.
//! - `cudarc`: streams, memory and kernels of [cudarc](https://docs.rs/cudarc) 0.19, in the version and with the linking
//!   that your own dependency on cudarc names. A build without a version fails in cudarc's build script, which lists them.
//!   The driver is opened at run time unless you choose `dynamic-linking` or `static-linking`; then building needs no CUDA
//!   toolkit.
//! - `python`: arguments and return values of [PyO3](https://docs.rs/pyo3), for Python 3.11 and later. The stable ABI is
//!   yours to choose.
//! - `half`, `num-complex`, `float8`: these crates' types as elements, and as kernel arguments those of `half`.
//! - `wheel`, and `cudarc-sys`, which it sets: the Python package's own module. Leave them out.
//!
//! # What stays
//!
//! This page and what it links follows semantic versioning; the minimum Rust version is 1.88, and a new one is a minor
//! version. So do the crates that it names types of: `cudarc` 0.19, `dlpark` 0.10, `pyo3` 0.30, and with their features
//! `half` 2, `num-complex` 0.4 and `float8` 0.7. Another major version of one of them is one of this crate. The modules that
//! the page does not list are for the project's own tests.
//!
//! # For developers
//!
//! Data flows one way: foreign object → decode → descriptor + owner + ready stream → order → encode → foreign object. A
//! module uses only those above it in the list of `src/lib.rs`.

#![cfg_attr(docsrs, feature(doc_cfg))]
// This page is written for all features.
#![cfg_attr(not(feature = "arrays"), allow(rustdoc::broken_intra_doc_links))]

/// The README's examples, to be run with the others.
#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;

mod local;

#[doc(hidden)]
pub mod error;

pub mod dtype;
pub mod layout;

#[doc(hidden)]
pub mod copy;

#[doc(hidden)]
pub mod device;
pub mod stream;

#[doc(hidden)]
pub mod capture;

#[doc(hidden)]
pub mod descriptor;

#[doc(hidden)]
#[cfg(feature = "arrays")]
pub mod driver;

#[doc(hidden)]
#[cfg(feature = "arrays")]
pub mod order;

#[doc(hidden)]
#[cfg(feature = "arrays")]
pub mod buffer;

#[doc(hidden)]
#[cfg(feature = "arrays")]
pub mod lease;

pub mod cai;
pub mod dlpack;

#[cfg(feature = "arrays")]
mod array;

#[cfg(feature = "arrays")]
pub mod testing;

#[cfg(feature = "python")]
mod py;

#[cfg(feature = "arrays")]
pub use array::{
    Argument, Arguments, Array, ArrayMut, Bool, ByValue, DeviceStream, Element, Grid, Kernel,
    LegacyTensor, On, OnHost, OnMut, Owner, Scalar, Scope, SimulatedStream, Tensor, View, ViewMut,
    WorkStream, scope,
};
#[cfg(feature = "cudarc")]
pub use array::{CudaBorrow, CudaBorrowMut};
#[cfg(feature = "cudarc")]
pub use cudarc;
pub use descriptor::{CaiDims, Descriptor};
pub use device::{Context, Device, MemoryKind, Place};
#[cfg(feature = "dlpack")]
pub use dlpark;
pub use dtype::Dtype;
pub use error::{Class, DriverCode, Error, Kind as ErrorKind, Result};
#[cfg(feature = "python")]
pub use py::rust::{OneProtocol, Speaking};
