"""What a program consists of: small frozen records that print as the Python that they stand for.

Objects are named by a letter and a number: `x` arrays, `y` arrays that a library made of what it
was handed, `v` views, `k` capsules, `p` and `r` reads and writes, `g` graphs. Streams are named by
whose they are: `s1` of the program on the simulated device, where `L0` and `T0` are the legacy and
the per-thread default stream of device 0; `t1` torch's, `c2` CuPy's, `n3` Numba's, `w4` Warp's. JAX
and tvm-ffi work on one that has no name here: JAX on its own, tvm-ffi on the legacy default stream.
A ``stream=`` argument is None, -1, a stream's name for the object, or the name with ``.handle`` for
the bare integer, or with ``.external`` for an object around the handle that owns no stream.

A room draws the steps that it has a method for, and the command says which it has not.
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
    return argument.partition(".")[0] if isinstance(argument, str) else None


def is_handle(argument: Argument) -> bool:
    return isinstance(argument, str) and argument.endswith(".handle")


def is_default(stream: str) -> bool:
    """Whether a stream is there from the beginning."""
    return stream[0] in "LT"


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
    written down. What a field is by default is the simplest that it can be.
    """

    thread: int = field(default=0, kw_only=True)
    says: ClassVar[str] = ""

    def __str__(self) -> str:
        return inside(*self.within()) + self.statement()

    def statement(self) -> str:
        return self.says.format_map(vars(self))

    def method(self, room: Any) -> Any:
        return getattr(room, method_of(type(self)))

    def within(self) -> tuple[str | None, ...]:
        """List the streams that are current as it runs."""
        return getattr(self, "at", None), getattr(self, "current", None)

    def makes(self) -> str | None:
        return getattr(self, "name", None)

    def names(self) -> set[str]:
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
        return getattr(self, "library", None)


def plain(kind: str, says: str, doc: str, /, **wanted: Any) -> Any:
    """Make a kind of step that is written down with its fields as they are.

    A field is a type, or what it is where nothing is said, which is the simplest as well.
    """
    made = [
        (one, value) if isinstance(value, type) else (one, type(value), field(default=value))
        for one, value in wanted.items()
    ]
    about = {"says": says, "__doc__": doc}
    step = make_dataclass(kind, made, bases=(Step,), frozen=True, namespace=about)
    step.__module__ = __name__  # where it is found again by its name
    return step


@dataclass(frozen=True)
class NewStream(Step):
    """A stream of a library, or (of "cuda") of the program, perhaps with a dead one's handle."""

    name: str
    library: str
    kind: str
    device: int = 0
    again: str | None = None

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

    def statement(self) -> str:
        made = f"{self.what}.release()" if self.what[0] == "p" else f"del {self.what}"
        return PLACES.get(str(self.how), "") + made


@dataclass(frozen=True)
class Cycle(Step):
    """The program loses something (and, of a view, its owner's array) in a reference cycle."""

    what: str
    through_owner: bool = False

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
    nth: int = 1
    error: str = "CUDA_ERROR_OUT_OF_MEMORY"
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


DOES = ("write", "new", "both")
LIKE = "like"


@dataclass(frozen=True)
class Tree(Step):
    """Several arrays and views go through one `convert`, for one consumer.

    With `host` there is an array of the host's among them, which stays as it is.
    """

    parts: tuple[ToCai, ...]
    host: bool = False

    def names(self) -> set[str]:
        return {part.name for part in self.parts}

    def simpler(self) -> list[Step]:
        return [*self.parts, *(Tree((self.parts[0], other)) for other in self.parts[1:-1])]

    def within(self) -> tuple[str | None, ...]:
        return (self.parts[0].current,)

    def statement(self) -> str:
        first = self.parts[0]
        to, of = (", ".join(getattr(p, n) for p in self.parts) for n in ("name", "source"))
        said = arguments(stream=first.stream, readonly=first.readonly)
        of += ", host" if self.host else ""
        to += ", same" if self.host else ""
        return f"{to} = convert([{of}], 'cai'{said})"


@dataclass(frozen=True)
class Call(Step):
    """A function that takes its array by `adapt` is called; it works once, and may keep its view.

    `how` is what becomes of the view: None, "keeps", "returns", "raises", or "keeps and raises".
    """

    taken: ToCai
    work: Consume
    how: str | None = None

    @property
    def keeps(self) -> bool:
        return self.how not in {None, "raises"}

    def makes(self) -> str | None:
        return self.taken.name if self.keeps else None

    def names(self) -> set[str]:
        return {self.taken.name, self.work.name}

    def needs(self) -> set[str]:
        return super().needs() - self.names()

    def simpler(self) -> list[Step]:
        return [self.taken]

    def within(self) -> tuple[str | None, ...]:
        return (self.taken.current,)

    def statement(self) -> str:
        taken, after = self.taken, f"  # {self.taken.name}: the function {self.how} it"
        stream = written(taken.stream)
        made = f"adapt(lambda {taken.name}: {self.work}, stream={stream})({taken.source})"
        return made + (after if self.how else "")


@dataclass(frozen=True)
class CallLibrary(Step):
    """A function of `library`'s arrays is given an array of another one; nobody names a stream.

    It copies what it is given, late, as the read `read`. Then it writes `value` in place ("write"),
    returns a new array of `fresh` values ("new"), or does and returns both. What it returns comes
    back as `returns` says, usable on `back`: the new array as `name`, the given one for the read
    `again`, at once.

    `stream` is what the function's library works on, and `at` is current in the exporter's.
    """

    name: str | None
    source: str
    library: str
    stream: str | None
    read: str
    does: str = "write"
    returns: str = LIKE
    back: str | None = None
    value: int = 0
    fresh: int = 0
    again: str = ""
    at: str | None = None
    readonly: bool | None = None
    spin: float = 0.0

    @property
    def writes(self) -> bool:
        return self.does in {"write", "both"}

    def named(self) -> set[str | None]:
        return {self.name, self.read, self.again}

    def within(self) -> tuple[str | None, ...]:
        return self.at, self.stream, self.back

    def statement(self) -> str:
        work = [f"{late(self.spin, 'its')}{self.read} = copy(a)"]
        work += [f"fill(a, {self.value})"] if self.writes else []
        gives = {"write": "None", "new": "new", "both": "(a, new)"}[self.does]
        work += [] if self.does == "write" else [f"new = full({self.fresh})"]
        options = "" if self.returns == LIKE else f", returns={self.returns!r}"
        options += arguments(readonly=self.readonly)
        made = {"write": "", "new": f"{self.name} = ", "both": f"same, {self.name} = "}[self.does]
        after = f"; {self.again} = copy(same); del same" if self.does == "both" else ""
        function = f"lambda a: ({'; '.join(work)}; {gives})"
        return f"{made}adapt({function}, {self.library!r}{options})({self.source}){after}"


STEPS = frozenset(
    kind
    for kind in globals().values()
    if isinstance(kind, type) and issubclass(kind, Step) and kind is not Step
)
Steps = tuple[Step, ...]


def expressed(*rooms: Any) -> frozenset[type[Step]]:
    """List the steps that all of these have a method for, of the step's name."""
    return frozenset(one for one in STEPS if all(hasattr(room, method_of(one)) for room in rooms))


def listing(program: Steps) -> str:
    """Write a program down, one step a line."""
    lines = []
    depth = 1
    for step in program:
        depth -= isinstance(step, End)
        lines.append("    " * depth + str(step))
        depth += isinstance(step, Begin)
    return "\n".join(["with simulated_cuda(devices=2) as cuda:", *lines])
