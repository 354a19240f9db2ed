"""The steps that are about the bridge: hand-overs, consumers, and the end of things."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .step import Argument, Step


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
class Copy(Step):
    """A capsule with a copy of a view's array."""

    name: str
    source: str
    stream: Argument = None
    versioned: bool = True

    def __str__(self) -> str:
        version = ", max_version=(1, 3)" if self.versioned else ""
        return f"{self.name} = {self.source}.__dlpack__(stream={self.stream}, copy=True{version})"


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
class Attempt(Step):
    """A step with a call of the driver made to fail.

    Whatever comes of a hand-over is dropped; a release that fails is made once more.
    """

    step: ToCai | FromCai | Export | Release
    call: str
    nth: int
    error: str
    simplest: ClassVar = {"nth": 1, "error": "CUDA_ERROR_OUT_OF_MEMORY"}

    def makes(self) -> None:
        return None

    def __str__(self) -> str:
        made = str(self.step).replace(f"{self.step.makes()} = ", "")
        return f"cuda.fail({self.call!r}, {self.nth}, {self.error!r}); try: {made}"
