"""The steps that are about the bridge: hand-overs, consumers, and the end of things."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .step import Argument, Step, within


@dataclass(frozen=True)
class ToCai(Step):
    name: str
    source: str
    stream: Argument = None
    readonly: bool | None = None
    current: str | None = None
    # By `convert`, which takes the array in before it asks whom it is for.
    converts: bool = False
    simplest: ClassVar = {"readonly": None, "current": None, "converts": False}

    def __str__(self) -> str:
        readonly = "" if self.readonly is None else f", readonly={self.readonly}"
        call, to = ("convert", ", 'cai'") if self.converts else ("to_cai", "")
        made = f"{self.name} = {call}({self.source}{to}, stream={self.stream}{readonly})"
        return within(self.current, made)


@dataclass(frozen=True)
class FromCai(Step):
    name: str
    source: str
    stream: Argument = None
    readonly: bool | None = None
    current: str | None = None
    as_dict: bool = False
    device: int | None = None
    simplest: ClassVar = {"readonly": None, "current": None, "as_dict": False, "device": None}

    def __str__(self) -> str:
        source = self.source
        if self.as_dict:
            source = f"{source}.__cuda_array_interface__, owner={source}"
        readonly = "" if self.readonly is None else f", readonly={self.readonly}"
        device = "" if self.device is None else f", device=(2, {self.device})"
        made = f"{self.name} = from_cai({source}, stream={self.stream}{readonly}{device})"
        return within(self.current, made)


@dataclass(frozen=True)
class Export(Step):
    """A capsule that nobody has consumed yet, of an array or of a view."""

    name: str
    source: str
    stream: Argument = None
    versioned: bool = True
    current: str | None = None
    device: int | None = None
    simplest: ClassVar = {"current": None, "device": None}

    def __str__(self) -> str:
        said = f"stream={self.stream}{asked(self.versioned, self.device)}"
        return within(self.current, f"{self.name} = {self.source}.__dlpack__({said})")


@dataclass(frozen=True)
class Copy(Step):
    """A capsule with a copy of a view's array."""

    name: str
    source: str
    stream: Argument = None
    versioned: bool = True
    current: str | None = None
    device: int | None = None
    simplest: ClassVar = {"current": None, "device": None}

    def __str__(self) -> str:
        said = f"stream={self.stream}, copy=True{asked(self.versioned, self.device)}"
        return within(self.current, f"{self.name} = {self.source}.__dlpack__({said})")


def asked(versioned: bool, device: int | None) -> str:
    """Write what a consumer asks for beside its stream."""
    version = ", max_version=(1, 3)" if versioned else ""
    return version if device is None else f"{version}, dl_device=(2, {device})"


@dataclass(frozen=True)
class ToHost(Step):
    """A copy of a view's array in the host's memory, read at once."""

    name: str
    source: str

    def __str__(self) -> str:
        return f"{self.name} = numpy.from_dlpack({self.source}.__dlpack__(dl_device=(1, 0)))"


@dataclass(frozen=True)
class Consume(Step):
    """A consumer takes a view or a capsule in, and reads it or (with a value) writes it."""

    name: str
    source: str
    kind: str
    stream: str
    value: int | None = None
    as_object: bool = False
    # The tensor is taken out of its capsule by hand, so that any thread can delete it.
    by_hand: bool = False
    current: str | None = None
    device: int | None = None
    simplest: ClassVar = {
        "value": None,
        "as_object": False,
        "by_hand": False,
        "current": None,
        "device": None,
    }

    def __str__(self) -> str:
        work = "read(" if self.value is None else "write("
        value = "" if self.value is None else f", {self.value}"
        made = f"cuda.consumer({self.kind!r}, {self.stream}).{work}{self.source}{value})"
        if self.kind == "address":
            address = f"with cuda.current_stream({self.stream}): {self.source}.ptr"
            made = f"{self.stream}.{work}{self.source}{value})  # after {address}"
        if self.by_hand:
            made = f"{self.stream}.{work}take({self.source}){value})"
        given = ["asking with the stream object"] if self.as_object else []
        given += [] if self.device is None else [f"for dl_device=(2, {self.device})"]
        made = f"{self.name} = {made}" + (f"  # {', '.join(given)}" if given else "")
        return within(self.current, made)


@dataclass(frozen=True)
class Relay(Step):
    """A library's array of a capsule, which works on a stream of its own and speaks on its own."""

    name: str
    source: str
    stream: str
    speaks: str = "cai3"
    simplest: ClassVar = {"speaks": "cai3"}

    def __str__(self) -> str:
        return f"{self.name} = Relay({self.source}, {self.stream}, speaks={self.speaks!r})"


@dataclass(frozen=True)
class Adopt(Step):
    """A tensor out of a capsule becomes a view by `managed_tensor_to_py_object_no_sync`."""

    name: str
    source: str

    def __str__(self) -> str:
        return f"{self.name} = exchange_table(DLPackView).import(take({self.source}))"


@dataclass(frozen=True)
class Release(Step):
    """A view is released, or (`how` is "with") its block ends."""

    view: str
    stream: Argument = None
    how: str = "release"
    thread: bool = False
    current: str | None = None
    simplest: ClassVar = {"thread": False, "how": "release", "stream": None, "current": None}

    def __str__(self) -> str:
        said = "" if self.stream is None else f"stream={self.stream}"
        made = f"with {self.view}: pass" if self.how == "with" else f"{self.view}.release({said})"
        return within(self.current, f"in another thread: {made}" if self.thread else made)


PLACES = {
    "thread": "in another thread: ",
    "native": "in a thread of C's own: ",
    "unlocked": "without the interpreter's lock: ",
}


@dataclass(frozen=True)
class Drop(Step):
    """The program lets go of something; of a consumer's work, of what the consumer took in."""

    what: str
    how: str | None = None
    current: str | None = None
    simplest: ClassVar = {"how": None, "current": None}

    def __str__(self) -> str:
        made = f"{self.what}.release()" if self.what[0] == "p" else f"del {self.what}"
        return within(self.current, PLACES.get(str(self.how), "") + made)


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

    step: ToCai | FromCai | Export | Release | Drop
    call: str
    nth: int
    error: str
    simplest: ClassVar = {"nth": 1, "error": "CUDA_ERROR_OUT_OF_MEMORY"}

    def makes(self) -> None:
        return None

    def simpler(self) -> list[Step]:
        return [self.step]

    def __str__(self) -> str:
        made = str(self.step).replace(f"{self.step.makes()} = ", "")
        return f"cuda.fail({self.call!r}, {self.nth}, {self.error!r}); try: {made}"


@dataclass(frozen=True)
class Refusal(Step):
    """A step that a graph capture is in the way of: it is refused, and all is as before."""

    step: ToCai | FromCai | Export | Release

    def makes(self) -> None:
        return None

    def __str__(self) -> str:
        made = str(self.step).replace(f"{self.step.makes()} = ", "")
        return f"with pytest.raises(DriverError): {made}"
