//! A stream of whichever device there is.
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

/// A stream of cudarc's, or of the simulated device: for code that runs on a GPU, and in a CI without one.
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
    /// cudarc's.
    #[cfg(feature = "cudarc")]
    Cuda(Arc<CudaStream>),
    /// The simulated device's.
    Simulated(SimulatedStream),
}

impl DeviceStream {
    /// A stream on the device of `array`: the simulated one that it is on, else one of a few non-blocking
    /// streams that the crate has for that GPU, the same at each call of a thread.
    ///
    /// # Errors
    ///
    /// There is no driver; or, without the feature `cudarc`, `array` is on a GPU.
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

    /// A stream on the GPU `ordinal` of this machine.
    ///
    /// # Errors
    ///
    /// There is no such GPU, or no driver.
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

// SAFETY: the streams', each of which is one.
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
