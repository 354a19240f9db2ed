//! The crate's error type: it says what was wrong, what the value was, and what is allowed.
//!
//! Each error has a [`Kind`], which gives the class of the Python exception, the field that the message names by
//! default, and the values that are allowed. The code that makes the error adds the value that it found. One module,
//! `py::errors`, maps errors to Python exceptions.

use std::borrow::Cow;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

mod kinds;
#[cfg(feature = "arrays")]
mod panics;

#[doc(no_inline)]
pub use kinds::ErrorKind as Kind;
pub use kinds::{Class, ErrorKind};
#[cfg(feature = "arrays")]
pub(crate) use panics::{caught, said};

/// An error: what was wrong, what the value was, and what is allowed.
///
/// # Examples
///
/// ```
/// use cai_bridge::{Error, ErrorKind};
///
/// let error = Error::new(ErrorKind::NotContiguous, "[2]");
/// assert_eq!(error.to_string(), "strides: got [2]; allowed: a C-contiguous array");
/// assert_eq!((error.kind(), error.field(), error.got()), (ErrorKind::NotContiguous, "strides", "[2]"));
/// assert_eq!(error.allowed(), "a C-contiguous array");
/// assert!(Error::at(ErrorKind::NotContiguous, "strides[1]", "2").driver_code().is_none());
///
/// let failed = Error::driver("cuEventRecord", 2, "CUDA_ERROR_OUT_OF_MEMORY");
/// assert_eq!(failed.driver_code().unwrap().code, 2);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<ErrorParts>);

#[derive(Clone, PartialEq, Eq)]
struct ErrorParts {
    kind: Kind,
    field: Cow<'static, str>,
    got: String,
    driver: Option<DriverCode>,
    raised: Option<Raised>,
}

#[derive(Clone)]
struct Raised(Arc<dyn std::error::Error + Send + Sync>);

// The error is only read, so a panic cannot leave it half changed.
impl UnwindSafe for Raised {}
impl RefUnwindSafe for Raised {}

impl PartialEq for Raised {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Raised {}

/// Which call of the driver failed, and with which code.
///
/// # Examples
///
/// ```
/// use cai_bridge::{DriverCode, Error};
///
/// fn is_out_of_memory(error: &Error) -> bool {
///     matches!(error.driver_code(), Some(DriverCode { code: 2, .. }))
/// }
/// assert!(is_out_of_memory(&Error::driver("cuMemAllocAsync", 2, "CUDA_ERROR_OUT_OF_MEMORY")));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverCode {
    /// The entry point, such as `cuEventRecord`.
    pub call: &'static str,
    /// The `CUresult`.
    pub code: u32,
}

/// A `Result` whose error is the crate's.
///
/// # Examples
///
/// ```
/// fn read() -> cai_bridge::Result<u8> {
///     Ok(1)
/// }
/// assert_eq!(read(), Ok(1));
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Makes an error of `kind` about the field that the kind names.
    #[cold]
    pub fn new(kind: ErrorKind, got: impl Into<String>) -> Self {
        Self::at(kind, kind.field(), got)
    }

    /// Makes an error of `kind` about `field`, such as `strides[1]`, in place of the kind's own field.
    #[cold]
    pub fn at(
        kind: ErrorKind,
        field: impl Into<Cow<'static, str>>,
        got: impl Into<String>,
    ) -> Self {
        Self(Box::new(ErrorParts {
            kind,
            field: field.into(),
            got: shortened(got.into()),
            driver: None,
            raised: None,
        }))
    }

    /// Makes the error for a driver call that failed with `code`, which CUDA names `name`.
    #[cold]
    pub fn driver(call: &'static str, code: u32, name: &str) -> Self {
        Self(Box::new(ErrorParts {
            kind: Kind::DriverCall,
            field: Cow::Borrowed(call),
            got: format!("{name} ({code})"),
            driver: Some(DriverCode { call, code }),
            raised: None,
        }))
    }

    /// `got` is not shortened: it may be a compiler's log.
    #[cfg(feature = "cudarc")]
    #[cold]
    pub(crate) fn kernel_code(kernel: &str, got: String) -> Self {
        let mut error = Self::at(Kind::KernelCode, format!("kernel {kernel}"), "");
        error.0.got = got;
        error
    }

    #[cfg(feature = "python")]
    pub(crate) fn with_source(mut self, raised: Arc<dyn std::error::Error + Send + Sync>) -> Self {
        self.0.raised = Some(Raised(raised));
        self
    }

    /// Turns `CUDA_ERROR_INVALID_HANDLE` into an error about the field `stream`.
    #[cfg(feature = "arrays")]
    #[cold]
    pub(crate) fn of_stream(self, stream: impl fmt::Display) -> Self {
        self.told(INVALID_HANDLE, Kind::StreamUnknown, format_args!("{stream}, which is no stream"))
    }

    /// Turns `CUDA_ERROR_OUT_OF_MEMORY` into an error about the field `memory`.
    #[cfg(feature = "arrays")]
    #[cold]
    pub(crate) fn of_memory(self, bytes: u64) -> Self {
        self.told(OUT_OF_MEMORY, Kind::DeviceMemory, format_args!("{bytes} bytes asked for"))
    }

    #[cfg(feature = "arrays")]
    fn told(mut self, code: u32, as_kind: Kind, what: fmt::Arguments<'_>) -> Self {
        if self.driver_code().is_some_and(|failed| failed.code == code) {
            let ErrorParts { kind, field, got, .. } = &mut *self.0;
            *kind = as_kind;
            *got = format!("{what} ({field}: {got})");
            *field = Cow::Borrowed(kind.field());
        }
        self
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The field at fault, or the name of the driver call that failed.
    pub fn field(&self) -> &str {
        &self.0.field
    }

    /// The value that was found, or what went wrong. [`Error::new`] and [`Error::at`] shorten a long value.
    pub fn got(&self) -> &str {
        &self.0.got
    }

    /// The values that are allowed.
    pub fn allowed(&self) -> &'static str {
        match (self.0.kind, self.driver_code()) {
            (Kind::DriverCall, Some(DriverCode { code: INVALID_HANDLE, .. })) => {
                "streams, events and other handles that exist"
            }
            (kind, _) => kind.allowed(),
        }
    }

    /// The driver's call and code, if [`Error::driver`] made the error.
    pub fn driver_code(&self) -> Option<&DriverCode> {
        self.0.driver.as_ref()
    }
}

pub(crate) const INVALID_HANDLE: u32 = 400;

#[cfg(feature = "arrays")]
const OUT_OF_MEMORY: u32 = 2;

/// How many characters [`Error::new`] and [`Error::at`] keep of a value at most. A value that was cut ends with `...`.
pub const SHOWN: usize = 200;

fn shortened(mut got: String) -> String {
    if let Some((end, _)) = got.char_indices().nth(SHOWN) {
        got.truncate(end);
        got.push_str("...");
    }
    got
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: got {}; allowed: {}", self.0.field, self.0.got, self.allowed())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({}: {self})", self.0.kind.name())
    }
}

impl std::error::Error for Error {
    /// The other library's error that caused this one, such as an exception that Python raised.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let raised = self.0.raised.as_ref()?;
        Some(&*raised.0)
    }
}
