"""The conformance kit's door to the driver, with what only these tests need of it."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from cai_bridge.conformance.lab import cuda
from cai_bridge.conformance.lab.cuda import (
    ADDRESS,
    BLOCKING,
    HANDLE,
    INT,
    LEGACY,
    NON_BLOCKING,
    NOT_READY,
    OUT,
    PER_THREAD,
    SIZE,
    UINT,
    WAIT_DEFAULT,
    CudaFailure,
    why_no_gpu,
)

__all__ = [
    "BLOCKING",
    "CAPTURE_GLOBAL",
    "CAPTURE_RELAXED",
    "CAPTURE_THREAD_LOCAL",
    "LEGACY",
    "NON_BLOCKING",
    "PER_THREAD",
    "WAIT_DEFAULT",
    "WAIT_EXTERNAL",
    "CudaFailure",
    "Driver",
    "load",
    "why_no_gpu",
]

SIGNATURES: dict[str, tuple[type, ...]] = {
    "cuCtxCreate_v2": (OUT, UINT, INT),
    "cuCtxDestroy_v2": (HANDLE,),
    "cuCtxSetCurrent": (HANDLE,),
    "cuStreamQuery": (HANDLE,),
    "cuStreamIsCapturing": (HANDLE, OUT),
    "cuStreamGetFlags": (HANDLE, OUT),
    "cuStreamGetCtx": (HANDLE, OUT),
    "cuLaunchHostFunc": (HANDLE, HANDLE, HANDLE),
    "cuModuleUnload": (HANDLE,),
    "cuStreamBeginCapture_v2": (HANDLE, INT),
    "cuStreamEndCapture": (HANDLE, OUT),
    "cuCtxSynchronize": (),
    "cuGraphDestroy": (HANDLE,),
    "cuGraphInstantiateWithFlags": (OUT, HANDLE, ADDRESS),
    "cuGraphLaunch": (HANDLE, HANDLE),
    "cuGraphExecDestroy": (HANDLE,),
    "cuStreamGetCaptureInfo_v2": (HANDLE, OUT, OUT, OUT, OUT, OUT),
    "cuStreamGetId": (HANDLE, OUT),
    "cuEventSynchronize": (HANDLE,),
    "cuMemAllocManaged": (OUT, SIZE, UINT),
    "cuMemGetInfo_v2": (OUT, OUT),
    "cuMemcpyDtoDAsync_v2": (ADDRESS, ADDRESS, SIZE, HANDLE),
    "cuMemcpyDtoH_v2": (OUT, ADDRESS, SIZE),
    "cuMemcpyHtoD_v2": (ADDRESS, HANDLE, SIZE),
    "cuPointerGetAttribute": (OUT, INT, ADDRESS),
}

WAIT_EXTERNAL = 1  # cuStreamWaitEvent's flag
CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED = 0, 1, 2

BUSY_MS = 20.0
"""How long an idle stream may have to wait for a GPU that other processes have as well."""

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


class Capture:
    """How a capture ended, by the name of the result, and its graph if it is kept."""

    ended, graph = "", 0


class Driver(cuda.Driver):
    """The driver, with device 0's primary context retained for the life of the process."""

    signatures: ClassVar[dict[str, tuple[type, ...]]] = {**cuda.Driver.signatures, **SIGNATURES}

    def __init__(self) -> None:
        super().__init__(0)
        self._idle: dict[int, int] = {}

    def get_of(self, name: str, subject: int, kind: type = ctypes.c_void_p) -> int:
        """Call a function whose second argument is an out parameter, and return what it wrote."""
        out = kind()
        self(name, subject, ctypes.byref(out))
        return int(out.value or 0)

    def use_primary(self) -> None:
        self("cuCtxSetCurrent", self.primary)

    def spin(self, stream: int, milliseconds: float) -> None:
        """Queue a one-thread kernel on `stream` that runs for `milliseconds`."""
        with self.context(self.current_context() or self.primary):
            self.idle()
            self.launch(self.kernel(SPIN_PTX, b"spin"), stream, int(milliseconds * 1e6))

    def forget(self, context: int) -> None:
        """`context` is about to be destroyed, and its kernels with it."""
        self._idle.pop(context, None)
        with self._loading:
            for key in [key for key in self._kernels if key[0] == context]:
                del self._kernels[key]

    @contextmanager
    def thread_mode(self, mode: int = CAPTURE_RELAXED) -> Iterator[None]:
        """Have this thread in another capture mode for a while."""
        other = INT(mode)
        self("cuThreadExchangeStreamCaptureMode", ctypes.byref(other))
        try:
            yield
        finally:
            self("cuThreadExchangeStreamCaptureMode", ctypes.byref(other))

    @contextmanager
    def capture(
        self, stream: int, mode: int = CAPTURE_GLOBAL, *, keep: bool = False
    ) -> Iterator[Capture]:
        """Capture what is queued on `stream`; a graph that is kept can be launched."""
        self.spin(stream, 0.01)  # the kernel is loaded before the capture
        self("cuStreamSynchronize", stream)
        self("cuStreamBeginCapture_v2", stream, mode)
        capture, made = Capture(), ctypes.c_void_p()
        try:
            yield capture
        finally:
            capture.ended = self.result("cuStreamEndCapture", stream, ctypes.byref(made))
            if made.value and keep:
                capture.graph = self.get("cuGraphInstantiateWithFlags", made.value, 0)
            if made.value:
                self("cuGraphDestroy", made.value)

    def is_pending(self, stream: int, patience_ms: float = 4.0) -> bool:
        """Whether work queued on `stream` so far stays unfinished for `patience_ms`, seen through a
        fresh event.

        An event on an idle stream completes microseconds after the record, and later where other
        processes have the GPU: the patience begins when an idle stream was served, or after
        `BUSY_MS`. What a test holds back must spin for longer than both.
        """
        with self.context():
            asked = [self.event()]
            try:
                self("cuEventRecord", asked[0], stream)
                start = served = time.perf_counter()
                if patience_ms:
                    asked.append(self.event())
                    self("cuEventRecord", asked[1], self.idle())
                while self.result("cuEventQuery", asked[0]) == NOT_READY:
                    now = time.perf_counter()
                    is_busy = self.result("cuEventQuery", asked[-1]) == NOT_READY
                    if patience_ms and is_busy and now < start + 1e-3 * BUSY_MS:
                        served = now
                    if now > served + 1e-3 * patience_ms:
                        return True
                return False
            finally:
                for event in asked:
                    self("cuEventDestroy_v2", event)

    def idle(self) -> int:
        """A non-blocking stream of the current context that nobody works on."""
        context = self.current_context()
        if context not in self._idle:
            self._idle[context] = self.stream()
        return self._idle[context]

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

    def free_bytes(self) -> int:
        free, total = SIZE(), SIZE()
        self("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return int(free.value)

    def put(self, address: int, content: bytes) -> None:
        with self.context():
            self("cuMemcpyHtoD_v2", address, content, len(content))


@functools.cache
def load() -> Driver:
    """The driver, opened once per process."""
    return Driver()
