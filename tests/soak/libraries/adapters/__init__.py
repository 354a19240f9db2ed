"""The libraries as a program uses them, an adapter each; `simulated` has stand-ins for them."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from cai_bridge.conformance.lab.cuda import NOT_READY

from ....gpu import driver as gpu
from ...crew import Ready
from ...steps import LIBRARIES

FAULTS = {
    # Wrong orders, and then what any program may do.
    "simulated": ("unordered", "unasked", "hurried", "kept", "called", "hang", "raise"),
}


# Cycles are counted, and a step of many is taken for a time in which another process had the GPU:
# the delay is one of this process's own time on it.
SPIN_PTX = b"""
.version 7.0
.target sm_75
.address_size 64

.visible .entry spin_cycles(.param .u64 cycles)
{
    .reg .u64 %want, %last, %now, %step, %spent;
    .reg .pred %more;
    ld.param.u64 %want, [cycles];
    mov.u64 %spent, 0;
    mov.u64 %last, %clock64;
again:
    mov.u64 %now, %clock64;
    sub.u64 %step, %now, %last;
    mov.u64 %last, %now;
    min.u64 %step, %step, 8192;
    add.u64 %spent, %spent, %step;
    setp.lt.u64 %more, %spent, %want;
    @%more bra again;
    ret;
}
"""
CYCLES_PER_MS = 1_700_000


class Adapter:
    """One library. An array has `words` float32 items; `stream` is an object of the library."""

    name: str

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self.start()

    def start(self) -> None:
        """Begin to work on the device."""
        self.driver = gpu.load()
        self.driver.use_primary()

    def use_memory(self, kind: str) -> None:
        """Take memory of a kind of `program.MEMORY`, where no variable has said it already."""

    # Streams.

    def new_stream(self, kind: str) -> Any:
        """Make a stream of a kind of `steps.STREAMS`."""
        raise NotImplementedError

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Make a stream the current one; Numba, JAX and tvm-ffi have none that one sets."""
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def late(self, stream: Any, milliseconds: float) -> Iterator[None]:
        with self.on(stream):
            self.spin(stream, milliseconds)
            yield

    def works_on(self, stream: Any) -> AbstractContextManager[Any]:
        """Have `convert` find a stream as this library's; the libraries tell theirs themselves."""
        return contextlib.nullcontext()

    def handle(self, stream: Any) -> int:
        """Tell the bare handle; the legacy default stream is 1."""
        return 1 if stream is None else int(stream.__cuda_stream__()[1]) or gpu.LEGACY

    def is_pending(self, stream: Any) -> bool:
        with self.driver.context():
            return bool(self.driver.result("cuStreamQuery", self.handle(stream)) == NOT_READY)

    def spin(self, stream: Any, milliseconds: float) -> None:
        """Queue a kernel that holds what is queued behind it back."""
        if milliseconds:
            with self.driver.context():
                kernel = self.driver.kernel(SPIN_PTX, b"spin_cycles")
                cycles = int(milliseconds * CYCLES_PER_MS)
                self.driver.launch(kernel, self.handle(stream), cycles)

    def synchronize(self) -> None:
        self.driver.synchronize()

    # Arrays.

    def full(self, words: int, value: int, stream: Any, spin: float) -> Any:
        """Make an array on a stream, and queue a write of one value."""
        raise NotImplementedError

    def fill(self, array: Any, words: int, value: int, stream: Any, spin: float) -> None:
        raise NotImplementedError

    def copy(self, array: Any, words: int, stream: Any, spin: float) -> Any:
        """Queue a copy of the values into memory of the library's own."""
        raise NotImplementedError

    def values(self, copied: Any) -> Any:
        """Give a copy to the host; all work is done. The memory is free then."""
        raise NotImplementedError

    def pointer(self, array: Any) -> int | None:
        """Tell where an array is, where that does not wait."""
        raise NotImplementedError

    def has(self, array: Any) -> bool:
        return type(array).__module__.partition(".")[0] == self.name

    def take(self, how: str, source: Any, stream: Any) -> Any:
        """Take a view over in one of the ways of `discipline.OF_DICTS` and `OF_TENSORS`."""
        raise NotImplementedError

    def take_natively(self, how: str, source: Any, stream: Any) -> Any:
        """Take another library's array over as it is."""
        return self.take(how, source, stream)

    def warm_up(self, words: int, kinds: dict[str, str]) -> None:
        """Do everything once, so that nothing is compiled or loaded later."""
        for kind in kinds:
            stream = self.new_stream(kind)
            with self.on(stream):
                array = self.full(words, 0, stream, 0.01)
                self.fill(array, words, 0, stream, 0.01)
                copied = self.copy(array, words, stream, 0.01)
                self.synchronize()
                self.values(copied)


def speaks(array: Any, *names: str) -> bool:
    return any(hasattr(array, name) for name in names)


NOT_INITIALIZED = 3


def load(name: str) -> type[Any]:
    """Import a library, and give its adapter. Nothing here is to touch the GPU."""
    return importlib.import_module(f"{__name__}.{name}").Adapter


def stand_ins() -> Ready:
    """Import what stands in for the libraries, so that no child has to."""
    importlib.import_module(f"{__name__}.simulated")
    return Ready(list(LIBRARIES))


def imported(later: list[str]) -> Ready:
    """Import the libraries, and see whether one of them starts CUDA."""
    ready = Ready()
    for name in LIBRARIES:
        if name in later:
            ready.there.append(name)
            continue
        try:
            load(name)
        except Exception as error:
            ready.missing[name] = f"{type(error).__name__}: {error}"
            continue
        ready.there.append(name)
        ready.versions[name] = str(getattr(importlib.import_module(name), "__version__", "?"))
        if cuda_is_started():
            ready.started_by = name
            break
    return ready


def cuda_is_started() -> bool:
    """Whether anybody has initialised the driver in this process."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return int(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))) != NOT_INITIALIZED
