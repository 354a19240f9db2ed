/* Each function as cuGetProcAddress is asked for it: name, version, symbol, arguments; with the form whose
 * default stream is the thread's own, and copies of both. */
#define P0 (void)
#define P1 (u64 a)
#define P2 (u64 a, u64 b)
#define P3 (u64 a, u64 b, u64 c)
#define P4 (u64 a, u64 b, u64 c, u64 d)
#define P5 (u64 a, u64 b, u64 c, u64 d, u64 e)
#define P6 (u64 a, u64 b, u64 c, u64 d, u64 e, u64 f)
#define P8 (u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, u64 g, u64 h)
#define P9 (u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, u64 g, u64 h, u64 i)
#define P10 (u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, u64 g, u64 h, u64 i, u64 j)
#define P11 (u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, u64 g, u64 h, u64 i, u64 j, u64 k)
#define P12 (u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, u64 g, u64 h, u64 i, u64 j, u64 k, u64 l)
#define P15 (u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, u64 g, u64 h, u64 i, u64 j, u64 k, u64 l, u64 m, u64 n, u64 o)
#define A0 ()
#define A1 (a)
#define A2 (a, b)
#define A3 (a, b, c)
#define A4 (a, b, c, d)
#define A5 (a, b, c, d, e)
#define A6 (a, b, c, d, e, f)
#define A8 (a, b, c, d, e, f, g, h)
#define A9 (a, b, c, d, e, f, g, h, i)
#define A10 (a, b, c, d, e, f, g, h, i, j)
#define A11 (a, b, c, d, e, f, g, h, i, j, k)
#define A12 (a, b, c, d, e, f, g, h, i, j, k, l)
#define A15 (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o)
#define TABLE(O, T) \
  T(cuLaunchKernel, 7000, cuLaunchKernel, _ptsz, 11) T(cuLaunchKernelEx, 11060, cuLaunchKernelEx, _ptsz, 4) \
  T(cuLaunchCooperativeKernel, 9000, cuLaunchCooperativeKernel, _ptsz, 10) T(cuGraphLaunch, 10000, cuGraphLaunch, _ptsz, 2) \
  T(cuLaunchHostFunc, 10000, cuLaunchHostFunc, _ptsz, 3) T(cuStreamAddCallback, 7000, cuStreamAddCallback, _ptsz, 4) \
  T(cuMemcpyAsync, 7000, cuMemcpyAsync, _ptsz, 4) T(cuMemcpyHtoDAsync, 7000, cuMemcpyHtoDAsync_v2, _ptsz, 4) \
  T(cuMemcpyDtoHAsync, 7000, cuMemcpyDtoHAsync_v2, _ptsz, 4) T(cuMemcpyDtoDAsync, 7000, cuMemcpyDtoDAsync_v2, _ptsz, 4) \
  T(cuMemcpy2DAsync, 7000, cuMemcpy2DAsync_v2, _ptsz, 2) T(cuMemcpy3DAsync, 7000, cuMemcpy3DAsync_v2, _ptsz, 2) \
  T(cuMemcpyPeerAsync, 7000, cuMemcpyPeerAsync, _ptsz, 6) T(cuMemcpy3DPeerAsync, 7000, cuMemcpy3DPeerAsync, _ptsz, 2) \
  T(cuMemcpyBatchAsync, 12080, cuMemcpyBatchAsync, _ptsz, 9) T(cuMemcpyBatchAsync, 13000, cuMemcpyBatchAsync_v2, _ptsz, 8) \
  T(cuMemcpy3DBatchAsync, 12080, cuMemcpy3DBatchAsync, _ptsz, 5) T(cuMemcpy3DBatchAsync, 13000, cuMemcpy3DBatchAsync_v2, _ptsz, 4) \
  T(cuMemsetD8Async, 7000, cuMemsetD8Async, _ptsz, 4) T(cuMemsetD16Async, 7000, cuMemsetD16Async, _ptsz, 4) \
  T(cuMemsetD32Async, 7000, cuMemsetD32Async, _ptsz, 4) T(cuMemsetD2D8Async, 7000, cuMemsetD2D8Async, _ptsz, 6) \
  T(cuMemsetD2D16Async, 7000, cuMemsetD2D16Async, _ptsz, 6) T(cuMemsetD2D32Async, 7000, cuMemsetD2D32Async, _ptsz, 6) \
  T(cuMemFreeAsync, 11020, cuMemFreeAsync, _ptsz, 2) T(cuMemPrefetchAsync, 8000, cuMemPrefetchAsync, _ptsz, 4) \
  T(cuMemPrefetchAsync, 12020, cuMemPrefetchAsync_v2, _ptsz, 5) T(cuStreamWriteValue32, 11070, cuStreamWriteValue32_v2, _ptsz, 4) \
  T(cuStreamWriteValue64, 11070, cuStreamWriteValue64_v2, _ptsz, 4) T(cuMemcpyDtoD, 7000, cuMemcpyDtoD_v2, _ptds, 3) \
  T(cuMemsetD8, 7000, cuMemsetD8_v2, _ptds, 3) T(cuMemsetD16, 7000, cuMemsetD16_v2, _ptds, 3) \
  T(cuMemsetD32, 7000, cuMemsetD32_v2, _ptds, 3) T(cuMemcpy, 7000, cuMemcpy, _ptds, 3) \
  T(cuMemcpyDtoH, 7000, cuMemcpyDtoH_v2, _ptds, 3) T(cuMemcpyHtoD, 7000, cuMemcpyHtoD_v2, _ptds, 3) \
  T(cuMemcpy2D, 7000, cuMemcpy2D_v2, _ptds, 1) T(cuMemcpy2DUnaligned, 7000, cuMemcpy2DUnaligned_v2, _ptds, 1) \
  T(cuMemcpy3D, 7000, cuMemcpy3D_v2, _ptds, 1) T(cuStreamSynchronize, 7000, cuStreamSynchronize, _ptsz, 1) \
  O(cuEventSynchronize, 2000, cuEventSynchronize, 1) O(cuCtxSynchronize, 2000, cuCtxSynchronize, 0) \
  O(cuCtxSynchronize, 13000, cuCtxSynchronize_v2, 1) O(cuMemFree, 3020, cuMemFree_v2, 1) O(cuMemFreeHost, 2000, cuMemFreeHost, 1) \
  O(cuMemAllocHost, 3020, cuMemAllocHost_v2, 2) O(cuMemHostAlloc, 2020, cuMemHostAlloc, 3) \
  O(cuMemHostUnregister, 4000, cuMemHostUnregister, 1) O(cuModuleUnload, 2000, cuModuleUnload, 1) \
  T(cuEventRecord, 7000, cuEventRecord, _ptsz, 2) T(cuEventRecordWithFlags, 11010, cuEventRecordWithFlags, _ptsz, 3) \
  T(cuStreamWaitEvent, 7000, cuStreamWaitEvent, _ptsz, 3) O(cuStreamDestroy, 4000, cuStreamDestroy_v2, 1) \
  O(cuCtxDestroy, 4000, cuCtxDestroy_v2, 1) O(cuDevicePrimaryCtxReset, 11000, cuDevicePrimaryCtxReset_v2, 1) \
  O(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2, 1) T(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2, _ptsz, 2) \
  T(cuStreamBeginCaptureToGraph, 12030, cuStreamBeginCaptureToGraph, _ptsz, 6) T(cuStreamEndCapture, 10000, cuStreamEndCapture, _ptsz, 2) \
  T(cuMemcpyAtoH, 3020, cuMemcpyAtoH_v2, _ptds, 4) T(cuMemcpyHtoA, 3020, cuMemcpyHtoA_v2, _ptds, 4) \
  T(cuMemcpy3DPeer, 4000, cuMemcpy3DPeer, _ptds, 1) \
  O(cuMemAlloc, 3020, cuMemAlloc_v2, 2) O(cuMemAllocPitch, 3020, cuMemAllocPitch_v2, 5) O(cuMemAllocManaged, 6000, cuMemAllocManaged, 3) \
  T(cuMemAllocAsync, 11020, cuMemAllocAsync, _ptsz, 3) T(cuMemAllocFromPoolAsync, 11020, cuMemAllocFromPoolAsync, _ptsz, 4) \
  O(cuMemHostRegister, 6050, cuMemHostRegister_v2, 3) O(cuMemMap, 10020, cuMemMap, 5) O(cuMemUnmap, 10020, cuMemUnmap, 2) \
  O(cuIpcGetMemHandle, 4010, cuIpcGetMemHandle, 2) O(cuStreamCreate, 2000, cuStreamCreate, 2) \
  O(cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority, 3) T(cuStreamQuery, 2000, cuStreamQuery, _ptsz, 1) \
  O(cuEventCreate, 2000, cuEventCreate, 2) O(cuEventDestroy, 4000, cuEventDestroy_v2, 1) O(cuEventQuery, 2000, cuEventQuery, 1) \
  O(cuEventElapsedTime, 2000, cuEventElapsedTime, 3) O(cuEventElapsedTime, 12080, cuEventElapsedTime_v2, 3) \
  T(cuStreamWaitValue32, 11070, cuStreamWaitValue32_v2, _ptsz, 4) T(cuStreamWaitValue64, 11070, cuStreamWaitValue64_v2, _ptsz, 4) \
  T(cuStreamBatchMemOp, 11070, cuStreamBatchMemOp_v2, _ptsz, 4) \
  T(cuWaitExternalSemaphoresAsync, 10000, cuWaitExternalSemaphoresAsync, _ptsz, 4) \
  O(cuGraphInstantiate, 11000, cuGraphInstantiate_v2, 5) O(cuGraphInstantiate, 12000, cuGraphInstantiateWithFlags, 3) \
  T(cuGraphInstantiateWithParams, 12000, cuGraphInstantiateWithParams, _ptsz, 3) O(cuGraphExecUpdate, 10020, cuGraphExecUpdate, 4) \
  O(cuGraphExecUpdate, 12000, cuGraphExecUpdate_v2, 3) O(cuGraphExecKernelNodeSetParams, 10010, cuGraphExecKernelNodeSetParams, 3) \
  O(cuGraphExecKernelNodeSetParams, 12000, cuGraphExecKernelNodeSetParams_v2, 3) \
  O(cuGraphExecMemcpyNodeSetParams, 10020, cuGraphExecMemcpyNodeSetParams, 4) \
  O(cuGraphExecMemsetNodeSetParams, 10020, cuGraphExecMemsetNodeSetParams, 4) \
  O(cuGraphExecChildGraphNodeSetParams, 11010, cuGraphExecChildGraphNodeSetParams, 3) \
  O(cuGraphExecEventRecordNodeSetEvent, 11010, cuGraphExecEventRecordNodeSetEvent, 3) \
  O(cuGraphExecEventWaitNodeSetEvent, 11010, cuGraphExecEventWaitNodeSetEvent, 3) \
  O(cuGraphExecNodeSetParams, 12020, cuGraphExecNodeSetParams, 3) O(cuLibraryUnload, 12000, cuLibraryUnload, 1) \
  O(cuTensorMapEncodeTiled, 12000, cuTensorMapEncodeTiled, 12) \
  O(cuTensorMapEncodeIm2col, 12000, cuTensorMapEncodeIm2col, 15) \
  O(cuTensorMapReplaceAddress, 12000, cuTensorMapReplaceAddress, 2) \
  O(cuGraphExecDestroy, 10000, cuGraphExecDestroy, 1)
/* All arguments are words to the caller. */
#define WORDS(symbol, n) ((R (*)P##n)opaque((void *)symbol))
#define ONE(name, version, symbol, n) static R given_##symbol P##n { return WORDS(symbol, n) A##n; }
#define TWO(name, version, symbol, end, n) \
  R symbol##end P##n { own_default++; R r = WORDS(symbol, n) A##n; own_default--; return r; } \
  ONE(name, version, symbol, n) static R given_##symbol##end P##n { return symbol##end A##n; }
TABLE(ONE, TWO)
