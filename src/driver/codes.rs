//! The driver's error codes, by CUDA's names.

use cudarc::driver::sys::CUresult;

use crate::error::{Error, Kind};

macro_rules! codes {
    ($($name:ident = $cudas:ident,)+) => {
        $(
            #[doc = concat!("`", stringify!($cudas), "`.")]
            pub const $name: u32 = CUresult::$cudas as u32;
        )+

        /// Every code that has a name here, with it.
        pub const ALL: &[(u32, &str)] = &[$(($name, stringify!($cudas)),)+];
    };
}

codes! {
    INVALID_VALUE = CUDA_ERROR_INVALID_VALUE,
    OUT_OF_MEMORY = CUDA_ERROR_OUT_OF_MEMORY,
    NOT_INITIALIZED = CUDA_ERROR_NOT_INITIALIZED,
    DEINITIALIZED = CUDA_ERROR_DEINITIALIZED,
    DEVICE_UNAVAILABLE = CUDA_ERROR_DEVICE_UNAVAILABLE,
    NO_DEVICE = CUDA_ERROR_NO_DEVICE,
    INVALID_DEVICE = CUDA_ERROR_INVALID_DEVICE,
    INVALID_CONTEXT = CUDA_ERROR_INVALID_CONTEXT,
    ECC_UNCORRECTABLE = CUDA_ERROR_ECC_UNCORRECTABLE,
    INVALID_HANDLE = CUDA_ERROR_INVALID_HANDLE,
    ILLEGAL_STATE = CUDA_ERROR_ILLEGAL_STATE,
    NOT_FOUND = CUDA_ERROR_NOT_FOUND,
    NOT_READY = CUDA_ERROR_NOT_READY,
    ILLEGAL_ADDRESS = CUDA_ERROR_ILLEGAL_ADDRESS,
    LAUNCH_TIMEOUT = CUDA_ERROR_LAUNCH_TIMEOUT,
    CONTEXT_IS_DESTROYED = CUDA_ERROR_CONTEXT_IS_DESTROYED,
    ASSERT = CUDA_ERROR_ASSERT,
    HARDWARE_STACK_ERROR = CUDA_ERROR_HARDWARE_STACK_ERROR,
    ILLEGAL_INSTRUCTION = CUDA_ERROR_ILLEGAL_INSTRUCTION,
    MISALIGNED_ADDRESS = CUDA_ERROR_MISALIGNED_ADDRESS,
    INVALID_ADDRESS_SPACE = CUDA_ERROR_INVALID_ADDRESS_SPACE,
    INVALID_PC = CUDA_ERROR_INVALID_PC,
    LAUNCH_FAILED = CUDA_ERROR_LAUNCH_FAILED,
    COOPERATIVE_LAUNCH_TOO_LARGE = CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
    NOT_PERMITTED = CUDA_ERROR_NOT_PERMITTED,
    NOT_SUPPORTED = CUDA_ERROR_NOT_SUPPORTED,
    STREAM_CAPTURE_UNSUPPORTED = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
    STREAM_CAPTURE_INVALIDATED = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
    STREAM_CAPTURE_MERGE = CUDA_ERROR_STREAM_CAPTURE_MERGE,
    STREAM_CAPTURE_UNMATCHED = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
    STREAM_CAPTURE_UNJOINED = CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
    STREAM_CAPTURE_ISOLATION = CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
    STREAM_CAPTURE_IMPLICIT = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
    CAPTURED_EVENT = CUDA_ERROR_CAPTURED_EVENT,
    STREAM_CAPTURE_WRONG_THREAD = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
    UNKNOWN = CUDA_ERROR_UNKNOWN,
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
pub(crate) fn failed(call: &'static str, code: u32) -> Error {
    Error::driver(call, code, name(code))
}

/// Whether a call failed since the context that it was about is gone.
pub fn is_gone(error: &Error) -> bool {
    let code = error.driver_code().map(|failed| failed.code);
    matches!(code, Some(CONTEXT_IS_DESTROYED | INVALID_CONTEXT))
}

/// Whether a call failed since the machine has no such device.
pub fn is_missing_device(error: &Error) -> bool {
    let code = error.driver_code().map(|failed| failed.code);
    error.kind() == Kind::DeviceOrdinal || code == Some(INVALID_DEVICE)
}

/// Whether no later call can succeed after this failure: the context is gone or broken, and the memory in
/// it, or there is no driver.
pub fn is_final(error: &Error) -> bool {
    /// What a failed kernel leaves behind is sticky: every later call of the context fails with it.
    const FINAL: [u32; 18] = [
        NOT_INITIALIZED,
        DEINITIALIZED,
        INVALID_DEVICE,
        INVALID_CONTEXT,
        ECC_UNCORRECTABLE,
        INVALID_HANDLE,
        ILLEGAL_ADDRESS,
        LAUNCH_TIMEOUT,
        CONTEXT_IS_DESTROYED,
        ASSERT,
        HARDWARE_STACK_ERROR,
        ILLEGAL_INSTRUCTION,
        MISALIGNED_ADDRESS,
        INVALID_ADDRESS_SPACE,
        INVALID_PC,
        LAUNCH_FAILED,
        COOPERATIVE_LAUNCH_TOO_LARGE,
        UNKNOWN,
    ];
    match error.driver_code() {
        Some(failed) => FINAL.contains(&failed.code),
        None => error.kind() == Kind::DriverMissing,
    }
}
