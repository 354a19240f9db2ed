"""What the drawing chooses from, the more often the more often it is listed."""

from __future__ import annotations

SPEAKS: tuple[tuple[str, ...], ...] = (
    *(("exchange",),) * 4,
    *(("dlpack",),) * 2,
    ("dlpack-legacy",),
    ("dlpack-strict",),
    ("dlpack-bare",),
    *(("cai3",),) * 4,
    ("cai0",),
    ("cai1",),
    ("cai2",),
    ("exchange", "cai2"),
    ("exchange", "dlpack", "cai3"),
    ("dlpack", "cai3"),
    ("dlpack", "cai2"),
)
MEMORY = ("device",) * 4 + ("pool",) * 5 + ("pinned", "managed") * 2
CAI_CONSUMERS = (
    *("cai-waits", "cai-waits", "cai-enqueues", "cai-blocks", "cai-trusting"),
    "address",
)
DLPACK_CONSUMERS = (
    *("dlpack",) * 3,
    *("dlpack-legacy-capsule", "dlpack-none", "dlpack-unordered"),
    *("dlpack-exchange", "dlpack-borrowed"),
    *("address", "address"),
)
CALLS = (
    *("cuEventRecord", "cuStreamWaitEvent", "cuEventCreate", "cuPointerGetAttributes"),
    *("cuCtxGetCurrent", "cuCtxPushCurrent", "cuDevicePrimaryCtxRetain", "cuCtxGetDevice"),
    *("cuStreamGetFlags", "cuStreamGetCtx", "cuStreamIsCapturing"),
    *("cuMemFreeAsync", "cuModuleUnload", "cuEventQuery"),
)
ERRORS = ("CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_UNKNOWN", "CUDA_ERROR_ILLEGAL_ADDRESS")
