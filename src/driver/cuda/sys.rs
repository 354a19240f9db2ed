//! The C types, structures and constants for the driver calls of this crate.
//!
//! The crate declares them itself, so that it works beside any version of [cudarc](https://docs.rs/cudarc). With the
//! feature `cudarc-sys`, which the wheel sets, cudarc's declarations replace them. The compiler then compares the
//! values of `enumerations!` and the layouts of `structures!` with cudarc's.
#![allow(unsafe_code)]

#[cfg(feature = "cudarc-sys")]
pub(super) use cudarc::driver::sys::{
    CUDA_MEMCPY2D_v2, CUDA_MEMCPY3D_PEER_v1, CUDA_MEMCPY3D_v2, CUcontext, CUdevice, CUdeviceptr,
    CUevent, CUevent_flags, CUevent_wait_flags, CUfunction, CUgraph, CUgraphNode, CUhostFn,
    CUipcEventHandle, CUipcMem_flags, CUipcMemHandle, CUlaunchAttribute, CUlaunchAttributeID,
    CUlaunchAttributeValue, CUlaunchConfig, CUmemAllocationHandleType, CUmemPoolProps,
    CUmemPoolPtrExportData, CUmemoryPool, CUmemorytype, CUmodule, CUpointer_attribute, CUstream,
    CUstream_flags, CUstreamCaptureMode, CUstreamCaptureStatus, CUuuid, cuuint64_t,
};
use libloading::Library;
#[cfg(not(feature = "cudarc-sys"))]
pub(super) use own::*;

const VERSIONED: &str = "libcuda.so.1";

#[cfg(feature = "cudarc-sys")]
pub(super) fn library() -> Option<&'static Library> {
    use cudarc::driver::sys;
    // SAFETY: cudarc opens the driver's library, whose initialisers every CUDA program runs. `culib` panics without a
    // library, so `is_culib_present` comes first.
    unsafe { sys::is_culib_present().then(|| sys::culib()) }
}

/// `libcuda.so.1`. If that does not open, `libcuda.so`, which can be the toolkit's stub.
#[cfg(not(feature = "cudarc-sys"))]
pub(super) fn library() -> Option<&'static Library> {
    // SAFETY: the file is the driver's library or its stub, whose initialisers every CUDA program runs.
    versioned().or_else(|| unsafe { open("libcuda.so") })
}

/// `libcuda.so.1`: the toolkit does not install its stub under this name.
pub(super) fn versioned() -> Option<&'static Library> {
    // SAFETY: the file is the driver's library, whose initialisers every CUDA program runs.
    unsafe { open(VERSIONED) }
}

/// # Safety
///
/// It must be sound to run the library's initialisers.
unsafe fn open(name: &str) -> Option<&'static Library> {
    // SAFETY: the caller promises that it is sound to run the initialisers.
    let library = unsafe { Library::new(name) };
    library.ok().map(|library| &*Box::leak(Box::new(library)))
}

#[allow(non_camel_case_types, non_snake_case)]
#[cfg_attr(feature = "cudarc-sys", allow(dead_code))]
mod own {
    use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
    use std::fmt;

    pub(crate) type CUdevice = c_int;
    pub(crate) type CUdeviceptr = c_ulonglong;
    pub(crate) type cuuint64_t = u64;
    pub(crate) type CUhostFn = Option<unsafe extern "C" fn(*mut c_void)>;

    macro_rules! opaque {
        ($($pointer:ident = $structure:ident;)+) => {
            $(
                #[repr(C)]
                pub(crate) struct $structure([u8; 0]);
                pub(crate) type $pointer = *mut $structure;
            )+
        };
    }

    opaque! {
        CUcontext = CUctx_st;
        CUstream = CUstream_st;
        CUevent = CUevent_st;
        CUfunction = CUfunc_st;
        CUgraph = CUgraph_st;
        CUgraphNode = CUgraphNode_st;
        CUarray = CUarray_st;
        CUmodule = CUmod_st;
        CUmemoryPool = CUmemPoolHandle_st;
    }

    macro_rules! enumerations {
        ($($enumeration:ident { $($name:ident = $value:literal),+ })+) => {
            $(
                #[repr(u32)]
                #[derive(Debug, Clone, Copy, PartialEq, Eq)]
                #[allow(clippy::enum_variant_names)]
                pub(crate) enum $enumeration { $($name = $value),+ }

                #[cfg(feature = "cudarc-sys")]
                const _: () = {
                    use cudarc::driver::sys;
                    assert!(size_of::<sys::$enumeration>() == size_of::<u32>());
                    $(assert!($enumeration::$name as u32 == sys::$enumeration::$name as u32);)+
                };
            )+
        };
    }

    enumerations! {
        CUpointer_attribute {
            CU_POINTER_ATTRIBUTE_CONTEXT = 1,
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
            CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
            CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10,
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
            CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
            CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE = 17
        }
        CUmemorytype {
            CU_MEMORYTYPE_HOST = 1,
            CU_MEMORYTYPE_DEVICE = 2,
            CU_MEMORYTYPE_UNIFIED = 4
        }
        CUevent_flags {
            CU_EVENT_BLOCKING_SYNC = 1, CU_EVENT_DISABLE_TIMING = 2, CU_EVENT_INTERPROCESS = 4
        }
        CUipcMem_flags { CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1 }
        CUevent_wait_flags { CU_EVENT_WAIT_DEFAULT = 0, CU_EVENT_WAIT_EXTERNAL = 1 }
        CUstream_flags { CU_STREAM_NON_BLOCKING = 1 }
        CUstreamCaptureMode { CU_STREAM_CAPTURE_MODE_RELAXED = 2 }
        CUstreamCaptureStatus { CU_STREAM_CAPTURE_STATUS_NONE = 0 }
        CUlaunchAttributeID {
            CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2,
            CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4
        }
    }

    macro_rules! structures {
        ($($structure:ident { $($field:ident: $type:ty),+ })+) => {
            $(
                #[repr(C)]
                #[derive(Debug, Clone, Copy)]
                pub(crate) struct $structure { $(pub(crate) $field: $type),+ }

                #[cfg(feature = "cudarc-sys")]
                const _: () = {
                    use cudarc::driver::sys;
                    assert!(size_of::<$structure>() == size_of::<sys::$structure>());
                    assert!(align_of::<$structure>() == align_of::<sys::$structure>());
                    $(assert!(
                        std::mem::offset_of!($structure, $field)
                            == std::mem::offset_of!(sys::$structure, $field)
                    );)+
                };
            )+
        };
    }

    #[repr(C)]
    #[derive(Clone, Copy)]
    pub(crate) union CUlaunchAttributeValue {
        pub(crate) pad: [c_char; 64],
        _pointer: *mut c_void,
    }

    impl fmt::Debug for CUlaunchAttributeValue {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("CUlaunchAttributeValue")
        }
    }

    #[repr(transparent)]
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct CUmemAllocationHandleType(pub(crate) c_uint);

    #[repr(C)]
    pub(crate) struct CUmemPoolProps([u8; 0]);

    structures! {
        CUuuid { bytes: [c_char; 16] }
        CUipcMemHandle { reserved: [c_char; 64] }
        CUipcEventHandle { reserved: [c_char; 64] }
        CUmemPoolPtrExportData { reserved: [c_uchar; 64] }
        CUlaunchAttribute {
            id: CUlaunchAttributeID, pad: [c_char; 4], value: CUlaunchAttributeValue
        }
        CUlaunchConfig {
            gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint,
            blockDimX: c_uint, blockDimY: c_uint, blockDimZ: c_uint,
            sharedMemBytes: c_uint, hStream: CUstream, attrs: *mut CUlaunchAttribute,
            numAttrs: c_uint
        }
        CUDA_MEMCPY2D_v2 {
            srcXInBytes: usize, srcY: usize, srcMemoryType: CUmemorytype, srcHost: *const c_void,
            srcDevice: CUdeviceptr, srcArray: CUarray, srcPitch: usize,
            dstXInBytes: usize, dstY: usize, dstMemoryType: CUmemorytype, dstHost: *mut c_void,
            dstDevice: CUdeviceptr, dstArray: CUarray, dstPitch: usize,
            WidthInBytes: usize, Height: usize
        }
        CUDA_MEMCPY3D_v2 {
            srcXInBytes: usize, srcY: usize, srcZ: usize, srcLOD: usize,
            srcMemoryType: CUmemorytype, srcHost: *const c_void, srcDevice: CUdeviceptr,
            srcArray: CUarray, reserved0: *mut c_void, srcPitch: usize, srcHeight: usize,
            dstXInBytes: usize, dstY: usize, dstZ: usize, dstLOD: usize,
            dstMemoryType: CUmemorytype, dstHost: *mut c_void, dstDevice: CUdeviceptr,
            dstArray: CUarray, reserved1: *mut c_void, dstPitch: usize, dstHeight: usize,
            WidthInBytes: usize, Height: usize, Depth: usize
        }
        CUDA_MEMCPY3D_PEER_v1 {
            srcXInBytes: usize, srcY: usize, srcZ: usize, srcLOD: usize,
            srcMemoryType: CUmemorytype, srcHost: *const c_void, srcDevice: CUdeviceptr,
            srcArray: CUarray, srcContext: CUcontext, srcPitch: usize, srcHeight: usize,
            dstXInBytes: usize, dstY: usize, dstZ: usize, dstLOD: usize,
            dstMemoryType: CUmemorytype, dstHost: *mut c_void, dstDevice: CUdeviceptr,
            dstArray: CUarray, dstContext: CUcontext, dstPitch: usize, dstHeight: usize,
            WidthInBytes: usize, Height: usize, Depth: usize
        }
    }
}
