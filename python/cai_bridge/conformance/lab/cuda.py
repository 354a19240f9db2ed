"""The CUDA driver by `ctypes`. It needs no array library, and shares no code with the bridge.

``driver("cuStreamQuery", stream)`` calls, and raises on an error; ``driver.result(...)`` returns
the result's name instead. Addresses, streams, events and contexts are integers.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

from cai_bridge._environment import QUEUES

INT, UINT, HANDLE, SIZE, ADDRESS = (
    ctypes.c_int,
    ctypes.c_uint,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_uint64,
)
OUT = ctypes.c_void_p

LEGACY, PER_THREAD = 1, 2
BLOCKING, NON_BLOCKING = 0, 1  # cuStreamCreate's flags
NO_TIMING = 2  # cuEventCreate's flag
WAIT_DEFAULT = 0  # cuStreamWaitEvent's flag
CAPTURE_RELAXED = 2  # cuThreadExchangeStreamCaptureMode's mode
HOST_PORTABLE, HOST_MAPPED = 1, 2  # cuMemHostAlloc's flags
MEMORY_TYPE, IS_MANAGED, ORDINAL = 2, 8, 9  # cuPointerGetAttributes'
TYPE_HOST, TYPE_DEVICE = 1, 2  # CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE
NOT_READY = "CUDA_ERROR_NOT_READY"

HOLD_PTX = b"""
.version 7.0
.target sm_75
.address_size 64

.visible .entry hold_back(.param .u64 released, .param .u64 nanoseconds)
{
    .reg .u64 %at, %limit, %start, %now, %spent;
    .reg .u32 %seen;
    .reg .pred %done, %more;
    ld.param.u64 %at, [released];
    cvta.to.global.u64 %at, %at;
    ld.param.u64 %limit, [nanoseconds];
    mov.u64 %start, %globaltimer;
again:
    ld.volatile.global.u32 %seen, [%at];
    setp.ne.u32 %done, %seen, 0;
    @%done bra finish;
    mov.u64 %now, %globaltimer;
    sub.u64 %spent, %now, %start;
    setp.lt.u64 %more, %spent, %limit;
    @%more bra again;
finish:
    ret;
}
"""
"""PTX of a kernel with one thread, which runs until a host word is not 0, or for some time.

Only the host can release the kernel. So if a library makes the host wait for the held-back work,
only the limit ends the wait. ``%globaltimer`` is wall time, independent of the clock rate.
"""


class CudaFailure(RuntimeError):  # noqa: N818
    """A driver call returned an error; the message is the call and the error's name."""


class Driver:
    """``libcuda.so.1``, and the primary context of one device, which stays retained.

    Parameters
    ----------
    device : int, optional
        The device's ordinal; by default the current context's, or 0 without a context.

    Raises
    ------
    OSError
        There is no driver library.
    CudaFailure
        The driver does not start, or has no such device.
    """

    signatures: ClassVar[dict[str, tuple[type, ...]]] = {
        "cuInit": (UINT,),
        "cuDriverGetVersion": (OUT,),
        "cuDeviceGet": (OUT, INT),
        "cuDeviceGetCount": (OUT,),
        "cuDeviceGetName": (ctypes.c_char_p, INT, INT),
        "cuDevicePrimaryCtxRetain": (OUT, INT),
        "cuCtxGetCurrent": (OUT,),
        "cuCtxGetDevice": (OUT,),
        "cuCtxSetCurrent": (HANDLE,),
        "cuCtxPushCurrent_v2": (HANDLE,),
        "cuCtxPopCurrent_v2": (OUT,),
        "cuThreadExchangeStreamCaptureMode": (OUT,),
        "cuStreamCreate": (OUT, UINT),
        "cuStreamDestroy_v2": (HANDLE,),
        "cuStreamSynchronize": (HANDLE,),
        "cuStreamWaitEvent": (HANDLE, HANDLE, UINT),
        "cuEventCreate": (OUT, UINT),
        "cuEventDestroy_v2": (HANDLE,),
        "cuEventRecord": (HANDLE, HANDLE),
        "cuEventQuery": (HANDLE,),
        "cuMemAlloc_v2": (OUT, SIZE),
        "cuMemFree_v2": (ADDRESS,),
        "cuMemAllocAsync": (OUT, SIZE, HANDLE),
        "cuMemFreeAsync": (ADDRESS, HANDLE),
        "cuMemHostAlloc": (OUT, SIZE, UINT),
        "cuMemFreeHost": (HANDLE,),
        "cuMemsetD8Async": (ADDRESS, ctypes.c_ubyte, SIZE, HANDLE),
        "cuMemsetD32Async": (ADDRESS, UINT, SIZE, HANDLE),
        "cuMemcpyAsync": (ADDRESS, ADDRESS, SIZE, HANDLE),
        "cuPointerGetAttributes": (UINT, OUT, OUT, ADDRESS),
        "cuModuleLoadData": (OUT, ctypes.c_char_p),
        "cuModuleGetFunction": (OUT, HANDLE, ctypes.c_char_p),
        "cuLaunchKernel": (HANDLE, UINT, UINT, UINT, UINT, UINT, UINT, UINT, HANDLE, OUT, OUT),
        "cuGetErrorName": (INT, OUT),
    }

    def __init__(self, device: int | None = None) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        for name, arguments in self.signatures.items():
            function = getattr(self._library, name, None)
            if function is not None:
                function.argtypes, function.restype = list(arguments), INT
        self("cuInit", 0)
        self.ordinal = self._current_ordinal() if device is None else device
        self.device = self.get("cuDeviceGet", self.ordinal, kind=INT)
        self.primary = self.get("cuDevicePrimaryCtxRetain", self.device)
        self._kernels: dict[tuple[int, bytes, bytes], int] = {}
        self._loading = threading.Lock()

    def _current_ordinal(self) -> int:
        return self.get("cuCtxGetDevice", kind=INT) if self.current_context() else 0

    # Calls.

    def code(self, name: str, *arguments: object) -> int:
        """Call a driver function, and return the result's number."""
        return int(getattr(self._library, name)(*arguments))

    def result(self, name: str, *arguments: object) -> str:
        """Call, and return the result's name, such as ``"CUDA_ERROR_NOT_READY"``."""
        return self.name_of(self.code(name, *arguments))

    def name_of(self, code: int) -> str:
        """Return the name of a result."""
        text = ctypes.c_char_p()
        self._library.cuGetErrorName(code, ctypes.byref(text))
        return (text.value or b"CUDA_ERROR_WITHOUT_A_NAME").decode()

    def __call__(self, name: str, *arguments: object) -> None:
        """Call, and raise an exception on an error."""
        code = self.code(name, *arguments)
        if code:
            raise CudaFailure(f"{name}: {self.name_of(code)}")

    def get(self, name: str, *arguments: object, kind: Any = ctypes.c_void_p) -> int:
        """Call a function whose first argument is an out parameter, and return what it wrote."""
        out = kind()
        self(name, ctypes.byref(out), *arguments)
        return int(out.value or 0)

    # Contexts.

    def current_context(self) -> int:
        """Return the calling thread's context; 0 if it has none."""
        return self.get("cuCtxGetCurrent")

    @contextlib.contextmanager
    def context(self, context: int | None = None) -> Iterator[None]:
        """Make a context current, by default the primary one, and restore the caller's."""
        self("cuCtxPushCurrent_v2", self.primary if context is None else context)
        try:
            yield
        finally:
            self.get("cuCtxPopCurrent_v2")

    def synchronize(self) -> None:
        """Make the host wait for all work of the primary context.

        Freeing memory waits. In the thread's relaxed mode it ends no graph capture, unlike
        ``cuCtxSynchronize``, which kills the process beside JAX's captures in other threads.
        """
        mode = INT(CAPTURE_RELAXED)
        with self.context():
            self("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
            try:
                self("cuMemFree_v2", self.get("cuMemAlloc_v2", 1, kind=ADDRESS))
            finally:
                self("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    # Streams and events, in the current context.

    def stream(self, flags: int = NON_BLOCKING) -> int:
        """Make a stream."""
        return self.get("cuStreamCreate", flags)

    def event(self) -> int:
        """Make an event."""
        return self.get("cuEventCreate", NO_TIMING)

    def order(self, first: int, then: int) -> None:
        """Make work queued on `then` from now on run after work queued on `first`."""
        event = self.event()
        try:
            self("cuEventRecord", event, first)
            self("cuStreamWaitEvent", then, event, WAIT_DEFAULT)
        finally:
            self("cuEventDestroy_v2", event)

    def kernel(self, ptx: bytes, name: bytes) -> int:
        """Load a kernel into the current context, once."""
        key = self.current_context(), ptx, name
        with self._loading:
            if key not in self._kernels:
                module = self.get("cuModuleLoadData", ptx)
                self._kernels[key] = self.get("cuModuleGetFunction", module, name)
            return self._kernels[key]

    def launch(self, kernel: int, stream: int, *words: int) -> None:
        """Launch a kernel with one thread and 64-bit arguments."""
        values = [ctypes.c_uint64(word) for word in words]
        parameters = (ctypes.c_void_p * len(values))(*(ctypes.addressof(one) for one in values))
        self("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, None)

    # Memory.

    def attributes(self, ptr: int) -> tuple[int, int, int]:
        """Return a pointer's memory type, whether it is managed, and its device's ordinal.

        All are 0 for a pointer that CUDA does not know.
        """
        asked = (INT * 3)(MEMORY_TYPE, IS_MANAGED, ORDINAL)
        # Each slot is at least as wide as the value that the driver writes.
        answers = [ctypes.c_uint64(0) for _ in asked]
        places = (ctypes.c_void_p * 3)(*(ctypes.addressof(one) for one in answers))
        self("cuPointerGetAttributes", 3, asked, places, ptr)
        kind, managed, ordinal = (one.value & 0xFFFFFFFF for one in answers)
        return kind, managed & 0xFF, ordinal if kind else 0

    def describe(self) -> str:
        """Name the device and the driver's version."""
        name = ctypes.create_string_buffer(128)
        self("cuDeviceGetName", name, len(name), self.device)
        return f"{name.value.decode()}, driver {driver_version() or self._api_version()}"

    def _api_version(self) -> str:
        version = self.get("cuDriverGetVersion", kind=INT)
        return f"of CUDA {version // 1000}.{version % 1000 // 10}"


def driver_version() -> str | None:
    """Return the driver's own version, such as ``"580.95.05"``; None if it is not known."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    version = ctypes.create_string_buffer(96)
    if library.nvmlInit_v2():
        return None
    try:
        failed = library.nvmlSystemGetDriverVersion(version, UINT(len(version)))
    finally:
        library.nvmlShutdown()
    return None if failed else version.value.decode()


@contextlib.contextmanager
def _with_queues() -> Iterator[None]:
    """Set variables that CUDA reads at its start, for this process: each queue takes memory."""
    ours = [name for name in QUEUES if name not in os.environ]
    os.environ.update({name: QUEUES[name] for name in ours})
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


@functools.cache
def load() -> Driver:
    """Open the driver, once per process."""
    with _with_queues():
        return Driver()


def why_no_gpu() -> str | None:
    """Return why there is no usable GPU; None if there is one. Makes no context."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver: libcuda.so.1 does not load"
    count = INT()
    if library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return "no CUDA device"
    return None
