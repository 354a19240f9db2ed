"""What all steps of a program have, and the words that they are written in.

Streams are named by their library: `t1` torch, `c2` CuPy, `n3` Numba, `w4` Warp. JAX and tvm-ffi
work on one that has no name here: JAX on its own, tvm-ffi on the legacy default stream.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import ClassVar

from ..soak import step as simulated

LIBRARIES = ("torch", "cupy", "numba", "jax", "tvm_ffi", "warp")
OF_STREAM = {"t": "torch", "c": "cupy", "n": "numba", "w": "warp"}
HAVE_CURRENT = ("torch", "cupy", "warp")
"""The libraries that have a current stream, which one sets."""
REFERENCES = {"source", "stream", "at", "back", "current", "view", "array", "what"}

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

Argument = str | None


@dataclass(frozen=True)
class Step(simulated.Step):
    """One statement of one thread."""

    thread: int = field(default=0, kw_only=True)
    simplest: ClassVar[dict[str, object]] = {}

    def needs(self) -> set[str]:
        found = {getattr(self, one.name) for one in fields(self) if one.name in REFERENCES}
        return {name.partition(".")[0] for name in found if name}

    def named(self) -> set[str | None]:
        """Give the names that reads of this step are known by, too."""
        return {self.makes()}

    def library_used(self) -> str | None:
        """Name the library that does something in this step."""
        return getattr(self, "library", None)


def stream_of(argument: Argument) -> str | None:
    """Name the stream that an argument is about."""
    return None if argument is None else argument.partition(".")[0]


def is_handle(argument: Argument) -> bool:
    return argument is not None and argument.endswith(".handle")


def said(argument: Argument) -> str:
    """Write a ``stream=`` argument: the object, or the bare handle."""
    name = stream_of(argument)
    if name is None or not is_handle(argument):
        return str(name)
    word = {"torch": "{}.cuda_stream", "cupy": "{}.ptr", "numba": "int({})"}
    word["warp"] = "{}.cuda_stream"
    return word[OF_STREAM[name[0]]].format(name)


def inside(*streams: str | None) -> str:
    """Write the ``with`` that makes streams the current ones of their libraries."""
    words = {"t": "torch.cuda.stream({})", "c": "{}", "w": "wp.ScopedStream({})"}
    found = [words[name[0]].format(name) for name in streams if name and name[0] in words]
    return f"with {', '.join(found)}: " if found else ""


def late(spin: float, stream: str | None) -> str:
    """Write the kernel that holds the work behind it back."""
    return f"spin({stream or 'legacy'}, {spin} ms); " if spin else ""
