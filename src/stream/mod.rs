//! Streams: the integers that name them, proof that a stream is alive, and which stream waits for which.
//!
//! Three dialects name a stream by an integer. In the [CUDA Array Interface v3] `None` means that nothing is pending.
//! In [DLPack's Python protocol] `None` means the legacy default stream, and -1 that the consumer wants no order. The
//! driver calls the legacy default stream 0 or 1. The two protocols refuse 0, which may be the legacy default stream or
//! the calling thread's.
//!
//! A [`Stream`] is only a name: nothing in this module touches the stream itself.
//!
//! ```
//! use cai_bridge::stream::{Ready, Request, Stream, Thread};
//!
//! let here = Thread::current(); // in this thread 2 is its own default stream
//! assert_eq!(Ready::from_cai(None, here)?, Ready::Nothing); // a dict's `stream`
//! assert_eq!(Ready::from_cai(Some(1), here)?, Ready::On(Stream::Legacy));
//! assert_eq!(Request::from_integer(Some(-1), here)?, Request::NoOrder); // of `__dlpack__`
//! assert_eq!(Stream::from_native(0, here), Stream::Legacy); // the driver's own
//! assert!(Stream::from_integer(0, here).is_err(), "neither legacy nor per-thread");
//! # Ok::<(), cai_bridge::Error>(())
//! ```
//!
//! [CUDA Array Interface v3]: https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html
//! [DLPack's Python protocol]: https://dmlc.github.io/dlpack/latest/python_spec.html

mod alive;
mod hand_over_rule;

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

#[doc(hidden)]
pub use self::alive::Alive;
#[doc(hidden)]
pub use self::hand_over_rule::{Elided, between, plan};
use crate::error::{Error, Kind, Result};
use crate::local::local;

/// Identifies a thread of the host, for its per-thread default stream.
///
/// # Examples
///
/// ```
/// use cai_bridge::stream::{Stream, Thread};
///
/// let (here, there) = (Thread::current(), Thread::numbered(0));
/// assert_ne!(here.number(), there.number());
/// assert_ne!(Stream::from_native(2, here), Stream::from_native(2, there));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Thread(u64);

impl Thread {
    /// The calling thread. A thread keeps its number while it ends.
    pub fn current() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        local! {
            static ID: Cell<u64> = const { Cell::new(0) };
        }
        Self(ID.get().filter(|id| *id != 0).unwrap_or_else(|| {
            let id = NEXT.fetch_add(1, Ordering::Relaxed);
            ID.replace(id);
            id
        }))
    }

    /// The thread numbered `id`, for tests of the plan.
    pub const fn numbered(id: u64) -> Self {
        Self(id)
    }

    /// The thread's number. [`Self::current`] gives it to no other thread of the process.
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// The name of a stream. It does not say whether the stream is alive.
///
/// # Examples
///
/// ```
/// use cai_bridge::stream::{Stream, Thread};
///
/// let here = Thread::current();
/// let stream = Stream::from_integer(2, here)?;
/// assert_eq!((stream.handle(), stream.seen_from(Thread::numbered(0))), (2, Stream::Legacy));
/// assert_eq!(Stream::from_native(0x7f00, here).to_string(), "the stream 0x7f00");
/// # Ok::<(), cai_bridge::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// The legacy default stream, `CU_STREAM_LEGACY`. It and each blocking stream of its context wait for each other.
    Legacy,
    /// The per-thread default stream, `CU_STREAM_PER_THREAD`. The handle 2 means a different stream in each thread,
    /// so the name includes the thread.
    PerThread(Thread),
    /// A stream with a handle above 2.
    Handle(u64),
}

impl Stream {
    /// The stream that both Python protocols call `value`, as the thread `here` sees it. Fails for 0, for negative
    /// numbers, and for numbers of more than 64 bits.
    pub fn from_integer(value: i128, here: Thread) -> Result<Self> {
        match value {
            0 => Err(Error::new(Kind::StreamZero, "0")),
            1 => Ok(Self::Legacy),
            2 => Ok(Self::PerThread(here)),
            _ => match u64::try_from(value) {
                Ok(handle) => Ok(Self::Handle(handle)),
                Err(_) => Err(Error::new(Kind::StreamNegative, value.to_string())),
            },
        }
    }

    /// The stream that the driver and the exchange API call `value`. For them both 0 and 1 are the legacy stream.
    pub const fn from_native(value: u64, here: Thread) -> Self {
        match value {
            0 | 1 => Self::Legacy,
            2 => Self::PerThread(here),
            handle => Self::Handle(handle),
        }
    }

    /// This stream, as the thread `here` can name it. No thread can name another thread's per-thread stream, so the
    /// legacy default stream is named in its place. Per-thread default streams are blocking, and an event on the legacy
    /// stream follows all earlier work of the context's blocking streams.
    #[must_use]
    pub fn seen_from(self, here: Thread) -> Self {
        match self {
            Self::PerThread(thread) if thread != here => Self::Legacy,
            named => named,
        }
    }

    /// The stream's integer in both Python protocols. The driver takes it as well.
    pub const fn handle(self) -> u64 {
        match self {
            Self::Legacy => 1,
            Self::PerThread(_) => 2,
            Self::Handle(handle) => handle,
        }
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Legacy => f.write_str("the legacy default stream (1)"),
            Self::PerThread(_) => f.write_str("the per-thread default stream (2)"),
            Self::Handle(handle) => write!(f, "the stream {handle:#x}"),
        }
    }
}

/// What a producer says about the work that is pending on its memory.
///
/// # Examples
///
/// ```
/// use cai_bridge::stream::{Ready, Stream, Thread};
///
/// let here = Thread::current();
/// let ready = Ready::On(Stream::Handle(0x7f00));
/// assert_eq!((ready.stream(), ready.to_cai(here)), (Some(Stream::Handle(0x7f00)), Some(0x7f00)));
/// assert_eq!(Ready::from_cai(Some(0x7f00), here)?, ready);
/// assert_eq!(ready.map(Stream::handle), Ready::On(0x7f00));
/// # Ok::<(), cai_bridge::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ready<S = Stream> {
    /// Nothing is pending: usable on any stream at once.
    Nothing,
    /// The producer names no stream, and the bridge cannot assume that this means "nothing". Work may be pending on
    /// the legacy default stream, but on no other.
    Unsaid,
    /// Usable by work queued on this stream, or on a stream that waits for it.
    On(S),
}

impl<S> Ready<S> {
    /// Replaces the stream by what `change` returns.
    pub fn map<T>(self, change: impl FnOnce(S) -> T) -> Ready<T> {
        match self {
            Self::Nothing => Ready::Nothing,
            Self::Unsaid => Ready::Unsaid,
            Self::On(stream) => Ready::On(change(stream)),
        }
    }
}

impl Ready {
    /// The stream that may have pending work: for [`Ready::Unsaid`] the legacy default stream.
    pub const fn stream(self) -> Option<Stream> {
        match self {
            Self::Nothing => None,
            Self::Unsaid => Some(Stream::Legacy),
            Self::On(stream) => Some(stream),
        }
    }

    /// The meaning of the `stream` entry of a version 3 CAI dict: `None` (or no entry) means that nothing is pending.
    /// Fails for a number that names no stream.
    pub fn from_cai(value: Option<i128>, here: Thread) -> Result<Self> {
        match value {
            None => Ok(Self::Nothing),
            Some(value) if u64::try_from(value).is_err() => {
                Err(Error::new(Kind::StreamNoOrder, value.to_string()))
            }
            Some(value) => Stream::from_integer(value, here).map(Self::On),
        }
    }

    /// The `stream` entry of a CAI dict that the thread `here` reads; `None` if nothing is pending.
    pub fn to_cai(self, here: Thread) -> Option<u64> {
        self.stream().map(|stream| stream.seen_from(here).handle())
    }
}

/// What a consumer, or a caller on its behalf, asks for: an order for its stream, no order, or nothing.
///
/// # Examples
///
/// ```
/// use cai_bridge::stream::{Request, Stream, Thread};
///
/// let asked = Request::from_integer(None, Thread::current())?; // `stream=None`
/// assert_eq!((asked, asked.stream()), (Request::Unspecified, None));
/// assert_eq!(asked.or_legacy().stream(), Some(Stream::Legacy));
/// # Ok::<(), cai_bridge::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Request {
    /// `None`: no stream was named.
    Unspecified,
    /// `-1`: no order is wanted.
    NoOrder,
    /// The data must be usable on this stream.
    On(Stream),
}

impl Request {
    /// The requested stream.
    pub const fn stream(self) -> Option<Stream> {
        match self {
            Self::On(stream) => Some(stream),
            Self::Unspecified | Self::NoOrder => None,
        }
    }

    /// The request that a `stream=` argument makes: `None`, -1 or a stream. Fails for a number that names no stream.
    pub fn from_integer(value: Option<i128>, here: Thread) -> Result<Self> {
        match value {
            None => Ok(Self::Unspecified),
            Some(-1) => Ok(Self::NoOrder),
            Some(value) => Stream::from_integer(value, here).map(Self::On),
        }
    }

    /// The request as DLPack reads it: `None` means the legacy default stream.
    #[must_use]
    pub const fn or_legacy(self) -> Self {
        match self {
            Self::Unspecified => Self::On(Stream::Legacy),
            said => said,
        }
    }
}
