"""The CUDA driver by `ctypes`: the tests' own door to the GPU, which needs no array library.

`driver("cuStreamQuery", stream)` calls and raises on an error; `driver.result("cuStreamQuery",
stream)` returns the result's name instead. Addresses, streams, events and contexts are plain
integers.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

INT, UINT, HANDLE, SIZE, ADDRESS = (
    ctypes.c_int,
    ctypes.c_uint,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_uint64,
)
OUT = ctypes.c_void_p

SIGNATURES: dict[str, tuple[type, ...]] = {
    "cuInit": (UINT,),
    "cuDeviceGetCount": (OUT,),
    "cuDeviceGet": (OUT, INT),
    "cuDevicePrimaryCtxRetain": (OUT, INT),
    "cuCtxCreate_v2": (OUT, UINT, INT),
    "cuCtxDestroy_v2": (HANDLE,),
    "cuCtxGetCurrent": (OUT,),
    "cuCtxSetCurrent": (HANDLE,),
    "cuCtxPushCurrent_v2": (HANDLE,),
    "cuCtxPopCurrent_v2": (OUT,),
    "cuCtxSynchronize": (),
    "cuStreamCreate": (OUT, UINT),
    "cuStreamDestroy_v2": (HANDLE,),
    "cuStreamQuery": (HANDLE,),
    "cuStreamSynchronize": (HANDLE,),
    "cuStreamWaitEvent": (HANDLE, HANDLE, UINT),
    "cuStreamIsCapturing": (HANDLE, OUT),
    "cuStreamGetFlags": (HANDLE, OUT),
    "cuStreamGetCtx": (HANDLE, OUT),
    "cuLaunchHostFunc": (HANDLE, HANDLE, HANDLE),
    "cuStreamBeginCapture_v2": (HANDLE, INT),
    "cuStreamEndCapture": (HANDLE, OUT),
    "cuThreadExchangeStreamCaptureMode": (OUT,),
    "cuGraphDestroy": (HANDLE,),
    "cuGraphInstantiateWithFlags": (OUT, HANDLE, ADDRESS),
    "cuGraphLaunch": (HANDLE, HANDLE),
    "cuGraphExecDestroy": (HANDLE,),
    "cuStreamGetCaptureInfo_v2": (HANDLE, OUT, OUT, OUT, OUT, OUT),
    "cuEventCreate": (OUT, UINT),
    "cuEventDestroy_v2": (HANDLE,),
    "cuEventRecord": (HANDLE, HANDLE),
    "cuEventQuery": (HANDLE,),
    "cuEventSynchronize": (HANDLE,),
    "cuMemAlloc_v2": (OUT, SIZE),
    "cuMemFree_v2": (ADDRESS,),
    "cuMemAllocManaged": (OUT, SIZE, UINT),
    "cuMemHostAlloc": (OUT, SIZE, UINT),
    "cuMemFreeHost": (HANDLE,),
    "cuMemAllocAsync": (OUT, SIZE, HANDLE),
    "cuMemFreeAsync": (ADDRESS, HANDLE),
    "cuMemGetInfo_v2": (OUT, OUT),
    "cuMemsetD32Async": (ADDRESS, UINT, SIZE, HANDLE),
    "cuMemcpyDtoDAsync_v2": (ADDRESS, ADDRESS, SIZE, HANDLE),
    "cuMemcpyDtoH_v2": (OUT, ADDRESS, SIZE),
    "cuMemcpyHtoD_v2": (ADDRESS, HANDLE, SIZE),
    "cuPointerGetAttribute": (OUT, INT, ADDRESS),
    "cuPointerGetAttributes": (UINT, OUT, OUT, ADDRESS),
    "cuModuleLoadData": (OUT, ctypes.c_char_p),
    "cuModuleGetFunction": (OUT, HANDLE, ctypes.c_char_p),
    "cuLaunchKernel": (HANDLE, UINT, UINT, UINT, UINT, UINT, UINT, UINT, HANDLE, OUT, OUT),
    "cuGetErrorName": (INT, OUT),
}

LEGACY, PER_THREAD = 1, 2
BLOCKING, NON_BLOCKING = 0, 1  # cuStreamCreate's flags
NO_TIMING = 2  # cuEventCreate's flag
WAIT_DEFAULT, WAIT_EXTERNAL = 0, 1  # cuStreamWaitEvent's flags
CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED = 0, 1, 2

# `%globaltimer` counts nanoseconds of wall time, so a delay needs no calibration and no clock rate.
SPIN_PTX = b"""
.version 7.0
.target sm_80
.address_size 64

.visible .entry spin(.param .u64 nanoseconds)
{
    .reg .u64 %want, %start, %now, %spent;
    .reg .pred %more;
    ld.param.u64 %want, [nanoseconds];
    mov.u64 %start, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %spent, %now, %start;
    setp.lt.u64 %more, %spent, %want;
    @%more bra again;
    ret;
}
"""


class CudaFailure(RuntimeError):
    """A driver call returned an error; the message is the call and the error's name."""


class Driver:
    """One loaded `libcuda.so.1`, with device 0's primary context retained for the life of the
    process.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        for name, arguments in SIGNATURES.items():
            function = getattr(self._library, name, None)
            if function is not None:
                function.argtypes, function.restype = list(arguments), INT
        self("cuInit", 0)
        self.device = self.get("cuDeviceGet", 0, kind=INT)
        self.primary = self.get("cuDevicePrimaryCtxRetain", self.device)
        self._spin: dict[int, int] = {}
        self._loading = threading.Lock()

    def code(self, name: str, *arguments: object) -> int:
        return int(getattr(self._library, name)(*arguments))

    def result(self, name: str, *arguments: object) -> str:
        """Call, and return the result's name, such as `CUDA_ERROR_NOT_READY`."""
        return self.name_of(self.code(name, *arguments))

    def name_of(self, code: int) -> str:
        text = ctypes.c_char_p()
        self._library.cuGetErrorName(code, ctypes.byref(text))
        return (text.value or b"CUDA_ERROR_WITHOUT_A_NAME").decode()

    def __call__(self, name: str, *arguments: object) -> None:
        code = self.code(name, *arguments)
        if code:
            raise CudaFailure(f"{name}: {self.name_of(code)}")

    def get(self, name: str, *arguments: object, kind: type = ctypes.c_void_p) -> int:
        """Call a function whose first argument is an out parameter, and return what it wrote."""
        out = kind()
        self(name, ctypes.byref(out), *arguments)
        return int(out.value or 0)

    def get_of(self, name: str, subject: int, kind: type = ctypes.c_void_p) -> int:
        """Call a function whose second argument is an out parameter, and return what it wrote."""
        out = kind()
        self(name, subject, ctypes.byref(out))
        return int(out.value or 0)

    # contexts

    def current_context(self) -> int:
        return self.get("cuCtxGetCurrent")

    def use_primary(self) -> None:
        self("cuCtxSetCurrent", self.primary)

    @contextmanager
    def context(self, context: int | None = None) -> Iterator[None]:
        """Make `context` (None: the primary one) current, and put the caller's back afterwards."""
        self("cuCtxPushCurrent_v2", self.primary if context is None else context)
        try:
            yield
        finally:
            self.get("cuCtxPopCurrent_v2")

    def synchronize(self) -> None:
        with self.context():
            self("cuCtxSynchronize")

    # streams and events

    def stream(self, flags: int = NON_BLOCKING) -> int:
        return self.get("cuStreamCreate", flags)

    def event(self) -> int:
        return self.get("cuEventCreate", NO_TIMING)

    def spin(self, stream: int, milliseconds: float) -> None:
        """Queue a one-thread kernel on `stream` that runs for `milliseconds`."""
        nanoseconds = ctypes.c_uint64(int(milliseconds * 1e6))
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(nanoseconds))
        with self.context(self.current_context() or self.primary):
            self(
                "cuLaunchKernel", self._spin_kernel(), 1, 1, 1, 1, 1, 1, 0, stream, parameters, None
            )

    def _spin_kernel(self) -> int:
        context = self.current_context()
        with self._loading:
            if context not in self._spin:
                module = self.get("cuModuleLoadData", SPIN_PTX)
                self._spin[context] = self.get("cuModuleGetFunction", module, b"spin")
            return self._spin[context]

    def forget(self, context: int) -> None:
        """`context` is about to be destroyed, and its kernel with it."""
        with self._loading:
            self._spin.pop(context, None)

    def is_pending(self, stream: int, patience_ms: float = 4.0) -> bool:
        """Whether work queued on `stream` so far stays unfinished for `patience_ms`, seen through a
        fresh event.

        An event on an idle stream completes microseconds after the record, not at once: hence the
        patience. What a test holds back must spin for longer.
        """
        deadline = time.perf_counter() + 1e-3 * patience_ms
        with self.context():
            event = self.event()
            try:
                self("cuEventRecord", event, stream)
                while pending := self.result("cuEventQuery", event) == "CUDA_ERROR_NOT_READY":
                    if time.perf_counter() > deadline:
                        break
                return pending
            finally:
                self("cuEventDestroy_v2", event)

    # memory

    def allocate(self, nbytes: int) -> int:
        return self.get("cuMemAlloc_v2", nbytes, kind=ADDRESS)

    def write(self, address: int, value: int, count: int, stream: int) -> None:
        """Queue a write of `count` 32-bit words on `stream`."""
        self("cuMemsetD32Async", address, value, count, stream)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self("cuMemcpyDtoDAsync_v2", target, source, nbytes, stream)

    def read(self, address: int, nbytes: int) -> bytes:
        """Bytes at `address`, read by the host now; the caller has synchronized what wrote them."""
        host = ctypes.create_string_buffer(nbytes)
        with self.context(self.owner_of(address)):
            self("cuMemcpyDtoH_v2", ctypes.addressof(host), address, nbytes)
        return host.raw

    def owner_of(self, address: int) -> int:
        """The primary context of the device that the memory is on."""
        ordinal, ordinal_of = INT(0), 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        self("cuPointerGetAttribute", ctypes.byref(ordinal), ordinal_of, address)
        device = self.get("cuDeviceGet", ordinal.value, kind=INT)
        return self.get("cuDevicePrimaryCtxRetain", device)

    def words(self, address: int, count: int) -> list[int]:
        return list((ctypes.c_uint32 * count).from_buffer_copy(self.read(address, 4 * count)))

    def put(self, address: int, content: bytes) -> None:
        with self.context():
            self("cuMemcpyHtoD_v2", address, content, len(content))


@functools.cache
def load() -> Driver:
    """The driver, opened once per process."""
    return Driver()


def why_no_gpu() -> str | None:
    """Why no GPU test can run here, or None where they can. Creates no context."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver: libcuda.so.1 does not load"
    count = ctypes.c_int()
    if library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return "no CUDA device"
    return None
