//! A stream on a real or a simulated device.
#![allow(unsafe_code)]

#[cfg(feature = "cudarc")]
use std::sync::Arc;

#[cfg(feature = "cudarc")]
use cudarc::driver::CudaStream;

use super::Array;
#[cfg(feature = "cudarc")]
use super::cuda::pooled;
use super::simulated::SimulatedStream;
use super::stream::{Backend, WorkStream};
use crate::device::Place;
use crate::driver::{self, Handle};
use crate::error::Result;

/// A stream of cudarc or of the simulated device, for code that runs both on a GPU and in a CI without GPUs.
///
/// # Examples
///
/// ```
/// use cai_bridge::testing::SimulatedCuda;
/// use cai_bridge::{Array, DeviceStream, Place, WorkStream};
///
/// let cuda = SimulatedCuda::new(1);
/// let x = Array::from_host(&cuda.stream(0)?, &[1.0_f32, 2.0], &[2])?;
/// let stream = DeviceStream::beside(&x)?; // on a GPU: a `CudaStream` of the array's device
/// assert_eq!(stream.place(), Place::gpu(0));
/// # Ok::<(), cai_bridge::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum DeviceStream {
    /// A stream of cudarc.
    #[cfg(feature = "cudarc")]
    Cuda(Arc<CudaStream>),
    /// A stream of the simulated device.
    Simulated(SimulatedStream),
}

impl DeviceStream {
    /// Returns a stream on the GPU of the array's producer. For an array of a simulated device this is a new stream of
    /// that device. For a real GPU the crate keeps up to 16 non-blocking streams. A thread gets the same stream each
    /// time until the device is reset, and may share it with other threads.
    ///
    /// # Errors
    ///
    /// No driver, an error of the driver, or an array on a GPU without the feature `cudarc`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cai_bridge::testing::SimulatedCuda;
    /// use cai_bridge::{Array, DeviceStream};
    ///
    /// let cuda = SimulatedCuda::new(1);
    /// let x = Array::from_host(&cuda.stream(0)?, &[1.0_f32], &[1])?;
    /// let stream = DeviceStream::beside(&x)?;
    /// assert_eq!(x.to_vec::<f32>(&stream)?, [1.0]);
    /// # Ok::<(), cai_bridge::Error>(())
    /// ```
    pub fn beside(array: &Array) -> Result<Self> {
        Self::of(array.origin.driver(), array.origin.place().ordinal)
    }

    /// Returns a stream on the GPU `ordinal` of this machine, or of the simulated device that is in use, as
    /// [`beside`](DeviceStream::beside) does.
    ///
    /// # Errors
    ///
    /// No such GPU, no driver, an error of the driver, or a GPU without the feature `cudarc`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use cai_bridge::{Array, DeviceStream};
    ///
    /// let x = Array::empty::<f32>(&DeviceStream::new(0)?, &[16])?;
    /// # Ok::<(), cai_bridge::Error>(())
    /// ```
    pub fn new(ordinal: i32) -> Result<Self> {
        Self::of(&driver::current()?, ordinal)
    }

    pub(crate) fn of(driver: &Handle, ordinal: i32) -> Result<Self> {
        if driver.machine().is_some() {
            return SimulatedStream::new(driver, ordinal).map(Self::Simulated);
        }
        #[cfg(feature = "cudarc")]
        return pooled(ordinal).map(Self::Cuda);
        #[cfg(not(feature = "cudarc"))]
        return Err(crate::error::Error::new(
            crate::error::Kind::NoBackend,
            "a GPU, and a build without the feature \"cudarc\"",
        ));
    }
}

// SAFETY: each variant holds a `WorkStream` and forwards to it, so it keeps the contract of `WorkStream`.
unsafe impl WorkStream for DeviceStream {
    fn handle(&self) -> u64 {
        match self {
            #[cfg(feature = "cudarc")]
            Self::Cuda(stream) => stream.handle(),
            Self::Simulated(stream) => stream.handle(),
        }
    }

    fn place(&self) -> Place {
        match self {
            #[cfg(feature = "cudarc")]
            Self::Cuda(stream) => stream.place(),
            Self::Simulated(stream) => stream.place(),
        }
    }

    fn driver(&self) -> Result<Handle> {
        match self {
            #[cfg(feature = "cudarc")]
            Self::Cuda(stream) => stream.driver(),
            Self::Simulated(stream) => stream.driver(),
        }
    }

    fn backend(&self) -> Backend<'_> {
        match self {
            #[cfg(feature = "cudarc")]
            Self::Cuda(stream) => stream.backend(),
            Self::Simulated(stream) => stream.backend(),
        }
    }
}
