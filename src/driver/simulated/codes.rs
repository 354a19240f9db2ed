//! The driver's error codes, by CUDA's names.

use crate::error::Error;

macro_rules! codes {
    ($($name:ident = $code:literal,)+) => {
        $(
            #[doc = concat!("`CUDA_ERROR_", stringify!($name), "`.")]
            pub const $name: u32 = $code;
        )+

        /// Every code that has a name here, with it.
        pub const ALL: &[(u32, &str)] = &[$(($code, concat!("CUDA_ERROR_", stringify!($name))),)+];
    };
}

codes! {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    DEINITIALIZED = 4,
    DEVICE_UNAVAILABLE = 46,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    ECC_UNCORRECTABLE = 214,
    INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_TIMEOUT = 702,
    CONTEXT_IS_DESTROYED = 709,
    ASSERT = 710,
    LAUNCH_FAILED = 719,
    NOT_PERMITTED = 800,
    NOT_SUPPORTED = 801,
    STREAM_CAPTURE_UNSUPPORTED = 900,
    STREAM_CAPTURE_INVALIDATED = 901,
    STREAM_CAPTURE_MERGE = 902,
    STREAM_CAPTURE_UNMATCHED = 903,
    STREAM_CAPTURE_UNJOINED = 904,
    STREAM_CAPTURE_ISOLATION = 905,
    STREAM_CAPTURE_IMPLICIT = 906,
    CAPTURED_EVENT = 907,
    STREAM_CAPTURE_WRONG_THREAD = 908,
    UNKNOWN = 999,
}

/// CUDA's name for `code`; `CUDA_ERROR_UNKNOWN` where it has none here.
pub fn name(code: u32) -> &'static str {
    ALL.iter().find(|(known, _)| *known == code).map_or("CUDA_ERROR_UNKNOWN", |(_, name)| name)
}

/// The code that CUDA calls `name`.
pub fn code(name: &str) -> Option<u32> {
    ALL.iter().find(|(_, known)| *known == name).map(|(code, _)| *code)
}

/// The code that an error of the driver carries.
pub(super) fn of(error: &Error) -> u32 {
    error.driver_code().map_or(UNKNOWN, |driver| driver.code)
}

/// A driver call that failed with `code`.
#[cold]
pub(super) fn failed(call: &'static str, code: u32) -> Error {
    Error::driver(call, code, name(code))
}
