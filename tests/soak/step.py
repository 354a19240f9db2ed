"""What all steps of a program have, and the words that they are written in.

Objects are named by a letter and a number. Streams are named by whose they are: `s1` of the program
on the simulated device, where `L0` and `T0` are the legacy and the per-thread default stream of
device 0; `t1` torch's, `c2` CuPy's, `n3` Numba's, `w4` Warp's. JAX and tvm-ffi work on one that has
no name here: JAX on its own, tvm-ffi on the legacy default stream. A ``stream=`` argument is None,
-1, a stream's name for the object, or the name with ``.handle`` for the bare integer, or with
``.external`` for an object around the handle that owns no stream.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any, ClassVar

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

LIBRARIES = ("torch", "cupy", "numba", "jax", "tvm_ffi", "warp")
OF_STREAM = {"t": "torch", "c": "cupy", "n": "numba", "w": "warp"}
HAVE_CURRENT = ("torch", "cupy", "warp")
"""The libraries that have a current stream, which one sets."""
# How a stream of a kind is made, and how it is ordered beside the legacy default stream.
STREAMS = {
    "torch": {"pool": "torch.cuda.Stream()", "default": "torch.cuda.default_stream()"},
    "cupy": {
        "non_blocking": "cupy.cuda.Stream(non_blocking=True)",
        "blocking": "cupy.cuda.Stream()",
        "default": "cupy.cuda.Stream.null",
    },
    "numba": {"blocking": "cuda.stream()", "default": "cuda.default_stream()"},
    "warp": {"blocking": "wp.Stream()"},
}
ORDERED_BY_LEGACY = {"blocking", "default"}
_CURRENT = {"t": "torch.cuda.stream({})", "c": "{}", "w": "wp.ScopedStream({})"}
_CURRENT |= dict.fromkeys("sLT", "cuda.current_stream({})")
_HANDLE = {"t": "{}.cuda_stream", "c": "{}.ptr", "n": "int({})", "w": "{}.cuda_stream"}


def stream_of(argument: Argument) -> str | None:
    """Name the stream that an argument is about."""
    return argument.partition(".")[0] if isinstance(argument, str) else None


def is_handle(argument: Argument) -> bool:
    return isinstance(argument, str) and argument.endswith(".handle")


def is_default(stream: str) -> bool:
    """Whether a stream is there from the beginning."""
    return stream[0] in "LT"


# --- words ----------------------------------------------------------------------------------------


def written(argument: Argument | bool) -> str:
    """Write an argument: of a stream the object, or the bare handle."""
    name = stream_of(argument)
    if name is None or not is_handle(argument):
        return str(argument)
    return _HANDLE.get(name[0], "{}.handle").format(name)


def arguments(**given: Argument | bool) -> str:
    """Write the arguments of a call, but for those that nobody says."""
    said = {name: value for name, value in given.items() if value is not None}
    return "".join(f", {name}={written(value)}" for name, value in said.items())


def inside(*streams: str | None) -> str:
    """Write the ``with`` that makes streams the current ones of their libraries."""
    words = [_CURRENT[name[0]].format(name) for name in streams if name and name[0] in _CURRENT]
    return f"with {', '.join(dict.fromkeys(words))}: " if words else ""


def late(spin: float, stream: str | None) -> str:
    """Write the kernel that holds the work behind it back."""
    return f"spin({stream or 'legacy'}, {spin} ms); " if spin else ""


# --- steps ----------------------------------------------------------------------------------------

REFERENCES = {"stream", "array", "source", "view", "first", "then", "current", "graph", "what"}
REFERENCES |= {"at", "back"}
PARTS = {"step", "taken", "work", "parts"}


@functools.cache
def _about(kind: type[Step]) -> tuple[tuple[str, bool], ...]:
    """List the fields that refer to what others make, and whether they do so by steps."""
    found = (one.name for one in fields(kind) if one.name in REFERENCES | PARTS)
    return tuple((name, name in PARTS) for name in found)


@functools.cache
def method_of(kind: type[Step]) -> str:
    """Name the method that a room has for a kind of step."""
    return f"_{kind.__name__.lower()}"


@dataclass(frozen=True)
class Step:
    """One statement of one thread.

    A field `name` is what it makes; names in other fields are what it needs. `says` is how it is
    written down.
    """

    thread: int = field(default=0, kw_only=True)
    simplest: ClassVar[dict[str, object]] = {}
    says: ClassVar[str] = ""

    def __str__(self) -> str:
        return inside(*self.within()) + self.statement()

    def statement(self) -> str:
        return self.says.format_map(vars(self))

    def method(self, room: Any) -> Any:
        """Find what a room has for this kind of step."""
        return getattr(room, method_of(type(self)))

    def within(self) -> tuple[str | None, ...]:
        """List the streams that are current as it runs."""
        return getattr(self, "at", None), getattr(self, "current", None)

    def makes(self) -> str | None:
        return getattr(self, "name", None)

    def names(self) -> set[str]:
        """All that it makes."""
        made = self.makes()
        return set() if made is None else {made}

    def named(self) -> set[str | None]:
        """Give the names that reads of this step are known by, too."""
        return {self.makes()}

    def simpler(self) -> list[Step]:
        """Other steps that do a part of what it does."""
        return []

    def needs(self) -> set[str]:
        """The names of what others make, but for the streams that are always there."""
        found = {name.partition(".")[0] for name in self.references()}
        return {name for name in found if not is_default(name)}

    def bare(self) -> set[str]:
        """The streams that it names by their handles alone."""
        return {name.partition(".")[0] for name in self.references() if "." in name}

    def references(self) -> list[str]:
        """What it says of what others make."""
        found: list[str] = []
        for name, by_steps in _about(type(self)):
            value = getattr(self, name)
            if by_steps:
                for part in value if isinstance(value, tuple) else (value,):
                    found += part.references()
            elif value and isinstance(value, str):
                found.append(value)
        return found

    def library_used(self) -> str | None:
        """Name the library that does something in this step."""
        return getattr(self, "library", None)


def plain(kind: str, says: str, doc: str, /, **wanted: Any) -> Any:
    """Make a kind of step that is written down with its fields as they are.

    A field is a type, or what it is where nothing is said, which is the simplest as well.
    """
    simplest = {one: value for one, value in wanted.items() if not isinstance(value, type)}
    made = [
        (one, type(value), field(default=value)) if one in simplest else (one, value)
        for one, value in wanted.items()
    ]
    about = {"says": says, "simplest": simplest, "__doc__": doc}
    step = make_dataclass(kind, made, bases=(Step,), frozen=True, namespace=about)
    step.__module__ = f"{__package__}.steps"  # where it is found again by its name
    return step
