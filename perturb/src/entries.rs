//! The table of hooked driver functions. Pure.
//!
//! All arguments are words: integers and pointers. In the calling conventions of x86-64 and aarch64 Linux,
//! each takes a register or eight bytes of the stack. No function of the table takes a float, or a structure
//! above eight bytes by value. A hook passes the words on unchanged.

/// What a function of the driver does, for this library. Numbers are the positions of arguments,
/// from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Queues work on the stream in the argument at this position.
    Work(usize),
    /// Launches the kernel in the argument at the second position, on the stream in the one at the first.
    Kernel(usize, usize),
    /// Launches by a `CUlaunchConfig`, the first argument.
    Config,
    /// Queues work on the default stream, and the host does not wait.
    OnDefault,
    /// Copies on a stream. Arguments: to, from, bytes, stream. Either side may be the host's memory.
    Copy,
    /// Copies to the host's memory, with the arguments of `Copy`.
    ToHost,
    /// Copies from the host's memory, with the arguments of `Copy`.
    FromHost,
    /// Copies on the default stream, and the host waits for the copy.
    Blocking,
    /// Makes the host wait for the stream in the first argument.
    Stream,
    /// Makes the host wait for the event in the first argument.
    Event,
    /// Makes the host wait for all work, at least of one context.
    All,
    /// Records the event in the first argument on the stream in the second.
    Record,
    /// Makes the stream in the first argument wait for the event in the second.
    Wait,
    /// Destroys the stream in the first argument.
    Destroy,
    /// Destroys the context in the first argument.
    DestroyContext,
    /// Releases or resets a device's primary context, which may destroy the context.
    Release,
    /// Begins a capture of the stream in the first argument.
    Begin,
    /// Ends the capture of the stream in the first argument.
    End,
    /// Any other function in the table. The library does not delay it, and only the record needs it.
    Noted,
}

impl Kind {
    /// Whether the function is an *operation*: it queues work on a stream, and the library may delay it.
    pub(crate) fn is_operation(self) -> bool {
        matches!(
            self,
            Self::Work(_)
                | Self::Kernel(..)
                | Self::Config
                | Self::OnDefault
                | Self::Copy
                | Self::ToHost
                | Self::FromHost
                | Self::Blocking
        )
    }

    /// Whether the function makes the host wait: for a stream, an event, all work, or its own copy. A copy that
    /// waits only for pageable memory does not count.
    pub(crate) fn waits(self) -> bool {
        matches!(self, Self::Stream | Self::Event | Self::All | Self::Blocking)
    }
}

/// A row of the table: one driver function.
pub(crate) struct Entry {
    /// The exported symbol.
    pub(crate) symbol: &'static str,
    /// The name for `cuGetProcAddress`.
    pub(crate) name: &'static str,
    /// The CUDA version since which the name means this function; 0 if this is the name's first meaning.
    pub(crate) since: i32,
    pub(crate) kind: Kind,
    /// The number of arguments.
    pub(crate) arguments: usize,
    /// The symbol of the per-thread form, whose default stream is the thread's own; None if there is no such
    /// form.
    pub(crate) twin: Option<&'static str>,
}

/// Passes the rows to a macro: symbol, per-thread form, name for `cuGetProcAddress`, version, kind, arguments.
macro_rules! rows {
    ($with:ident) => {
        $with! {
            cuLaunchKernel / cuLaunchKernel_ptsz = "cuLaunchKernel", Kind::Kernel(8, 0), (a b c d e f g h i j k);
            cuLaunchKernelEx / cuLaunchKernelEx_ptsz = "cuLaunchKernelEx", Kind::Config, (a b c d);
            cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz = "cuLaunchCooperativeKernel", Kind::Kernel(8, 0), (a b c d e f g h i j);
            cuGraphLaunch / cuGraphLaunch_ptsz = "cuGraphLaunch", Kind::Work(1), (a b);
            cuLaunchHostFunc / cuLaunchHostFunc_ptsz = "cuLaunchHostFunc", Kind::Work(0), (a b c);
            cuStreamAddCallback / cuStreamAddCallback_ptsz = "cuStreamAddCallback", Kind::Work(0), (a b c d);
            cuMemcpyAsync / cuMemcpyAsync_ptsz = "cuMemcpyAsync", Kind::Copy, (a b c d);
            cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz = "cuMemcpyHtoDAsync", Kind::FromHost, (a b c d);
            cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz = "cuMemcpyDtoHAsync", Kind::ToHost, (a b c d);
            cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz = "cuMemcpyDtoDAsync", Kind::Work(3), (a b c d);
            cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz = "cuMemcpy2DAsync", Kind::Work(1), (a b);
            cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz = "cuMemcpy3DAsync", Kind::Work(1), (a b);
            cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz = "cuMemcpyPeerAsync", Kind::Work(5), (a b c d e f);
            cuMemcpy3DPeerAsync / cuMemcpy3DPeerAsync_ptsz = "cuMemcpy3DPeerAsync", Kind::Work(1), (a b);
            cuMemcpyBatchAsync / cuMemcpyBatchAsync_ptsz = "cuMemcpyBatchAsync", Kind::Work(8), (a b c d e f g h i);
            cuMemcpyBatchAsync_v2 / cuMemcpyBatchAsync_v2_ptsz = "cuMemcpyBatchAsync" from 13_000, Kind::Work(7), (a b c d e f g h);
            cuMemcpy3DBatchAsync / cuMemcpy3DBatchAsync_ptsz = "cuMemcpy3DBatchAsync", Kind::Work(4), (a b c d e);
            cuMemcpy3DBatchAsync_v2 / cuMemcpy3DBatchAsync_v2_ptsz = "cuMemcpy3DBatchAsync" from 13_000, Kind::Work(3), (a b c d);
            cuMemsetD8Async / cuMemsetD8Async_ptsz = "cuMemsetD8Async", Kind::Work(3), (a b c d);
            cuMemsetD16Async / cuMemsetD16Async_ptsz = "cuMemsetD16Async", Kind::Work(3), (a b c d);
            cuMemsetD32Async / cuMemsetD32Async_ptsz = "cuMemsetD32Async", Kind::Work(3), (a b c d);
            cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz = "cuMemsetD2D8Async", Kind::Work(5), (a b c d e f);
            cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz = "cuMemsetD2D16Async", Kind::Work(5), (a b c d e f);
            cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz = "cuMemsetD2D32Async", Kind::Work(5), (a b c d e f);
            cuMemFreeAsync / cuMemFreeAsync_ptsz = "cuMemFreeAsync", Kind::Work(1), (a b);
            cuMemPrefetchAsync / cuMemPrefetchAsync_ptsz = "cuMemPrefetchAsync", Kind::Work(3), (a b c d);
            cuMemPrefetchAsync_v2 / cuMemPrefetchAsync_v2_ptsz = "cuMemPrefetchAsync" from 12_020, Kind::Work(4), (a b c d e);
            cuStreamWriteValue32_v2 / cuStreamWriteValue32_v2_ptsz = "cuStreamWriteValue32", Kind::Work(0), (a b c d);
            cuStreamWriteValue64_v2 / cuStreamWriteValue64_v2_ptsz = "cuStreamWriteValue64", Kind::Work(0), (a b c d);
            cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds = "cuMemcpyDtoD", Kind::OnDefault, (a b c);
            cuMemsetD8_v2 / cuMemsetD8_v2_ptds = "cuMemsetD8", Kind::OnDefault, (a b c);
            cuMemsetD16_v2 / cuMemsetD16_v2_ptds = "cuMemsetD16", Kind::OnDefault, (a b c);
            cuMemsetD32_v2 / cuMemsetD32_v2_ptds = "cuMemsetD32", Kind::OnDefault, (a b c);
            cuMemcpy / cuMemcpy_ptds = "cuMemcpy", Kind::Blocking, (a b c);
            cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds = "cuMemcpyDtoH", Kind::Blocking, (a b c);
            cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds = "cuMemcpyHtoD", Kind::Blocking, (a b c);
            cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds = "cuMemcpy2D", Kind::Blocking, (a);
            cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds = "cuMemcpy2DUnaligned", Kind::Blocking, (a);
            cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds = "cuMemcpy3D", Kind::Blocking, (a);
            cuStreamSynchronize / cuStreamSynchronize_ptsz = "cuStreamSynchronize", Kind::Stream, (a);
            cuEventSynchronize = "cuEventSynchronize", Kind::Event, (a);
            cuCtxSynchronize = "cuCtxSynchronize", Kind::All, ();
            cuCtxSynchronize_v2 = "cuCtxSynchronize" from 13_000, Kind::All, (a);
            cuMemFree_v2 = "cuMemFree", Kind::All, (a);
            cuMemFreeHost = "cuMemFreeHost", Kind::All, (a);
            cuMemAllocHost_v2 = "cuMemAllocHost", Kind::All, (a b);
            cuMemHostAlloc = "cuMemHostAlloc", Kind::All, (a b c);
            cuMemHostUnregister = "cuMemHostUnregister", Kind::All, (a);
            cuModuleUnload = "cuModuleUnload", Kind::All, (a);
            cuEventRecord / cuEventRecord_ptsz = "cuEventRecord", Kind::Record, (a b);
            cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz = "cuEventRecordWithFlags", Kind::Record, (a b c);
            cuStreamWaitEvent / cuStreamWaitEvent_ptsz = "cuStreamWaitEvent", Kind::Wait, (a b c);
            cuStreamDestroy_v2 = "cuStreamDestroy", Kind::Destroy, (a);
            cuCtxDestroy_v2 = "cuCtxDestroy", Kind::DestroyContext, (a);
            cuDevicePrimaryCtxReset_v2 = "cuDevicePrimaryCtxReset", Kind::Release, (a);
            cuDevicePrimaryCtxRelease_v2 = "cuDevicePrimaryCtxRelease", Kind::Release, (a);
            cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz = "cuStreamBeginCapture", Kind::Begin, (a b);
            cuStreamBeginCaptureToGraph / cuStreamBeginCaptureToGraph_ptsz = "cuStreamBeginCaptureToGraph", Kind::Begin, (a b c d e f);
            cuStreamEndCapture / cuStreamEndCapture_ptsz = "cuStreamEndCapture", Kind::End, (a b);
            cuMemcpyAtoH_v2 / cuMemcpyAtoH_v2_ptds = "cuMemcpyAtoH", Kind::Noted, (a b c d);
            cuMemcpyHtoA_v2 / cuMemcpyHtoA_v2_ptds = "cuMemcpyHtoA", Kind::Noted, (a b c d);
            cuMemcpy3DPeer / cuMemcpy3DPeer_ptds = "cuMemcpy3DPeer", Kind::Noted, (a);
            cuMemAlloc_v2 = "cuMemAlloc", Kind::Noted, (a b);
            cuMemAllocPitch_v2 = "cuMemAllocPitch", Kind::Noted, (a b c d e);
            cuMemAllocManaged = "cuMemAllocManaged", Kind::Noted, (a b c);
            cuMemAllocAsync / cuMemAllocAsync_ptsz = "cuMemAllocAsync", Kind::Noted, (a b c);
            cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz = "cuMemAllocFromPoolAsync", Kind::Noted, (a b c d);
            cuMemHostRegister_v2 = "cuMemHostRegister", Kind::Noted, (a b c);
            cuMemMap = "cuMemMap", Kind::Noted, (a b c d e);
            cuMemUnmap = "cuMemUnmap", Kind::Noted, (a b);
            cuIpcGetMemHandle = "cuIpcGetMemHandle", Kind::Noted, (a b);
            cuStreamCreate = "cuStreamCreate", Kind::Noted, (a b);
            cuStreamCreateWithPriority = "cuStreamCreateWithPriority", Kind::Noted, (a b c);
            cuStreamQuery / cuStreamQuery_ptsz = "cuStreamQuery", Kind::Noted, (a);
            cuEventCreate = "cuEventCreate", Kind::Noted, (a b);
            cuEventDestroy_v2 = "cuEventDestroy", Kind::Noted, (a);
            cuEventQuery = "cuEventQuery", Kind::Noted, (a);
            cuEventElapsedTime = "cuEventElapsedTime", Kind::Noted, (a b c);
            cuEventElapsedTime_v2 = "cuEventElapsedTime" from 12_080, Kind::Noted, (a b c);
            cuStreamWaitValue32_v2 / cuStreamWaitValue32_v2_ptsz = "cuStreamWaitValue32", Kind::Noted, (a b c d);
            cuStreamWaitValue64_v2 / cuStreamWaitValue64_v2_ptsz = "cuStreamWaitValue64", Kind::Noted, (a b c d);
            cuStreamBatchMemOp_v2 / cuStreamBatchMemOp_v2_ptsz = "cuStreamBatchMemOp", Kind::Noted, (a b c d);
            cuWaitExternalSemaphoresAsync / cuWaitExternalSemaphoresAsync_ptsz = "cuWaitExternalSemaphoresAsync", Kind::Noted, (a b c d);
            cuGraphInstantiate_v2 = "cuGraphInstantiate", Kind::Noted, (a b c d e);
            cuGraphInstantiateWithFlags = "cuGraphInstantiate" from 12_000, Kind::Noted, (a b c);
            cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz = "cuGraphInstantiateWithParams", Kind::Noted, (a b c);
            cuGraphExecUpdate = "cuGraphExecUpdate", Kind::Noted, (a b c d);
            cuGraphExecUpdate_v2 = "cuGraphExecUpdate" from 12_000, Kind::Noted, (a b c);
            cuGraphExecKernelNodeSetParams = "cuGraphExecKernelNodeSetParams", Kind::Noted, (a b c);
            cuGraphExecKernelNodeSetParams_v2 = "cuGraphExecKernelNodeSetParams" from 12_000, Kind::Noted, (a b c);
            cuGraphExecMemcpyNodeSetParams = "cuGraphExecMemcpyNodeSetParams", Kind::Noted, (a b c d);
            cuGraphExecMemsetNodeSetParams = "cuGraphExecMemsetNodeSetParams", Kind::Noted, (a b c d);
            cuGraphExecChildGraphNodeSetParams = "cuGraphExecChildGraphNodeSetParams", Kind::Noted, (a b c);
            cuGraphExecEventRecordNodeSetEvent = "cuGraphExecEventRecordNodeSetEvent", Kind::Noted, (a b c);
            cuGraphExecEventWaitNodeSetEvent = "cuGraphExecEventWaitNodeSetEvent", Kind::Noted, (a b c);
            cuGraphExecNodeSetParams = "cuGraphExecNodeSetParams", Kind::Noted, (a b c);
            cuTensorMapEncodeTiled = "cuTensorMapEncodeTiled", Kind::Noted, (a b c d e f g h i j k l);
            cuTensorMapEncodeIm2col = "cuTensorMapEncodeIm2col", Kind::Noted, (a b c d e f g h i j k l m n o);
            cuTensorMapReplaceAddress = "cuTensorMapReplaceAddress", Kind::Noted, (a b);
            cuLibraryUnload = "cuLibraryUnload", Kind::Noted, (a);
            cuGraphExecDestroy = "cuGraphExecDestroy", Kind::Noted, (a);
        }
    };
}
pub(crate) use rows;

macro_rules! table {
    ($($symbol:ident $(/ $twin:ident)? = $name:literal $(from $since:literal)?, $kind:expr, ($($argument:ident)*);)*) => {
        /// The rows of the table, by their symbols.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Row { $($symbol),* }

        impl Row {
            const ALL: [Self; COUNT] = [$(Self::$symbol),*];

            pub(crate) fn at(place: usize) -> Option<Self> {
                Self::ALL.get(place).copied()
            }
        }

        pub(crate) const COUNT: usize = [$(stringify!($symbol)),*].len();

        pub(crate) static ENTRIES: [Entry; COUNT] = [$(Entry {
            symbol: stringify!($symbol),
            name: $name,
            since: 0 $(+ $since)?,
            kind: $kind,
            arguments: <[&str]>::len(&[$(stringify!($argument)),*]),
            twin: table!(@twin $($twin)?),
        }),*];
    };
    (@twin) => { None };
    (@twin $twin:ident) => { Some(stringify!($twin)) };
}

rows!(table);
