"""The steps that are the program's own work: streams, arrays, reads, writes, threads, graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .step import LAYOUTS, STREAMS, Step, inside, late, plain


@dataclass(frozen=True)
class NewStream(Step):
    """A stream of a library, or (of "cuda") of the program, perhaps with a dead one's handle."""

    name: str
    library: str
    kind: str
    device: int = 0
    again: str | None = None
    simplest: ClassVar = {"device": 0, "again": None}

    @property
    def blocking(self) -> bool:
        return self.kind == "blocking"

    def statement(self) -> str:
        if self.library in STREAMS:
            return f"{self.name} = {STREAMS[self.library][self.kind]}"
        said = f"device={self.device}, blocking={self.blocking}"
        said += f", handle_of={self.again}" if self.again else ""
        return f"{self.name} = cuda.stream({self.name!r}, {said})"


@dataclass(frozen=True)
class NewArray(Step):
    """An array of the simulated device, which speaks what is said."""

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

    def statement(self) -> str:
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
class Make(Step):
    """A library's array, written late on a stream of its own."""

    name: str
    library: str
    stream: str | None
    words: int
    value: int
    spin: float = 0.0
    simplest: ClassVar = {"spin": 0.0}

    def statement(self) -> str:
        make = {
            "torch": f"torch.full(({self.words},), {self.value}.0, device='cuda')",
            "cupy": f"cupy.full({self.words}, {self.value}, 'f4')",
            "numba": f"full(cuda.device_array({self.words}, 'f4', stream={self.stream}),"
            f" {self.value})",
            "warp": f"wp.full({self.words}, {self.value}.0, dtype=wp.float32)",
            "jax": f"full({self.words}, {self.value} + nothing{' late' if self.spin else ''})",
        }[self.library]
        spin = "" if self.library == "jax" else late(self.spin, self.stream)
        return f"{spin}{self.name} = {make}"

    def within(self) -> tuple[str | None, ...]:
        return (self.stream,)


@dataclass(frozen=True)
class Reuse(Step):
    """The producer's allocator is asked for as much again, which is overwritten at once."""

    library: str
    stream: str | None
    words: int
    value: int
    times: int = 2

    def statement(self) -> str:
        new = Make("new", self.library, self.stream, self.words, self.value)
        return f"for _ in range({self.times}): {new}"


@dataclass(frozen=True)
class Read(Step):
    """The owner of an array reads it, late where that is said; what it sees is compared later.

    Without a stream that is on the stream of the array's library, or from the host.
    """

    name: str
    array: str
    stream: str | None = None
    spin: float = 0.0
    simplest: ClassVar = {"spin": 0.0}

    def statement(self) -> str:
        read = f"{self.stream}.read({self.array})" if self.stream else f"copy({self.array})"
        return f"{late(self.spin, 'its')}{self.name} = {read}"


@dataclass(frozen=True)
class Fill(Step):
    """The owner of an array writes it again, as `Read` reads it."""

    array: str
    value: int
    stream: str | None = None
    spin: float = 0.0
    simplest: ClassVar = {"spin": 0.0}

    def statement(self) -> str:
        where = f"{self.stream}." if self.stream else ""
        return f"{late(self.spin, 'its')}{where}fill({self.array}, {self.value})"


@dataclass(frozen=True)
class Sync(Step):
    """The host waits, for a stream or (None) for all; libraries' reads are compared then."""

    stream: str | None = None

    def statement(self) -> str:
        return f"{self.stream or 'cuda'}.synchronize()"


@dataclass(frozen=True)
class Enter(Step):
    """A stream becomes its library's current one in this thread, within what was before."""

    stream: str

    def statement(self) -> str:
        return f"{inside(self.stream).removesuffix(': ')}:  # until left"


Leave = plain("Leave", "leave", "The last stream entered by this thread is left.")
Meet = plain(
    "Meet",
    "inbox.get()  # of thread {other}",
    "A thread waits until another one has got here, and goes on with what that one has made.",
    other=0,
)
Wait = plain(
    "Wait",
    "{then}.wait({first}.record())",
    "An event of the program's own: `then` waits for `first`.",
    then=str,
    first=str,
)
Run = plain("Run", "cuda.run()", "Time passes: queued work runs, and the host does not know.")
SetDevice = plain("SetDevice", "cuda.set_device({device})", "Another GPU is current.", device=int)
Close = plain(
    "Close", "{stream}.destroy()", "A stream ends while objects of it may be held.", stream=str
)
Works = plain(
    "Works",
    "library.works_on[{device}] = {stream}",
    "A library that was registered works on a stream of a device from now on, or on none.",
    device=int,
    stream=str,
)
Reset = plain(
    "Reset",
    "cuda.reset_device({device})",
    "The primary context of a device ends; it is another one when it is used again.",
    device=int,
)
Begin = plain(
    "Begin",
    "{name} = cuda.capture({stream}, {mode!r}); {name}.__enter__()",
    "A capture of a stream begins.",
    name=str,
    stream=str,
    mode="global",
)
End = plain("End", "{graph}.__exit__()", "A capture ends: it is a graph now.", graph=str)
Replay = plain("Replay", "{graph}.launch({stream})", "A graph runs.", graph=str, stream=str)
Change = plain(
    "Change",
    "strangers.change({array}, {speaks})",
    "The class of a strange array gets other members: it speaks in another way.",
    array=str,
    speaks=tuple,
)
Lie = plain(
    "Lie",
    "assert strangers.TOLD[{about!r}]({array}, print)",
    "A producer says of an array what it is not, and all is as before.",
    array=str,
    about="device",
)
