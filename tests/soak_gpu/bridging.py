"""The steps that are about the bridge: views, consumers, and the end of things."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .step import Argument, Step, inside, said, stream_of


@dataclass(frozen=True)
class ToCai(Step):
    """`at` is current in the exporter's library; `current` too, for a consumer's bare handle.

    `by` is "capsule" where the exporter is asked for a capsule ready on the legacy default stream.
    """

    name: str
    source: str
    stream: Argument = None
    at: str | None = None
    current: str | None = None
    by: str = ""
    readonly: bool | None = None
    simplest: ClassVar = {"thread": 0, "current": None, "by": ""}

    def __str__(self) -> str:
        version = "" if self.by == "capsule" else ", max_version=(1, 0)"
        source = f"{self.source}.__dlpack__(stream=1{version})" if self.by else self.source
        arguments = "" if self.stream is None else f", stream={said(self.stream)}"
        arguments += "" if self.readonly is None else f", readonly={self.readonly}"
        return f"{inside(self.at, self.current)}{self.name} = to_cai({source}{arguments})"


@dataclass(frozen=True)
class FromCai(Step):
    """`stream` declares the producer's; `as_dict` hands in the dict, with its owner beside it."""

    name: str
    source: str
    stream: Argument = None
    at: str | None = None
    as_dict: bool = False
    readonly: bool | None = None
    simplest: ClassVar = {"thread": 0, "as_dict": False}

    def __str__(self) -> str:
        source = self.source
        if self.as_dict:
            source = f"{source}.__cuda_array_interface__, owner={source}"
        arguments = "" if self.stream is None else f", stream={said(self.stream)}"
        arguments += "" if self.readonly is None else f", readonly={self.readonly}"
        return f"{inside(self.at)}{self.name} = from_cai({source}{arguments})"


@dataclass(frozen=True)
class Export(Step):
    """A capsule of a view, made for a stream that is named; perhaps nobody consumes it."""

    name: str
    view: str
    stream: str
    current: str | None = None
    versioned: bool = True
    simplest: ClassVar = {"thread": 0, "current": None}

    def __str__(self) -> str:
        version = ", max_version=(1, 0)" if self.versioned else ""
        made = f"{self.view}.__dlpack__(stream={said(self.stream)}{version})"
        return f"{inside(self.current)}{self.name} = {made}"


@dataclass(frozen=True)
class Take(Step):
    """A consumer takes a view or a capsule over; all its work is queued on `stream`."""

    name: str
    source: str
    library: str
    how: str
    stream: str | None = None

    def __str__(self) -> str:
        source, stream = self.source, self.stream
        made = {
            "asarray": f"cupy.asarray({source})",
            "memory": f"ndarray_over(UnownedMemory({source}.ptr, owner={source}))",
            "array": f"wp.array(data={source}, dtype=wp.float32, copy=False)",
            "as_tensor": f"torch.as_tensor({source}, device='cuda')",
            "as_cuda_array": f"cuda.as_cuda_array({source})",
            "no_sync": f"cuda.as_cuda_array({source}, sync=False)",
            "argument": f"{source}  # for kernels on {stream}",
            "from_dlpack": f"{_from_dlpack(self.library)}({source})",
            "asked": f"{_from_dlpack(self.library)}({source} asked with {stream})",
            "convert": f"convert({source}, {self.library})",
            "capsule": f"{_from_dlpack(self.library)}({source})",
        }[self.how]
        return f"{inside(stream)}{self.name} = {made}"


@dataclass(frozen=True)
class Release(Step):
    """A view is released, or (`how` is "with") its block ends."""

    view: str
    stream: Argument = None
    how: str = "release"
    elsewhere: bool = False
    simplest: ClassVar = {"thread": 0, "elsewhere": False, "how": "release"}

    def __str__(self) -> str:
        argument = "" if self.stream is None else said(self.stream)
        made = f"with {self.view}: pass" if self.how == "with" else f"{self.view}.release"
        made += "" if self.how == "with" else f"({argument})"
        return f"in a new thread: {made}" if self.elsewhere else made


@dataclass(frozen=True)
class Drop(Step):
    """The program lets go of a name."""

    what: str
    elsewhere: bool = False
    simplest: ClassVar = {"thread": 0, "elsewhere": False}

    def __str__(self) -> str:
        return f"in a new thread: del {self.what}" if self.elsewhere else f"del {self.what}"


@dataclass(frozen=True)
class Cycle(Step):
    """The program loses a name in a reference cycle."""

    what: str
    simplest: ClassVar = {"thread": 0}

    def __str__(self) -> str:
        return f"box = [{self.what}]; box.append(box); del box, {self.what}"


@dataclass(frozen=True)
class Collect(Step):
    def __str__(self) -> str:
        return "gc.collect()"


def _from_dlpack(library: str) -> str:
    return "jax.dlpack.from_dlpack" if library == "jax" else f"{library}.from_dlpack"


def spoken(step: ToCai | FromCai | Export) -> str:
    """Name a call and how its stream was given, for the counts of routes."""
    call = {ToCai: "to_cai", FromCai: "from_cai", Export: "__dlpack__"}[type(step)]
    if isinstance(step, ToCai) and step.by:
        call = "capsule.to_cai"
    if isinstance(step, FromCai) and step.as_dict:
        call = "dict.from_cai"
    if stream_of(step.stream) is None:
        return call
    return f"{call}({'handle' if step.stream != stream_of(step.stream) else 'object'})"
