"""What a program consists of: small frozen records that print as the Python that they stand for.

Objects are named by a letter and a number: `s` streams, `x` arrays, `v` views, `k` capsules, `p`
reads and writes of consumers, `g` graphs. `L0` and `T0` are device 0's legacy and per-thread default
streams. A ``stream=`` argument is None, -1, a stream's name for the object, or the name with
``.handle`` for the bare integer.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

Argument = str | int | None

# Shape, strides in items ("C" or "F"), and the offset in items of the first one.
LAYOUTS: dict[str, tuple[tuple[int, ...], str | tuple[int, ...], int]] = {
    "vector": ((6,), "C", 0),
    "matrix": ((2, 3), "C", 0),
    "fortran": ((2, 3), "F", 0),
    "gaps": ((2, 2), (8, 2), 0),
    "reversed": ((6,), (-1,), 0),
    "repeated": ((3, 2), (0, 1), 0),
    "offset": ((4,), "C", 2),
    "scalar": ((), "C", 0),
    "empty": ((0, 3), "C", 0),
}
ITEMSIZE = {"float32": 4, "int16": 2, "complex64": 8, "bfloat16": 2, "uint8": 1}


def stream_of(argument: Argument) -> str | None:
    """Name the stream that an argument is about."""
    return argument.partition(".")[0] if isinstance(argument, str) else None


def is_default(stream: str) -> bool:
    """Whether a stream is there from the beginning."""
    return stream[0] in "LT"


@dataclass(frozen=True)
class Step:
    """One statement. A field `name` is what it makes; names in other fields are what it needs."""

    simplest: ClassVar[dict[str, object]] = {}

    def makes(self) -> str | None:
        return getattr(self, "name", None)

    def needs(self) -> set[str]:
        found: set[str] = set()
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Step):
                found |= value.needs()
            elif isinstance(value, str) and field.name in REFERENCES:
                found.add(value.partition(".")[0])
        return {name for name in found if name and not is_default(name)}


REFERENCES = {"stream", "array", "source", "view", "first", "then", "current", "graph", "what"}


@dataclass(frozen=True)
class NewStream(Step):
    name: str
    device: int
    blocking: bool
    simplest: ClassVar = {"device": 0, "blocking": False}

    def __str__(self) -> str:
        return f"{self.name} = cuda.stream({self.name!r}, device={self.device}, blocking={self.blocking})"


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
class SetDevice(Step):
    device: int

    def __str__(self) -> str:
        return f"cuda.set_device({self.device})"


@dataclass(frozen=True)
class ToCai(Step):
    name: str
    source: str
    stream: Argument = None
    readonly: bool | None = None
    current: str | None = None
    simplest: ClassVar = {"readonly": None, "current": None}

    def __str__(self) -> str:
        readonly = "" if self.readonly is None else f", readonly={self.readonly}"
        made = f"{self.name} = to_cai({self.source}, stream={self.stream}{readonly})"
        return f"with cuda.current_stream({self.current}): {made}" if self.current else made


@dataclass(frozen=True)
class FromCai(Step):
    name: str
    source: str
    stream: Argument = None
    readonly: bool | None = None
    current: str | None = None
    as_dict: bool = False
    simplest: ClassVar = {"readonly": None, "current": None, "as_dict": False}

    def __str__(self) -> str:
        source = self.source
        if self.as_dict:
            source = f"{source}.__cuda_array_interface__, owner={source}"
        readonly = "" if self.readonly is None else f", readonly={self.readonly}"
        made = f"{self.name} = from_cai({source}, stream={self.stream}{readonly})"
        return f"with cuda.current_stream({self.current}): {made}" if self.current else made


@dataclass(frozen=True)
class Export(Step):
    """A capsule that nobody has consumed yet, of an array or of a view."""

    name: str
    source: str
    stream: Argument = None
    versioned: bool = True

    def __str__(self) -> str:
        version = ", max_version=(1, 3)" if self.versioned else ""
        return f"{self.name} = {self.source}.__dlpack__(stream={self.stream}{version})"


@dataclass(frozen=True)
class Consume(Step):
    """A consumer takes a view or a capsule in, and reads it or (with a value) writes it."""

    name: str
    source: str
    kind: str
    stream: str
    value: int | None = None
    as_object: bool = False
    simplest: ClassVar = {"value": None, "as_object": False}

    def __str__(self) -> str:
        work = "read(" if self.value is None else "write("
        value = "" if self.value is None else f", {self.value}"
        given = ", asking with the stream object" if self.as_object else ""
        return (
            f"{self.name} = cuda.consumer({self.kind!r}, {self.stream}).{work}{self.source}{value})"
            + (f"  #{given[1:]}" if given else "")
        )


@dataclass(frozen=True)
class Release(Step):
    """A view is released, or (`how` is "with") its block ends."""

    view: str
    stream: Argument = None
    how: str = "release"
    thread: bool = False
    simplest: ClassVar = {"thread": False, "how": "release", "stream": None}

    def __str__(self) -> str:
        said = "" if self.stream is None else f"stream={self.stream}"
        made = f"with {self.view}: pass" if self.how == "with" else f"{self.view}.release({said})"
        return f"in another thread: {made}" if self.thread else made


@dataclass(frozen=True)
class Drop(Step):
    """The program lets go of something; of a consumer's work, of what the consumer took in."""

    what: str
    thread: bool = False
    simplest: ClassVar = {"thread": False}

    def __str__(self) -> str:
        made = f"{self.what}.release()" if self.what[0] == "p" else f"del {self.what}"
        return f"in another thread: {made}" if self.thread else made


@dataclass(frozen=True)
class Cycle(Step):
    """The program loses a view (and, through its owner, the array) in a reference cycle."""

    view: str
    through_owner: bool = False
    simplest: ClassVar = {"through_owner": False}

    def __str__(self) -> str:
        if self.through_owner:
            return f"{self.view}.owner.mine = {self.view}; del {self.view}, and the array"
        return f"box = [{self.view}]; box.append(box); del box, {self.view}"


@dataclass(frozen=True)
class Collect(Step):
    def __str__(self) -> str:
        return "gc.collect()"


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


@dataclass(frozen=True)
class Attempt(Step):
    """A hand-over with a call of the driver made to fail; whatever comes of it is dropped."""

    step: ToCai | FromCai | Export
    call: str
    nth: int
    error: str
    simplest: ClassVar = {"nth": 1, "error": "CUDA_ERROR_OUT_OF_MEMORY"}

    def makes(self) -> None:
        return None

    def __str__(self) -> str:
        made = str(self.step).replace(f"{self.step.name} = ", "")
        return f"cuda.fail({self.call!r}, {self.nth}, {self.error!r}); try: {made}"


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
