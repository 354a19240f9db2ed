//! Error codes of CUDA's driver, as far as the bridge needs them, without CUDA's prefix `CUDA_ERROR_`.

#[cfg(feature = "cudarc-sys")]
use cudarc::driver::sys::CUresult;

use crate::error::{Error, Kind};

macro_rules! codes {
    ($($name:ident = $cudas:ident $code:literal,)+) => {
        $(
            #[doc = concat!("`", stringify!($cudas), "`.")]
            pub const $name: u32 = $code;
            #[cfg(feature = "cudarc-sys")]
            const _: () = assert!($name == CUresult::$cudas as u32);
        )+

        /// Each error code with CUDA's name, without `SUCCESS`.
        pub const ALL: &[(u32, &str)] = &[$(($name, stringify!($cudas)),)+];
    };
}

pub const SUCCESS: u32 = 0;

codes! {
    INVALID_VALUE = CUDA_ERROR_INVALID_VALUE 1,
    OUT_OF_MEMORY = CUDA_ERROR_OUT_OF_MEMORY 2,
    NOT_INITIALIZED = CUDA_ERROR_NOT_INITIALIZED 3,
    DEINITIALIZED = CUDA_ERROR_DEINITIALIZED 4,
    STUB_LIBRARY = CUDA_ERROR_STUB_LIBRARY 34,
    DEVICE_UNAVAILABLE = CUDA_ERROR_DEVICE_UNAVAILABLE 46,
    NO_DEVICE = CUDA_ERROR_NO_DEVICE 100,
    INVALID_DEVICE = CUDA_ERROR_INVALID_DEVICE 101,
    INVALID_CONTEXT = CUDA_ERROR_INVALID_CONTEXT 201,
    ECC_UNCORRECTABLE = CUDA_ERROR_ECC_UNCORRECTABLE 214,
    INVALID_HANDLE = CUDA_ERROR_INVALID_HANDLE 400,
    ILLEGAL_STATE = CUDA_ERROR_ILLEGAL_STATE 401,
    NOT_FOUND = CUDA_ERROR_NOT_FOUND 500,
    NOT_READY = CUDA_ERROR_NOT_READY 600,
    ILLEGAL_ADDRESS = CUDA_ERROR_ILLEGAL_ADDRESS 700,
    LAUNCH_TIMEOUT = CUDA_ERROR_LAUNCH_TIMEOUT 702,
    CONTEXT_IS_DESTROYED = CUDA_ERROR_CONTEXT_IS_DESTROYED 709,
    ASSERT = CUDA_ERROR_ASSERT 710,
    HARDWARE_STACK_ERROR = CUDA_ERROR_HARDWARE_STACK_ERROR 714,
    ILLEGAL_INSTRUCTION = CUDA_ERROR_ILLEGAL_INSTRUCTION 715,
    MISALIGNED_ADDRESS = CUDA_ERROR_MISALIGNED_ADDRESS 716,
    INVALID_ADDRESS_SPACE = CUDA_ERROR_INVALID_ADDRESS_SPACE 717,
    INVALID_PC = CUDA_ERROR_INVALID_PC 718,
    LAUNCH_FAILED = CUDA_ERROR_LAUNCH_FAILED 719,
    COOPERATIVE_LAUNCH_TOO_LARGE = CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE 720,
    NOT_PERMITTED = CUDA_ERROR_NOT_PERMITTED 800,
    NOT_SUPPORTED = CUDA_ERROR_NOT_SUPPORTED 801,
    STREAM_CAPTURE_UNSUPPORTED = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED 900,
    STREAM_CAPTURE_INVALIDATED = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED 901,
    STREAM_CAPTURE_MERGE = CUDA_ERROR_STREAM_CAPTURE_MERGE 902,
    STREAM_CAPTURE_UNMATCHED = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED 903,
    STREAM_CAPTURE_UNJOINED = CUDA_ERROR_STREAM_CAPTURE_UNJOINED 904,
    STREAM_CAPTURE_ISOLATION = CUDA_ERROR_STREAM_CAPTURE_ISOLATION 905,
    STREAM_CAPTURE_IMPLICIT = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT 906,
    CAPTURED_EVENT = CUDA_ERROR_CAPTURED_EVENT 907,
    STREAM_CAPTURE_WRONG_THREAD = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD 908,
    UNKNOWN = CUDA_ERROR_UNKNOWN 999,
}

const _: () = assert!(INVALID_HANDLE == crate::error::INVALID_HANDLE);

/// `CUDA_ERROR_UNKNOWN` if [`ALL`] lacks the code.
pub fn name(code: u32) -> &'static str {
    ALL.iter().find(|(known, _)| *known == code).map_or("CUDA_ERROR_UNKNOWN", |(_, name)| name)
}

pub fn code(name: &str) -> Option<u32> {
    ALL.iter().find(|(_, known)| *known == name).map(|(code, _)| *code)
}

/// [`UNKNOWN`] if `error` has no driver code.
pub(super) fn of(error: &Error) -> u32 {
    error.driver_code().map_or(UNKNOWN, |driver| driver.code)
}

#[cold]
pub(crate) fn failed(call: &'static str, code: u32) -> Error {
    Error::driver(call, code, name(code))
}

/// Whether the error is `CUDA_ERROR_CONTEXT_IS_DESTROYED` or `CUDA_ERROR_INVALID_CONTEXT`.
pub fn is_gone(error: &Error) -> bool {
    let code = error.driver_code().map(|failed| failed.code);
    matches!(code, Some(CONTEXT_IS_DESTROYED | INVALID_CONTEXT))
}

/// Whether the error says that no device has the given ordinal.
pub fn is_missing_device(error: &Error) -> bool {
    let code = error.driver_code().map(|failed| failed.code);
    error.kind() == Kind::DeviceOrdinal || code == Some(INVALID_DEVICE)
}

/// Whether `EndState` abandons an end that fails with `error`. After any other error, `EndState` tries again.
pub fn is_final(error: &Error) -> bool {
    /// After an error such as `ILLEGAL_ADDRESS`, all further CUDA work of the process returns the same error (CUDA
    /// driver API, `CUresult`).
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
