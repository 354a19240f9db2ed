"""The steps that are about the bridge: hand-overs, consumers, and the end of things."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .step import Argument, Step, arguments, is_handle, plain, written


@dataclass(frozen=True)
class ToCai(Step):
    """A view for a consumer.

    `at` is current in the exporter's library where each has a current stream of its own; `current`
    too, for a consumer's bare handle. On the simulated device `current` is that of all libraries.
    """

    name: str
    source: str
    stream: Argument = None
    readonly: bool | None = None
    current: str | None = None
    # By `convert`, which takes the array in before it asks whom it is for.
    converts: bool = False
    at: str | None = None
    # "capsule" or "versioned", where the exporter is asked for one ready on the legacy stream.
    by: str = ""
    simplest: ClassVar = {"readonly": None, "current": None, "converts": False, "by": ""}

    def statement(self) -> str:
        version = "" if self.by == "capsule" else ", max_version=(1, 0)"
        source = f"{self.source}.__dlpack__(stream=1{version})" if self.by else self.source
        call, to = ("convert", ", 'cai'") if self.converts else ("to_cai", "")
        said = arguments(stream=self.stream, readonly=self.readonly)
        return f"{self.name} = {call}({source}{to}{said})"


@dataclass(frozen=True)
class FromCai(Step):
    """A view for DLPack. `stream` declares the producer's; `as_dict` hands in the dict alone."""

    name: str
    source: str
    stream: Argument = None
    readonly: bool | None = None
    current: str | None = None
    as_dict: bool = False
    device: int | None = None
    at: str | None = None
    simplest: ClassVar = {"readonly": None, "current": None, "as_dict": False, "device": None}

    def statement(self) -> str:
        source = self.source
        if self.as_dict:
            source = f"{source}.__cuda_array_interface__, owner={source}"
        said = arguments(stream=self.stream, readonly=self.readonly)
        device = "" if self.device is None else f", device=(2, {self.device})"
        return f"{self.name} = from_cai({source}{said}{device})"


@dataclass(frozen=True)
class Export(Step):
    """A capsule that nobody has consumed yet, of an array or of a view; perhaps nobody does."""

    name: str
    source: str
    stream: Argument = None
    versioned: bool = True
    current: str | None = None
    device: int | None = None
    simplest: ClassVar = {"current": None, "device": None}
    more: ClassVar[str] = ""

    def statement(self) -> str:
        said = f"stream={written(self.stream)}{self.more}"
        said += ", max_version=(1, 0)" if self.versioned else ""
        said += "" if self.device is None else f", dl_device=(2, {self.device})"
        return f"{self.name} = {self.source}.__dlpack__({said})"


@dataclass(frozen=True)
class Copy(Export):
    """A capsule with a copy of a view's array."""

    more: ClassVar[str] = ", copy=True"


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

    def statement(self) -> str:
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
        return f"{self.name} = {made}" + (f"  # {', '.join(given)}" if given else "")


@dataclass(frozen=True)
class Take(Step):
    """A library takes a view or a capsule over; all its work is queued on `stream`."""

    name: str
    source: str
    library: str
    how: str
    stream: str | None = None

    def within(self) -> tuple[str | None, ...]:
        return (self.stream,)

    def statement(self) -> str:
        source, stream = self.source, self.stream
        module = "jax.dlpack" if self.library == "jax" else self.library
        made = {
            "asarray": f"cupy.asarray({source})",
            "memory": f"ndarray_over(UnownedMemory({source}.ptr, owner={source}))",
            "array": f"wp.array(data={source}, dtype=wp.float32, copy=False)",
            "as_tensor": f"torch.as_tensor({source}, device='cuda')",
            "as_cuda_array": f"cuda.as_cuda_array({source})",
            "no_sync": f"cuda.as_cuda_array({source}, sync=False)",
            "argument": f"{source}  # for kernels on {stream}",
            "from_dlpack": f"{module}.from_dlpack({source})",
            "asked": f"{module}.from_dlpack({source} asked with {stream})",
            "convert": f"convert({source}, {self.library})",
            "capsule": f"{module}.from_dlpack({source})",
        }[self.how]
        return f"{self.name} = {made}"


Relay = plain(
    "Relay",
    "{name} = Relay({source}, {stream}, speaks={speaks!r})",
    "A library's array of a capsule, which works on a stream of its own and speaks on its own.",
    name=str,
    source=str,
    stream=str,
    speaks="cai3",
)
Adopt = plain(
    "Adopt",
    "{name} = exchange_table(DLPackView).import(take({source}))",
    "A tensor out of a capsule becomes a view by `managed_tensor_to_py_object_no_sync`.",
    name=str,
    source=str,
)
ToHost = plain(
    "ToHost",
    "{name} = numpy.from_dlpack({source}.__dlpack__(dl_device=(1, 0)))",
    "A copy of a view's array in the host's memory, read at once.",
    name=str,
    source=str,
)

# --- the end of things ----------------------------------------------------------------------------

PLACES = {
    "thread": "in another thread: ",
    "native": "in a thread of C's own: ",
    "unlocked": "without the interpreter's lock: ",
}


@dataclass(frozen=True)
class Release(Step):
    """A view is released, or (`how` is "with") its block ends; maybe in a thread of its own."""

    view: str
    stream: Argument = None
    how: str = "release"
    elsewhere: bool = False
    current: str | None = None
    simplest: ClassVar = {"elsewhere": False, "how": "release", "stream": None, "current": None}

    def statement(self) -> str:
        said = "" if self.stream is None else written(self.stream)
        made = f"with {self.view}: pass" if self.how == "with" else f"{self.view}.release({said})"
        return f"{PLACES['thread']}{made}" if self.elsewhere else made


@dataclass(frozen=True)
class Drop(Step):
    """The program lets go of something; of a consumer's work, of what the consumer took in."""

    what: str
    how: str | None = None
    current: str | None = None
    simplest: ClassVar = {"how": None, "current": None}

    def statement(self) -> str:
        made = f"{self.what}.release()" if self.what[0] == "p" else f"del {self.what}"
        return PLACES.get(str(self.how), "") + made


@dataclass(frozen=True)
class Cycle(Step):
    """The program loses something (and, of a view, its owner's array) in a reference cycle."""

    what: str
    through_owner: bool = False
    simplest: ClassVar = {"through_owner": False}

    def statement(self) -> str:
        if self.through_owner:
            return f"{self.what}.owner.mine = {self.what}; del {self.what}, and the array"
        return f"box = [{self.what}]; box.append(box); del box, {self.what}"


Collect = plain("Collect", "gc.collect()", "Python's collector runs.")
Look = plain(
    "Look",
    "from_cai(nothing).release()",
    "A later call of the bridge, which ends what waited for a consumer to be done.",
)


@dataclass(frozen=True)
class Refusal(Step):
    """A step that a graph capture is in the way of: it is refused, and all is as before."""

    step: Step
    says: ClassVar[str] = "with pytest.raises(DriverError): {tried}"

    def makes(self) -> None:
        return None

    def statement(self) -> str:
        tried = str(self.step).replace(f"{self.step.makes()} = ", "")
        return self.says.format(tried=tried, **vars(self))


@dataclass(frozen=True)
class Attempt(Refusal):
    """A step with a call of the driver made to fail.

    Whatever comes of a hand-over is dropped; a release that fails is made once more.
    """

    call: str
    nth: int
    error: str
    simplest: ClassVar = {"nth": 1, "error": "CUDA_ERROR_OUT_OF_MEMORY"}
    says: ClassVar[str] = "cuda.fail({call!r}, {nth}, {error!r}); try: {tried}"

    def simpler(self) -> list[Step]:
        return [self.step]


def spoken(step: ToCai | FromCai | Export) -> str:
    """Name a call and how its stream was given, for the counts of routes."""
    call = {ToCai: "to_cai", FromCai: "from_cai", Export: "__dlpack__"}[type(step)]
    if isinstance(step, ToCai) and step.by:
        call = "capsule.to_cai"
    if isinstance(step, FromCai) and step.as_dict:
        call = "dict.from_cai"
    if step.stream is None:
        return call
    return f"{call}({'handle' if is_handle(step.stream) else 'object'})"
