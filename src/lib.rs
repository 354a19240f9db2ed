//! **CUDA kernels in Rust, called from Python with the arrays of any library.** Functions take the arrays of PyTorch,
//! CuPy, JAX, Numba and every other library that speaks DLPack or the CUDA Array Interface. They return arrays that
//! speak both. No memory is copied on the way. Streams wait for each other, so the host seldom waits.
//!
//! # The protocols by themselves
//!
//! Without features the crate has the two protocols' types. It then needs no Python, no driver and no dependency:
//!
//! - [`cai`]: reads, checks and writes the entries of a CUDA Array Interface dict;
//! - [`dlpack`]: reads, checks and writes the fields of a tensor;
//! - [`dtype`]: typestrs, and DLPack's code, bits and lanes;
//! - [`layout`]: checked shapes and strides, contiguity, and the bytes that an array reaches;
//! - [`stream`]: the integers that name streams.
//!
//! A [`Descriptor`] describes an array in the terms of both protocols.
//!
#![cfg_attr(feature = "python", doc = include_str!("front_kernel.md"))]
//!
#![cfg_attr(feature = "arrays", doc = include_str!("front_arrays.md"))]
//!
//! # Errors
//!
//! An [`Error`] says what was wrong, what the value was, and what is allowed. Its [`ErrorKind`] says which Python
//! exception it becomes: `TypeError` for another element type; `BufferError` for strides or read-only memory that a
//! function does not take; `ValueError` for a stream of another device; `DriverError` if the driver failed.
//!
//! # Features
//!
//! - None: [`cai`], [`dlpack::Fields`], [`dtype`], [`layout`], [`stream`] and [`Descriptor`], without any dependency.
//! - `dlpack`: managed tensors in the module [`dlpack`], over [dlpark](https://docs.rs/dlpark).
//! - `arrays`: arrays, scopes, kernels and the simulated device. The features below turn it on.
//! - `cudarc`: streams, memory and kernels of [cudarc](https://docs.rs/cudarc) 0.19. Your own dependency on cudarc
//!   chooses the CUDA version and the linking. Without a CUDA version cudarc's build script fails and lists the
//!   versions. The driver is opened at run time, and building needs no CUDA toolkit, unless you choose
//!   `dynamic-linking` or `static-linking`.
//! - `python`: arguments and return values of [PyO3](https://docs.rs/pyo3) functions, for Python 3.11 and later. You
//!   may build for the stable ABI or not.
//! - `half`, `num-complex`, `float8`: these crates' types as elements; the types of `half` also as kernel arguments.
//! - `wheel` and `cudarc-sys`: only for the Python package's own module. Leave them off.
//!
//! # Stability
//!
//! This page and what it links follow semantic versioning. The minimum Rust version is 1.88; a newer one comes with a
//! minor version. The types of these crates are part of the page: `cudarc` 0.19, `dlpark` 0.10, `pyo3` 0.30, and with
//! their features `half` 2, `num-complex` 0.4 and `float8` 0.7. Another major version of one of them means another
//! major version of this crate. Modules that the page does not list are for the project's own tests.
//!
//! # For developers
//!
//! Data flows one way: foreign object → decode → descriptor + owner + ready stream → order → encode → foreign object. A
//! module uses only the modules above it in the list of `src/lib.rs`.

#![cfg_attr(docsrs, feature(doc_cfg))]

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
pub mod copy_plan;

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
pub use error::{Class, DriverCode, Error, ErrorKind, Result};
#[cfg(feature = "python")]
pub use py::rust::{OneProtocol, Speaking};
