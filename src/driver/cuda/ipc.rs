//! Memory and events that other processes can open, by CUDA's driver. If the driver lacks an entry point of `IpcCalls`,
//! such as `cuDeviceGetUuid_v2` before CUDA 11.4, only methods of [`Ipc`] fail.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

use super::sys::{
    CUdevice, CUdeviceptr, CUevent, CUevent_flags, CUipcEventHandle, CUipcMem_flags,
    CUipcMemHandle, CUmemAllocationHandleType, CUmemPoolPtrExportData, CUmemoryPool,
    CUpointer_attribute, CUstream, CUstream_flags, CUuuid,
};
use super::{Cuda, native};
use crate::driver::ipc::{Allocation, Ipc, Name};
use crate::driver::{Context, Driver, Event};
use crate::error::{Error, Kind, Result};
use crate::stream::Alive;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const FILE: CUmemAllocationHandleType = CUmemAllocationHandleType(1);

/// `CUmemPoolProps`, as CUDA 12.0 declares it. Later versions use some of the reserved bytes.
#[repr(C)]
struct PoolProps {
    /// `CUmemAllocationType`: 1 is `CU_MEM_ALLOCATION_TYPE_PINNED`.
    allocation: c_uint,
    handles: c_uint,
    /// `CUmemLocationType`: 1 is `CU_MEM_LOCATION_TYPE_DEVICE`.
    location: c_uint,
    ordinal: c_int,
    security: *mut c_void,
    reserved: [u64; 8],
}

#[cfg(feature = "cudarc-sys")]
const _: () = assert!(size_of::<PoolProps>() == size_of::<super::sys::CUmemPoolProps>());

fn signed(name: &Name) -> [c_char; 64] {
    name.map(|byte| c_char::from_ne_bytes([byte]))
}

fn unsigned<const N: usize>(name: [c_char; N]) -> [u8; N] {
    name.map(|byte| byte.to_ne_bytes()[0])
}

impl Ipc for Cuda {
    fn uuid(&self, ordinal: i32) -> Result<[u8; 16]> {
        let calls = self.ipc.as_ref().map_err(Clone::clone)?;
        let (mut device, mut uuid): (CUdevice, _) = (0, CUuuid { bytes: [0; 16] });
        // SAFETY: `device` outlives the call.
        unsafe { self.calls.device_get(&raw mut device, ordinal) }?;
        // SAFETY: `device` came from the driver; `uuid` outlives the call.
        unsafe { calls.uuid(&raw mut uuid, device) }?;
        Ok(unsigned(uuid.bytes))
    }

    fn allocation(&self, pointer: u64) -> Result<Allocation> {
        let mut names = [
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
        ];
        // Of a boolean the driver writes fewer than eight bytes. The other bytes stay zero.
        let mut found = [0_u64; 4];
        let mut values = found.each_mut().map(|value| ptr::from_mut(value).cast::<c_void>());
        // SAFETY: `names` and `values` have four entries each and outlive the call. No value is longer than eight
        // bytes: an address, a size, a boolean and a pointer.
        unsafe {
            let (names, values) = (names.as_mut_ptr(), values.as_mut_ptr());
            self.calls.pointer_attributes(4, names, values, pointer)
        }?;
        let [start, bytes, legacy, pool] = found;
        let pool = (pool != 0).then_some(pool);
        Ok(Allocation { range: (start, bytes), is_legacy: legacy & 0xFF != 0, pool })
    }

    fn name_memory(&self, pointer: u64) -> Result<Name> {
        let calls = self.ipc.as_ref().map_err(Clone::clone)?;
        let mut name = CUipcMemHandle { reserved: [0; 64] };
        let _relaxed = self.calls.relaxed()?;
        // SAFETY: the driver checks that the pointer belongs to an allocation; `name` outlives the call.
        unsafe { calls.name_memory(&raw mut name, pointer) }?;
        Ok(unsigned(name.reserved))
    }

    fn open_memory(&self, name: &Name) -> Result<u64> {
        let calls = self.ipc.as_ref().map_err(Clone::clone)?;
        let (mut pointer, name): (CUdeviceptr, _) = (0, CUipcMemHandle { reserved: signed(name) });
        let flags = CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as c_uint;
        let _relaxed = self.calls.relaxed()?;
        // SAFETY: another process exported `name`, which the driver checks; `pointer` outlives the call.
        unsafe { calls.open_memory(&raw mut pointer, name, flags) }?;
        Ok(pointer)
    }

    fn close_memory(&self, pointer: u64) -> Result<()> {
        let calls = self.ipc.as_ref().map_err(Clone::clone)?;
        let _relaxed = self.calls.relaxed()?;
        // SAFETY: the driver returns an error for an address that `cuIpcOpenMemHandle` did not return.
        unsafe { calls.close_memory(pointer) }
    }

    fn create_shared_event(&self, context: Context) -> Result<Event> {
        let life = crate::driver::Driver::life(self, context)?;
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint
            | CUevent_flags::CU_EVENT_BLOCKING_SYNC as c_uint
            | CUevent_flags::CU_EVENT_INTERPROCESS as c_uint;
        let mut event: CUevent = ptr::null_mut();
        let _relaxed = self.calls.relaxed()?;
        // SAFETY: `event` outlives the call.
        unsafe { self.calls.event_create(&raw mut event, flags) }?;
        Ok(Event { handle: event as usize, context, life })
    }

    fn name_event(&self, event: Event) -> Result<Name> {
        let calls = self.ipc.as_ref().map_err(Clone::clone)?;
        event.check_life(self.life(event.context)?, "cuIpcGetEventHandle")?;
        let mut name = CUipcEventHandle { reserved: [0; 64] };
        // SAFETY: nobody has closed the event, and the check above shows that its context is not destroyed. Before CUDA
        // 12 contexts have no numbers, so the process must not reset the context.
        unsafe { calls.name_event(&raw mut name, event.handle as CUevent) }?;
        Ok(unsigned(name.reserved))
    }

    fn open_event(&self, name: &Name, context: Context) -> Result<Event> {
        let calls = self.ipc.as_ref().map_err(Clone::clone)?;
        let life = crate::driver::Driver::life(self, context)?;
        let (mut event, name): (CUevent, _) =
            (ptr::null_mut(), CUipcEventHandle { reserved: signed(name) });
        let _relaxed = self.calls.relaxed()?;
        // SAFETY: the driver checks `name`, which another process exported; `event` outlives the call.
        unsafe { calls.open_event(&raw mut event, name) }?;
        Ok(Event { handle: event as usize, context, life })
    }

    fn close_event(&self, event: Event) -> Result<()> {
        let calls = self.ipc.as_ref().map_err(Clone::clone)?;
        event.check_life(self.life(event.context)?, "cuEventDestroy")?;
        // SAFETY: the caller closes the event once, and the check above shows that its context is not destroyed. Before
        // CUDA 12 contexts have no numbers, so the process must not reset the context.
        unsafe { calls.close_event(event.handle as CUevent) }
    }

    fn create_own_stream(&self) -> Result<u64> {
        let calls = self.ipc.as_ref().map_err(Clone::clone)?;
        let mut stream: CUstream = ptr::null_mut();
        let _relaxed = self.calls.relaxed()?;
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: `stream` outlives the call.
        unsafe { calls.create_stream(&raw mut stream, flags) }?;
        Ok(stream as u64)
    }

    fn create_pool(&self, ordinal: i32) -> Result<u64> {
        let calls = self.ipc.as_ref().map_err(Clone::clone)?;
        let wanted = PoolProps {
            allocation: 1,
            handles: FILE.0,
            location: 1,
            ordinal,
            security: ptr::null_mut(),
            reserved: [0; 8],
        };
        let mut pool: CUmemoryPool = ptr::null_mut();
        let _relaxed = self.calls.relaxed()?;
        // SAFETY: `wanted` has the layout of `CUmemPoolProps`, whose size the wheel's build compares; `pool` and
        // `wanted` outlive the call.
        unsafe { calls.create_pool(&raw mut pool, (&raw const wanted).cast()) }?;
        Ok(pool as u64)
    }

    fn export_pool(&self, pool: u64) -> Result<i32> {
        let calls = self.ipc.as_ref().map_err(Clone::clone)?;
        let mut file: c_int = -1;
        // SAFETY: the pool came from the driver; a file descriptor is an `int`, and `file` outlives the call.
        unsafe { calls.export_pool((&raw mut file).cast(), pool as CUmemoryPool, FILE, 0) }?;
        Ok(file)
    }

    fn import_pool(&self, file: i32) -> Result<u64> {
        let calls = self.ipc.as_ref().map_err(Clone::clone)?;
        let at = usize::try_from(file).map_err(|_| Error::new(Kind::DriverMissing, "no file"))?;
        let mut pool: CUmemoryPool = ptr::null_mut();
        let _relaxed = self.calls.relaxed()?;
        // SAFETY: the driver takes a file descriptor as the pointer's value; `pool` outlives the call.
        unsafe { calls.import_pool(&raw mut pool, at as *mut c_void, FILE, 0) }?;
        Ok(pool as u64)
    }

    fn allocate_from(&self, pool: u64, bytes: u64, stream: Alive<'_>) -> Result<u64> {
        let calls = self.ipc.as_ref().map_err(Clone::clone)?;
        let size = usize::try_from(bytes)
            .map_err(|_| Error::new(Kind::ExtentOverflow, bytes.to_string()))?;
        let mut pointer: CUdeviceptr = 0;
        let (pool, _relaxed) = (pool as CUmemoryPool, self.calls.relaxed()?);
        // SAFETY: the pool came from `create_pool`; `pointer` outlives the call; `Alive` proves that the stream is
        // alive.
        unsafe { calls.allocate_from(&raw mut pointer, size, pool, native(stream)) }?;
        Ok(pointer)
    }

    fn name_pointer(&self, pointer: u64) -> Result<Name> {
        let calls = self.ipc.as_ref().map_err(Clone::clone)?;
        let mut name = CUmemPoolPtrExportData { reserved: [0; 64] };
        // SAFETY: the driver checks that the pointer belongs to an allocation from a pool; `name` outlives the call.
        unsafe { calls.name_pointer(&raw mut name, pointer) }?;
        Ok(name.reserved)
    }

    fn import_pointer(&self, pool: u64, name: &Name) -> Result<u64> {
        let calls = self.ipc.as_ref().map_err(Clone::clone)?;
        let (mut pointer, mut name): (CUdeviceptr, _) =
            (0, CUmemPoolPtrExportData { reserved: *name });
        let (pool, _relaxed) = (pool as CUmemoryPool, self.calls.relaxed()?);
        // SAFETY: `pool` came from `import_pool`; `pointer` and `name` outlive the call.
        unsafe { calls.import_pointer(&raw mut pointer, pool, &raw mut name) }?;
        Ok(pointer)
    }
}
