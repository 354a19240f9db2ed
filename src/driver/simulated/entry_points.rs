//! The entry points of the driver that are logged, and the arguments and the outcome of a call.

use crate::driver::{Context, Event};
use crate::stream::{Stream, Thread};

macro_rules! calls {
    ($($name:ident = $entry:literal, $result:ident;)+) => {
        /// An entry point of the driver whose calls are logged and can be made to fail.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Call {
            $(#[doc = concat!("`", $entry, "`.")] $name,)+
        }

        impl Call {
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $entry,)+ }
            }

            pub(super) const fn is_effect_only(self) -> bool {
                match self { $(Self::$name => calls!(@ $result),)+ }
            }
        }
    };
    (@ nothing) => { true };
    (@ value) => { false };
}

calls! {
    PointerGetAttributes = "cuPointerGetAttributes", value;
    PrimaryCtxRetain = "cuDevicePrimaryCtxRetain", value;
    CtxGetCurrent = "cuCtxGetCurrent", value;
    CtxGetDevice = "cuCtxGetDevice", value;
    CtxGetId = "cuCtxGetId", value;
    CtxPushCurrent = "cuCtxPushCurrent", nothing;
    CtxPopCurrent = "cuCtxPopCurrent", nothing;
    CtxSynchronize = "cuCtxSynchronize", nothing;
    ModuleUnload = "cuModuleUnload", nothing;
    EventCreate = "cuEventCreate", value;
    EventRecord = "cuEventRecord", nothing;
    EventQuery = "cuEventQuery", value;
    EventSynchronize = "cuEventSynchronize", nothing;
    StreamWaitEvent = "cuStreamWaitEvent", nothing;
    StreamSynchronize = "cuStreamSynchronize", nothing;
    StreamGetFlags = "cuStreamGetFlags", value;
    StreamGetCtx = "cuStreamGetCtx", value;
    StreamGetId = "cuStreamGetId", value;
    StreamIsCapturing = "cuStreamIsCapturing", value;
    MemAllocAsync = "cuMemAllocAsync", value;
    MemFreeAsync = "cuMemFreeAsync", nothing;
    MemAlloc = "cuMemAlloc", value;
    MemFree = "cuMemFree", nothing;
    MemcpyAsync = "cuMemcpyAsync", nothing;
    MemcpyDtoHAsync = "cuMemcpyDtoHAsync", nothing;
    MemcpyHtoDAsync = "cuMemcpyHtoDAsync", nothing;
    MemcpyPeerAsync = "cuMemcpyPeerAsync", nothing;
    Memcpy2DAsync = "cuMemcpy2DAsync", nothing;
    Memcpy3DAsync = "cuMemcpy3DAsync", nothing;
    Memcpy3DPeerAsync = "cuMemcpy3DPeerAsync", nothing;
    StreamGetCaptureInfo = "cuStreamGetCaptureInfo", value;
    DeviceGetUuid = "cuDeviceGetUuid", value;
    StreamCreate = "cuStreamCreate", value;
    EventDestroy = "cuEventDestroy", nothing;
    IpcGetMemHandle = "cuIpcGetMemHandle", value;
    IpcOpenMemHandle = "cuIpcOpenMemHandle", value;
    IpcCloseMemHandle = "cuIpcCloseMemHandle", nothing;
    IpcGetEventHandle = "cuIpcGetEventHandle", value;
    IpcOpenEventHandle = "cuIpcOpenEventHandle", value;
    MemPoolCreate = "cuMemPoolCreate", value;
    MemPoolExportToShareableHandle = "cuMemPoolExportToShareableHandle", value;
    MemPoolImportFromShareableHandle = "cuMemPoolImportFromShareableHandle", value;
    MemAllocFromPoolAsync = "cuMemAllocFromPoolAsync", value;
    MemPoolExportPointer = "cuMemPoolExportPointer", value;
    MemPoolImportPointer = "cuMemPoolImportPointer", value;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    Done,
    /// The call reported success and did nothing.
    Suppressed,
    Failed(u32),
}

/// `None` for an argument that the call does not have, or that is not logged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallArguments {
    pub stream: Option<Stream>,
    pub event: Option<Event>,
    pub context: Option<Context>,
}

impl CallArguments {
    pub(super) fn stream(stream: Stream) -> Self {
        Self { stream: Some(stream), ..Self::default() }
    }

    pub(super) fn stream_and_event(stream: Stream, event: Event) -> Self {
        Self { stream: Some(stream), event: Some(event), context: None }
    }

    pub(super) fn event(event: Event) -> Self {
        Self { event: Some(event), ..Self::default() }
    }

    pub(super) fn context(context: Context) -> Self {
        Self { context: Some(context), ..Self::default() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallRecord {
    pub call: Call,
    pub arguments: CallArguments,
    pub thread: Thread,
    pub outcome: Outcome,
}
