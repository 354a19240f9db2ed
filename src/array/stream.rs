//! Streams for Rust code, whichever runtime owns them.
#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

#[cfg(feature = "cudarc")]
use cudarc::driver::CudaStream;

use super::simulated::SimulatedStream;
use crate::device::Place;
use crate::driver::{self, Handle};
use crate::error::Result;
use crate::stream::{Alive, Stream, Thread};

/// A stream for queuing work: cudarc's `Arc<CudaStream>`, a [`SimulatedStream`], a
/// [`DeviceStream`](crate::DeviceStream) of either, or a stream of another runtime.
///
/// # Safety
///
/// The stream of [`handle`](WorkStream::handle) belongs to [`place`](WorkStream::place), and is not destroyed while
/// this value or a clone of it exists.
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
    /// The driver's handle, `CUstream`. 0 and 1 mean the legacy default stream, 2 the calling thread's default
    /// stream.
    fn handle(&self) -> u64;

    /// The GPU and the context that the stream belongs to.
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
    /// Whether the stream belongs to `driver`. Always true for [`Backend::Other`], which the crate cannot check.
    pub(super) fn is_of(&self, driver: &Handle) -> bool {
        match self {
            #[cfg(feature = "cudarc")]
            Self::Cuda(_) => matches!(driver, Handle::Cuda),
            Self::Simulated(stream) => stream.is_of(driver),
            Self::Other => true,
        }
    }
}

#[doc(hidden)]
#[derive(Debug)]
pub enum Backend<'a> {
    #[cfg(feature = "cudarc")]
    Cuda(&'a Arc<CudaStream>),
    Simulated(&'a SimulatedStream),
    Other,
}

// SAFETY: `SimulatedStream::new` made the stream on the GPU `ordinal`. All clones share one `Owned`, and only its drop
// destroys the stream.
unsafe impl WorkStream for SimulatedStream {
    fn handle(&self) -> u64 {
        self.0.handle
    }

    fn place(&self) -> Place {
        Place::gpu(self.0.ordinal)
    }

    fn driver(&self) -> Result<Handle> {
        Ok(self.0.driver.clone())
    }

    fn backend(&self) -> Backend<'_> {
        Backend::Simulated(self)
    }
}

/// Keeps the stream alive. A per-thread default stream is the stream of the thread that called [`RustStream::of`].
#[derive(Clone)]
pub(crate) struct RustStream {
    stream: Stream,
    place: Place,
    _voucher: Arc<dyn Any + Send + Sync>,
}

impl RustStream {
    pub(crate) fn of<S: WorkStream>(stream: &S) -> Self {
        Self {
            stream: Stream::from_native(stream.handle(), Thread::current()),
            place: stream.place(),
            _voucher: Arc::new(stream.clone()),
        }
    }

    #[cfg(feature = "python")]
    pub(crate) const fn stream(&self) -> Stream {
        self.stream
    }

    pub(crate) const fn alive(&self) -> Alive<'_> {
        // SAFETY: the field `_voucher` is a clone of a `WorkStream`, which by the trait's contract keeps the stream
        // alive. The result borrows `self`, which holds that clone.
        unsafe { Alive::kept(self.stream, self.place) }
    }
}

impl fmt::Debug for RustStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RustStream({} of {:?})", self.stream, self.place)
    }
}
