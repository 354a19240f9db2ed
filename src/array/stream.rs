//! Streams in Rust, whoever owns them.
#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

#[cfg(feature = "cudarc")]
use cudarc::driver::CudaStream;

use super::Array;
use super::simulated::SimulatedStream;
use crate::device::Place;
use crate::driver::{self, Handle};
use crate::error::Result;
use crate::stream::{Alive, Stream, Thread};

/// A stream that work is queued on: cudarc's `Arc<CudaStream>`, a [`SimulatedStream`], either of them as a
/// [`DeviceStream`], or that of another runtime.
///
/// # Safety
///
/// The stream of [`handle`](WorkStream::handle) is a stream of [`place`](WorkStream::place), and is not
/// destroyed as long as this or a clone of it lives.
///
/// # Examples
///
/// ```
/// use cai_bridge::{Place, WorkStream};
///
/// /// The legacy default stream of a GPU, which is never destroyed.
/// #[derive(Clone)]
/// struct Legacy(i32);
///
/// // SAFETY: a default stream lives as long as its context.
/// unsafe impl WorkStream for Legacy {
///     fn handle(&self) -> u64 {
///         1
///     }
///
///     fn place(&self) -> Place {
///         Place::gpu(self.0)
///     }
/// }
/// assert_eq!(Legacy(0).place(), Place::gpu(0));
/// ```
pub unsafe trait WorkStream: Clone + Send + Sync + 'static {
    /// Its handle, as the driver has it: `CUstream`. 0 and 1 are the legacy default stream, 2 is that of the
    /// calling thread.
    fn handle(&self) -> u64;

    /// The context that it is in.
    fn place(&self) -> Place;

    #[doc(hidden)]
    fn driver(&self) -> Result<Handle> {
        driver::current()
    }

    #[doc(hidden)]
    fn backend(&self) -> Backend<'_> {
        Backend::Other
    }
}

impl Backend<'_> {
    /// Whether the stream is of `driver`: a handle of one means nothing to another.
    pub(super) fn is_of(&self, driver: &Handle) -> bool {
        match self {
            #[cfg(feature = "cudarc")]
            Self::Cuda(_) => matches!(driver, Handle::Cuda),
            Self::Simulated(stream) => stream.is_of(driver),
            Self::Other => true,
        }
    }
}

/// Whose stream it is, for what only the owner can do with it.
#[doc(hidden)]
#[derive(Debug)]
pub enum Backend<'a> {
    /// cudarc's.
    #[cfg(feature = "cudarc")]
    Cuda(&'a Arc<CudaStream>),
    /// The simulated device's.
    Simulated(&'a SimulatedStream),
    /// Another runtime's.
    Other,
}

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

    /// The same on the GPU `ordinal` of this machine.
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
        return super::cuda::pooled(ordinal).map(Self::Cuda);
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

/// A stream, held so that it stays. The per-thread default stream is that of the thread that held it.
#[derive(Clone)]
pub(crate) struct RustStream {
    stream: Stream,
    place: Place,
    _keeper: Arc<dyn Any + Send + Sync>,
}

impl RustStream {
    pub(crate) fn of<S: WorkStream>(stream: &S) -> Self {
        Self {
            stream: Stream::from_native(stream.handle(), Thread::current()),
            place: stream.place(),
            _keeper: Arc::new(stream.clone()),
        }
    }

    /// Its name.
    #[cfg(feature = "python")]
    pub(crate) const fn stream(&self) -> Stream {
        self.stream
    }

    /// The proof that it is alive.
    pub(crate) const fn alive(&self) -> Alive<'_> {
        // SAFETY: the keeper is a clone of a `WorkStream`, which keeps the stream by that trait's contract, and
        // is held as long as the proof.
        unsafe { Alive::kept(self.stream, self.place) }
    }
}

impl fmt::Debug for RustStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RustStream({} of {:?})", self.stream, self.place)
    }
}
