//! Zero-copy translation between DLPack and the CUDA Array Interface, with the event waits that
//! the two protocols' stream rules need.
//!
//! Data flows one way: foreign object → decode → [`descriptor::Descriptor`] + owner + ready stream →
//! order → encode → foreign object. A module uses only those above it in this list.

pub mod error;

pub mod dtype;
pub mod layout;

pub mod copy;

pub mod device;
pub mod stream;

pub mod capture;

pub mod descriptor;

pub mod driver;

pub mod order;

pub mod buffer;

pub mod lease;

pub mod cai;
pub mod dlpack;

pub mod array;

pub mod testing;

#[cfg(feature = "python")]
mod py;

pub use array::{
    Argument, Arguments, Array, ArrayMut, DeviceStream, Element, Grid, Kernel, On, OnHost, OnMut,
    Owner, Scalar, Scope, SimulatedStream, Tensor, View, ViewMut, WorkStream, scope,
};
#[cfg(feature = "cudarc")]
pub use array::{CudaBorrow, CudaBorrowMut};
#[cfg(feature = "cudarc")]
pub use cudarc;
pub use device::{Context, Device, MemoryKind, Place};
pub use dlpark;
pub use dtype::Dtype;
pub use error::{Class, Error, Kind as ErrorKind, Result};
#[cfg(feature = "python")]
pub use py::rust::{OneProtocol, Speaking};
