"""The libraries as `convert`'s tests use them: an array of each, and work that waits behind a spin.

The producer's write waits behind a spinning kernel, and so does the consumer's read where the end
is tested: what is not ordered is seen in the values.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from cai_bridge import convert, from_cai

from . import libraries, streams
from .capsules import OnlyCai, interface
from .libraries import PRODUCERS, Seen, pointer_of
from .streams import WORDS, handle_of

RUNS = int(os.environ.get("CAI_BRIDGE_RUNS", "30"))
"""How often a pair of libraries hands an array over; torch and CuPy five times as often."""
ROUNDS = 5 * RUNS
LATE_MS = 3.0
LATE = -1.0
TO = ["torch", "cupy", "numba", "jax", "cuda", "tvm_ffi"]
FROM = ["torch", "cupy", "numba", "jax", "tvm_ffi"]
PAIRS = [(source, sink) for source in FROM for sink in TO if source != sink]

SEEN: dict[str, Callable[[Any], Seen]] = {
    "torch": libraries.torch_seen,
    "cupy": libraries.cupy_seen,
    "numba": libraries.numba_seen,
    "jax": libraries.jax_seen,
    "cuda": libraries.core_seen,
    "tvm_ffi": libraries.tvm_seen,
}


def needs(*names: str) -> None:
    """Skip where one of these libraries is missing."""
    for name in names:
        if name == "jax":
            libraries.gpu_jax()
        else:
            pytest.importorskip({"numba": "numba.cuda", "cuda": "cuda.core.utils"}.get(name, name))


def make(library: str, host: np.ndarray[Any, Any]) -> Any:
    """An array of a library with these values; tvm-ffi's is one of torch's memory."""
    if library != "tvm_ffi":
        return PRODUCERS[library](host, host.dtype.name)
    tensor = PRODUCERS["torch"](host, host.dtype.name)
    return pytest.importorskip("tvm_ffi").from_dlpack(tensor)


def pointer(array: Any, library: str) -> int:
    return int(array.data_ptr()) if library == "tvm_ffi" else pointer_of(array, library)


class Named:
    """A stream by its handle, which whoever is given it keeps."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


class Torch:
    """PyTorch on a side stream."""

    to = "torch"

    def __init__(self, place: Place, words: int = WORDS) -> None:
        self.torch, self.words = pytest.importorskip("torch"), words
        self.stream = self.torch.cuda.Stream()
        self.array = self.torch.zeros(words, device="cuda")
        self.out = self.torch.zeros(words, device="cuda")

    def working(self) -> Any:
        return self.torch.cuda.stream(self.stream)

    says: ClassVar[dict[str, Any]] = {}

    def fresh(self, value: float) -> Any:
        with self.working():
            return self.torch.full((self.words,), value, device="cuda")

    def written(self, value: float) -> Any:
        streams.torch_writes_late(self.array, value, self.stream, LATE_MS)
        return self.array

    def write(self, value: float, array: Any = None) -> None:
        with self.working():
            (self.array if array is None else array).fill_(value)

    def read(self, made: Any) -> None:
        with self.working():
            self.out.copy_(made)

    def seen(self) -> Any:
        self.stream.synchronize()
        return self.out.cpu().numpy()

    def native(self, array: Any) -> Any:
        return self.torch.from_dlpack(array)


class Cupy:
    """CuPy on a non-blocking stream."""

    to = "cupy"
    says: ClassVar[dict[str, Any]] = {}

    def __init__(self, place: Place, words: int = WORDS) -> None:
        self.cupy, self.words = pytest.importorskip("cupy"), words
        self.stream = self.cupy.cuda.Stream(non_blocking=True)
        self.array = self.cupy.zeros(words, dtype=np.float32)
        self.out = self.cupy.zeros(words, dtype=np.float32)

    def working(self) -> Any:
        return self.stream

    def fresh(self, value: float) -> Any:
        with self.stream:
            return self.cupy.full(self.words, value, dtype=np.float32)

    def written(self, value: float) -> Any:
        streams.cupy_writes_late(self.array, value, self.stream, LATE_MS)
        return self.array

    def write(self, value: float, array: Any = None) -> None:
        with self.stream:
            (self.array if array is None else array).fill(value)

    def read(self, made: Any) -> None:
        with self.stream:
            self.out[...] = made

    def seen(self) -> Any:
        return self.cupy.asnumpy(self.out, stream=self.stream)

    def native(self, array: Any) -> Any:
        return self.cupy.from_dlpack(array)


class Numba:
    """Numba on a stream of its own, which its arrays name and kernels are told."""

    to = "numba"

    def __init__(self, place: Place, words: int = WORDS) -> None:
        self.cuda, self.words = pytest.importorskip("numba.cuda"), words
        self.stream = self.cuda.stream()
        self.array = self.cuda.device_array(words, dtype=np.float32, stream=self.stream)
        self.out = self.cuda.device_array(words, dtype=np.float32)
        self.fill, self.copy = streams.numba_kernels()
        self.says = {"stream": self.stream}

    def working(self) -> Any:
        return contextlib.nullcontext()

    def fresh(self, value: float) -> Any:
        array = self.cuda.device_array(self.words, dtype=np.float32, stream=self.stream)
        self.write(value, array)
        return array

    def written(self, value: float) -> Any:
        streams.numba_writes_late(self.array, value, self.stream, LATE_MS)
        return self.array

    def write(self, value: float, array: Any = None) -> None:
        array = self.array if array is None else array
        self.fill[(*streams.blocks_for(self.words), self.stream)](array, value)

    def read(self, made: Any) -> None:
        self.copy[(*streams.blocks_for(self.words), self.stream)](made, self.out)

    def seen(self) -> Any:
        host = self.out.copy_to_host(stream=self.stream)
        self.stream.synchronize()
        return host

    def native(self, array: Any) -> Any:
        return self.cuda.as_cuda_array(array, sync=False)


class Jax:
    """JAX, on whatever stream it runs."""

    to = "jax"
    says: ClassVar[dict[str, Any]] = {}
    MS = 10.0

    def __init__(self, place: Place, words: int = WORDS) -> None:
        self.jax = libraries.gpu_jax()
        self.delay = streams.jax_delay(self.MS)
        full = self.jax.numpy.full
        self.fresh = self.jax.jit(lambda value: full((words,), value, dtype=np.float32))
        self.copied = self.jax.jit(lambda array: array + 0)
        self.out: Any = None

    def working(self) -> Any:
        return contextlib.nullcontext()

    def written(self, value: float) -> Any:
        return self.delay(int(value))

    def read(self, made: Any) -> None:
        self.out = self.copied(made)

    def seen(self) -> Any:
        return np.asarray(self.out)


class ByDriver:
    """A library that has no work of its own: the driver copies from and writes to its arrays."""

    def __init__(self, place: Place) -> None:
        self.driver, self.stream = place.driver, Named(place.new_stream())
        self.out, self.memory = place.words(WORDS), place.words(WORDS)
        self.says: dict[str, Any] = {"stream": self.stream}

    def working(self) -> Any:
        return contextlib.nullcontext()

    def address(self, made: Any) -> int:
        raise NotImplementedError

    def read(self, made: Any) -> None:
        self.driver.copy(self.out, self.address(made), 4 * WORDS, self.stream.handle)

    def seen(self) -> Any:
        self.driver.synchronize()
        return np.frombuffer(self.driver.read(self.out, 4 * WORDS), np.float32)


class ByPointer(ByDriver):
    """One whose arrays have the pointer as `ptr`; its `module` is needed."""

    to: str
    module: str

    def __init__(self, place: Place) -> None:
        pytest.importorskip(self.module)
        super().__init__(place)

    def address(self, made: Any) -> int:
        return int(made.ptr)


class Core(ByPointer):
    """cuda.core's StridedMemoryView."""

    to, module = "cuda", "cuda.core.utils"


class Tvm(ByDriver):
    """tvm-ffi, whose environment's stream is the one that its arrays are written on."""

    to = "tvm_ffi"

    def __init__(self, place: Place) -> None:
        self.tvm_ffi = pytest.importorskip("tvm_ffi")
        super().__init__(place)
        self.array = self.tvm_ffi.from_dlpack(
            from_cai(OnlyCai(interface(self.memory, (WORDS,))), stream=-1)
        )

    def working(self) -> Any:
        return self.tvm_ffi.use_raw_stream(self.tvm_ffi.device("cuda", 0), self.stream.handle)

    def address(self, made: Any) -> int:
        return int(made.data_ptr())

    def written(self, value: float) -> Any:
        self.driver.spin(self.stream.handle, LATE_MS)
        bits = int(np.float32(value).view(np.uint32))
        self.driver.write(self.memory, bits, WORDS, self.stream.handle)
        return self.array


WORKERS: dict[str, type[Any]] = {one.to: one for one in (Torch, Cupy, Numba, Jax, Core, Tvm)}


class Place:
    """What the workers are made with."""

    def __init__(self, driver: Any, new_stream: Any, words: Any) -> None:
        self.driver, self.new_stream, self.words = driver, new_stream, words


def handed_over(source: Any, sink: Any, array: Any, **how: Any) -> Any:
    """Convert, each library working on its stream."""
    with source.working(), sink.working():
        return convert(array, sink.to, **{"readonly": False, **sink.says, **how})


def wrong_runs(place: Place, source: Any, sink: Any, runs: int, **how: Any) -> int:
    """Count the runs that read anything but what was written late."""
    values, wrong = streams.fresh_values(), 0
    for _ in range(runs):
        place.driver.synchronize()
        value = float(next(values))
        array = source.written(value)
        made = handed_over(source, sink, array, **how)
        sink.read(made)
        wrong += not bool((sink.seen() == value).all())
        del made, array
    place.driver.synchronize()
    return wrong


def overtaken(place: Place, source: Any, sink: Any, runs: int, hand_over: Any) -> int:
    """Count the runs whose late read saw the producer's next write."""
    values, wrong = streams.fresh_values(), 0
    for _ in range(runs):
        value = float(next(values))
        array = source.written(value)
        place.driver.synchronize()
        made = hand_over(array)
        place.driver.spin(handle_of(sink.stream), LATE_MS)
        sink.read(made)
        with source.working():
            del made
        source.write(LATE)
        wrong += not bool((sink.seen() == value).all())
        place.driver.synchronize()
        del array
    return wrong


def check_late(place: Place, note: Any, source: Any, sink: Any, *, tried: bool = True) -> None:
    """What was written late is there, and without the order it is not, where that is tried."""
    wrong_runs(place, source, sink, 3)
    wrong = wrong_runs(place, source, sink, RUNS)
    without = wrong_runs(place, source, sink, RUNS, stream=-1) if tried else None
    way = f"convert({source.to} -> {sink.to})"
    note(f"{way}: wrong {wrong}/{RUNS}, {without} without the order")
    assert wrong == 0
    assert without != 0, "nothing went wrong without the order: the case shows nothing"


def check_end(
    place: Place, note: Any, source: Any, sink: Any, runs: int = RUNS, **how: Any
) -> None:
    """The producer's next write comes after the consumer's read."""
    wrong = overtaken(
        place, source, sink, runs, lambda array: handed_over(source, sink, array, **how)
    )
    note(f"convert({source.to} -> {sink.to}), at the end: wrong {wrong}/{runs}")
    assert wrong == 0
