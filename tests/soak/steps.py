"""What a program consists of: small frozen records that print as the Python that they stand for.

Objects are named by a letter and a number: `s` streams, `x` arrays, `y` arrays that a library made
of a capsule, `v` views, `k` capsules, `p` reads and writes of consumers, `g` graphs. `L0` and `T0`
are the legacy and the per-thread default stream of device 0. A ``stream=`` argument is None, -1, a
stream's name for the object, or the name with ``.handle`` for the bare integer, or with
``.external`` for an object around the handle that owns no stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .bridging import (
    Adopt,
    Attempt,
    Collect,
    Consume,
    Copy,
    Cycle,
    Drop,
    Export,
    FromCai,
    Refusal,
    Relay,
    Release,
    ToCai,
    ToHost,
)
from .calling import Call, Tree
from .step import ITEMSIZE, LAYOUTS, Argument, Step, is_default, stream_of

__all__ = [
    "ITEMSIZE",
    "LAYOUTS",
    "Adopt",
    "Argument",
    "Attempt",
    "Begin",
    "Call",
    "Close",
    "Collect",
    "Consume",
    "Copy",
    "Cycle",
    "Drop",
    "End",
    "Export",
    "Fill",
    "FromCai",
    "Look",
    "NewArray",
    "NewStream",
    "Program",
    "Read",
    "Refusal",
    "Relay",
    "Release",
    "Replay",
    "Reset",
    "Run",
    "SetDevice",
    "Step",
    "Sync",
    "ToCai",
    "ToHost",
    "Tree",
    "Wait",
    "Works",
    "is_default",
    "listing",
    "stream_of",
]


@dataclass(frozen=True)
class NewStream(Step):
    """A stream, perhaps with the handle of one that was destroyed."""

    name: str
    device: int
    blocking: bool
    again: str | None = None
    simplest: ClassVar = {"device": 0, "blocking": False, "again": None}

    def __str__(self) -> str:
        said = f"device={self.device}, blocking={self.blocking}"
        said += f", handle_of={self.again}" if self.again else ""
        return f"{self.name} = cuda.stream({self.name!r}, {said})"


@dataclass(frozen=True)
class NewArray(Step):
    name: str
    value: int
    speaks: tuple[str, ...]
    stream: str | None = None
    device: int = 0
    memory: str = "device"
    layout: str = "vector"
    dtype: str = "float32"
    readonly: bool = False
    simplest: ClassVar = {
        "device": 0,
        "memory": "device",
        "layout": "vector",
        "dtype": "float32",
        "readonly": False,
        "stream": None,
    }

    def __str__(self) -> str:
        speaks = self.speaks[0] if len(self.speaks) == 1 else self.speaks
        shape, strides, offset = LAYOUTS[self.layout]
        said = [f"fill={self.value}", f"shape={shape}", f"speaks={speaks!r}"]
        said += [f"stream={self.stream}"] if self.stream else [f"device={self.device}"]
        said += [f"memory={self.memory!r}"] if self.memory != "device" else []
        said += [f"dtype={self.dtype!r}"] if self.dtype != "float32" else []
        said += [f"strides={strides!r} items"] if strides != "C" else []
        said += [f"offset={offset} items"] if offset else []
        said += ["readonly=True"] if self.readonly else []
        return f"{self.name} = cuda.array({', '.join(said)})"


@dataclass(frozen=True)
class Fill(Step):
    """The producer writes again, queued on a stream or (None) from the host."""

    array: str
    value: int
    stream: str | None

    def __str__(self) -> str:
        if self.stream is None:
            return f"{self.array}.assign({self.value})"
        return f"{self.stream}.fill({self.array}, {self.value})"


@dataclass(frozen=True)
class Read(Step):
    """The producer reads its own array, on a stream or (None) from the host."""

    name: str
    array: str
    stream: str | None

    def __str__(self) -> str:
        if self.stream is None:
            return f"{self.name} = {self.array}.tolist()"
        return f"{self.name} = {self.stream}.read({self.array})"


@dataclass(frozen=True)
class Wait(Step):
    """An event of the program's own: `then` waits for `first`."""

    then: str
    first: str

    def __str__(self) -> str:
        return f"{self.then}.wait({self.first}.record())"


@dataclass(frozen=True)
class Sync(Step):
    """The host waits, for a stream or (None) for all."""

    stream: str | None

    def __str__(self) -> str:
        return f"{self.stream or 'cuda'}.synchronize()"


@dataclass(frozen=True)
class Run(Step):
    """Time passes: queued work runs, and the host does not learn of it."""

    def __str__(self) -> str:
        return "cuda.run()"


@dataclass(frozen=True)
class Look(Step):
    """A later call of the bridge, which ends what waited for a consumer to be done."""

    def __str__(self) -> str:
        return "from_cai(nothing).release()"


@dataclass(frozen=True)
class SetDevice(Step):
    device: int

    def __str__(self) -> str:
        return f"cuda.set_device({self.device})"


@dataclass(frozen=True)
class Close(Step):
    """A stream is destroyed while objects of it may be held."""

    stream: str

    def __str__(self) -> str:
        return f"{self.stream}.destroy()"


@dataclass(frozen=True)
class Works(Step):
    """A library that was registered works on a stream of a device from now on, or on none."""

    device: int
    stream: str | None

    def __str__(self) -> str:
        return f"library.works_on[{self.device}] = {self.stream}"


@dataclass(frozen=True)
class Reset(Step):
    """The primary context of a device ends; it is another one when it is used again."""

    device: int

    def __str__(self) -> str:
        return f"cuda.reset_device({self.device})"


@dataclass(frozen=True)
class Begin(Step):
    name: str
    stream: str
    mode: str = "global"
    simplest: ClassVar = {"mode": "global"}

    def __str__(self) -> str:
        return f"{self.name} = cuda.capture({self.stream}, {self.mode!r}); {self.name}.__enter__()"


@dataclass(frozen=True)
class End(Step):
    graph: str

    def __str__(self) -> str:
        return f"{self.graph}.__exit__()"


@dataclass(frozen=True)
class Replay(Step):
    graph: str
    stream: str

    def __str__(self) -> str:
        return f"{self.graph}.launch({self.stream})"


Program = tuple[Step, ...]


def listing(program: Program) -> str:
    """Write a program down, one step a line."""
    lines = []
    depth = 1
    for step in program:
        depth -= isinstance(step, End)
        lines.append("    " * depth + str(step))
        depth += isinstance(step, Begin)
    return "\n".join(["with simulated_cuda(devices=2) as cuda:", *lines])
