"""The steps that are the program's own work: arrays, reads, writes, streams and threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .step import STREAMS, Step, inside, late

SIMPLEST: dict[str, object] = {"spin": 0.0, "thread": 0}


@dataclass(frozen=True)
class NewStream(Step):
    """All streams are made before the threads start, and live until the end."""

    name: str
    library: str
    kind: str

    def __str__(self) -> str:
        return f"{self.name} = {STREAMS[self.library][self.kind]}"


@dataclass(frozen=True)
class Make(Step):
    """A producer's array, written late on a stream of its own."""

    name: str
    library: str
    stream: str | None
    words: int
    value: int
    spin: float = 0.0
    simplest: ClassVar = SIMPLEST

    def __str__(self) -> str:
        make = {
            "torch": f"torch.full(({self.words},), {self.value}.0, device='cuda')",
            "cupy": f"cupy.full({self.words}, {self.value}, 'f4')",
            "numba": f"full(cuda.device_array({self.words}, 'f4', stream={self.stream}),"
            f" {self.value})",
            "warp": f"wp.full({self.words}, {self.value}.0, dtype=wp.float32)",
            "jax": f"full({self.words}, {self.value} + nothing{' late' if self.spin else ''})",
        }[self.library]
        spin = "" if self.library == "jax" else late(self.spin, self.stream)
        return f"{inside(self.stream)}{spin}{self.name} = {make}"


@dataclass(frozen=True)
class Read(Step):
    """A copy of the values, made late on the stream of the array's library; compared later."""

    name: str
    array: str
    spin: float = 0.0
    simplest: ClassVar = SIMPLEST

    def __str__(self) -> str:
        return f"{late(self.spin, 'its')}{self.name} = copy({self.array})"


@dataclass(frozen=True)
class Write(Step):
    """A new value, written late on the stream of the array's library."""

    array: str
    value: int
    spin: float = 0.0
    simplest: ClassVar = SIMPLEST

    def __str__(self) -> str:
        return f"{late(self.spin, 'its')}fill({self.array}, {self.value})"


@dataclass(frozen=True)
class Reuse(Step):
    """The producer's allocator is asked for as much again, which is overwritten at once."""

    library: str
    stream: str | None
    words: int
    value: int
    times: int = 2
    simplest: ClassVar = {"thread": 0}

    def __str__(self) -> str:
        new = Make("new", self.library, self.stream, self.words, self.value)
        return f"for _ in range({self.times}): {new}"


@dataclass(frozen=True)
class Enter(Step):
    """A stream becomes its library's current one in this thread, within what was before."""

    stream: str

    def __str__(self) -> str:
        return f"{inside(self.stream).removesuffix(': ')}:  # until left"


@dataclass(frozen=True)
class Leave(Step):
    """The last stream entered by this thread is left."""

    def __str__(self) -> str:
        return "leave"


@dataclass(frozen=True)
class Sync(Step):
    """The host waits for all work queued so far, and compares what this thread has read."""

    def __str__(self) -> str:
        return "cuda.synchronize(); compare()"


@dataclass(frozen=True)
class Meet(Step):
    """A thread waits until another one has got here, and goes on with what that one has made."""

    other: int = 0

    def __str__(self) -> str:
        return f"inbox.get()  # of thread {self.other}"
