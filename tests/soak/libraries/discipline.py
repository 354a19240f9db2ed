"""Which programs are right, by what the bridge promises.

Memory of a producer has a tree of handles: its array at the root, and below each array what was
made of it through the bridge.

- An array has one stream, that of its library which was current, or given, when it was made or
  taken over. All its work is queued there.
- Handing over gives the right to work after all that the parent comes after. That holds from the
  moment when the wait is made: `to_cai(x, stream=s)`, a capsule made for a stream, and a producer
  that only speaks ``__dlpack__`` make it at once; a view that names the producer's own stream makes
  it when somebody takes over.
- A read must come after every write, a write after every access: it has the only handle that is
  used, until it is given back. Several readers side by side are fine.
- A handle gives back when nothing keeps it, or when its view is released. What its parent queues
  from then on comes after its work. Where the bridge does not know the parent's stream (a producer
  that only speaks ``__dlpack__``, a capsule) the legacy default stream stands in for it: that
  orders a parent on a default or a blocking stream, and nobody else before the host has waited. It
  lets go of the parent when the consumer's work is done, so that what the parent itself gives back
  comes at some later moment. If others have the memory through the bridge already, which knows them
  by its address, it keeps them as long as that handle.
- `convert` makes Numba's arrays for its default stream, which stands for the blocking ones that it
  may work on as well, but not for the producer's stream at the same time: no wait would be made.
- A function that is called by `adapt` is given an array of its library, which gives back when the
  call has returned, or, where it comes back itself, when that array ends. A new array is of the
  function's library, and is handed over as any other; it ends with what it came back as.
- When the last handle is gone, the producer's allocator may use the memory again at once.
- A program of the manner "unsaid" names no stream. A consumer of a dict works on the stream that is
  its library's current one when it takes over; the bridge notes it there. Views are dropped while
  that is still so, or at any other time.
- In the manner "handles" a stream is a number. One of torch's pools, a default stream or a blocking
  one is known at the end; a non-blocking one of CuPy's only where it is CuPy's current stream at
  the hand-over, or at the end. Elsewhere the bridge promises a warning, so the host waits first.
- What the host has waited for is over for every stream.

- Python's collector may clear arrays of CuPy, Numba and Warp before the views that hold them, where
  only garbage refers to both; so no array of theirs becomes garbage together with what keeps it. A
  view that is garbage does not ask them for their stream any more: the legacy default one stands
  in.

Habits of libraries, which are not the bridge's to mend: JAX's arrays are never written, and JAX
lets go of what it took over when it next gets to it, so only the host can tell when it has read.
A Numba array that was taken over from a dict exports that dict's stream, whichever it is worked on.
JAX takes read-only memory only where `readonly=False` vouches for it, `torch.as_tensor` and Warp
never. Warp frees memory on its current stream, which is that of all threads: it has one stream, in
programs of one thread.

Threads run side by side. What one does counts for another once the two have met (see `handles`).
"""

from __future__ import annotations

from ..program import Program, Refused, wants
from ..steps import (
    HAVE_CURRENT,
    LIKE,
    CallLibrary,
    Export,
    FromCai,
    Step,
    Take,
    ToCai,
    ToHost,
    is_handle,
    stream_of,
)
from .ends import PRODUCERS, Account
from .handles import Access, Block, Clock, Knowledge, Lease, Thing, join, library_of

KNOWN_STREAM = {"torch", "tvm_ffi", "numba"}

"""The libraries whose arrays name the stream that is to wait at an end."""

NAMELESS = {"jax", "tvm_ffi"}

"""Those whose stream has no name here."""

SPEAK_CAI = {"torch", "cupy", "numba"}

OF_DICTS = {
    "torch": {"as_tensor"},
    "cupy": {"asarray", "memory"},
    "numba": {"as_cuda_array", "no_sync", "argument"},
    "warp": {"array"},
}

OF_TENSORS = {
    "torch": {"from_dlpack", "asked", "capsule", "convert"},
    "cupy": {"from_dlpack", "asked", "capsule", "convert"},
    "numba": {"convert"},
    "jax": {"from_dlpack", "convert"},
    "tvm_ffi": {"from_dlpack", "convert"},
    "warp": {"from_dlpack", "convert"},
}


class Discipline(Account):
    """The account of a program; `take` refuses a step that makes it wrong."""

    def _calllibrary(self, step: CallLibrary, now: Clock) -> None:
        source = self.find(step.source, now)
        wants(source.kind == "array" and not source.spent)
        self._is_exporting(source, step.at, step.thread)
        wants(source.library != step.library, "it is the library's own")
        self._has_name(step.stream, step.library)
        wants(step.does == "new" or step.library != "jax", "JAX's arrays are never written")
        wants(step.does == "write" or step.library in PRODUCERS)
        wants(not step.writes or not source.frozen, "JAX's arrays are never written")
        wants((step.readonly is False) == (source.library == "jax"))
        library = self._back_as(step, source)
        given = self._handed("", source, step.library, step.stream, now)
        jax = [one for one in self.alive if one.block is source.block and one.library == "jax"]
        wants(not (step.writes and jax), "JAX has it")
        self._may_work(given, now, write=step.writes)
        # From here on nothing is refused.
        source.used = join(source.used, now)
        self._passing(given, now)
        self._queue(given, now, write=False)
        self.expected[step.read] = source.block.value
        if step.writes:
            self._queue(given, now, write=True)
            source.block.value = step.value
        if step.does == "both":
            same = given
            if library != step.library:
                same = self._passing(self._handed("", given, library, step.back, now), now)
            self._queue(same, now, write=False)
            self.expected[step.again] = step.value
        if step.does != "write":
            self._made(step, source, library, now)
        self._settle()

    def _back_as(self, step: CallLibrary, source: Thing) -> str:
        """Tell the library of what comes back; refuses a stream that is not its."""
        library = source.library if step.returns == LIKE else step.returns
        # JAX's arrays are read-only, and refused by those who would write.
        wants(step.library != "jax" or step.does == "write" or library == "jax")
        wants((step.name is None) == (step.does == "write"))
        if step.does == "write":
            wants(step.back is None)
        elif library == step.library:
            wants(step.back == step.stream)
        else:
            self._has_name(step.back, library)
            # There is one current stream of a library.
            current = library != source.library or library not in HAVE_CURRENT
            wants(current or step.back == source.stream)
        return library

    def _has_name(self, stream: str | None, library: str) -> None:
        wants((stream is None) == (library in NAMELESS))
        wants(stream is None or (stream in self.kinds and library_of(stream) == library))

    def _handed(
        self, name: str, source: Thing, library: str, stream: str | None, now: Clock
    ) -> Thing:
        """Give what `convert` makes of an array, with nothing named."""
        made = Thing(name, "array", source.block, library, stream, now)
        back = "source" if source.library in KNOWN_STREAM else "legacy"
        made.source, made.lease = source, Lease(source, "never" if library == "jax" else back)
        made.keeps = [source, *self._found(source, back)]
        made.knows = source.knows.passed_on(now)
        made.frozen = source.frozen or library == "jax"
        made.names_its_stream = library != "numba"
        return made

    def _passing(self, thing: Thing, now: Clock) -> Thing:
        """Add what goes by the end of the step, unless something keeps it."""
        thing.used = thing.dropped = now
        thing.named = False
        self.alive.append(thing)
        return thing

    def _made(self, step: CallLibrary, source: Thing, library: str, now: Clock) -> None:
        own = library == step.library
        root = step.name or ""
        block = Block(
            root if own else "", step.library, step.stream, source.block.words, step.fresh
        )
        new = Thing(root if own else "", "array", block, step.library, step.stream, now)
        new.frozen = step.library == "jax"
        access = len(self.accesses)
        self.accesses.append(Access(True, now))
        block.accesses.append(access)
        new.knows.add(access, now)
        if own:
            self.add(new)
        else:
            self._passing(new, now)
            self.add(self._handed(root, new, library, step.back, now))

    def _is_exporting(self, array: Thing, at: str | None, thread: int) -> None:
        """The exporter names its library's current stream, which must be the array's."""
        wants(array.names_its_stream, "its dict names another stream")
        if array.library not in HAVE_CURRENT:
            wants(at is None)
            return
        current = at or self.current(thread, array.stream[0])
        default = current is None and self.kinds[array.stream] == "default"
        wants(default or current == array.stream, "its stream is not the current one")

    def take(self, step: Step) -> None:
        """Add a step; after a refusal the account is as it was."""
        now = self.now(step.thread)
        step.method(self)(step, now)
        self.clocks[step.thread] = join(self.clocks[step.thread], now)

    def _tocai(self, step: ToCai, now: Clock) -> None:
        source = self._exporter(step, now, "dlpack")
        told = self._argument(step.stream)
        wants(step.current is None or step.current[0] == "c")
        live, back = source.live, "source"
        if source.kind == "array":
            wants(not step.by or source.library in {"torch", "cupy"})
            wants(step.current is None or source.library != "cupy")
            live = source.library in KNOWN_STREAM and not step.by
            back = "source" if live else "legacy"
        made = self._view("cai", step, source, back, now)
        made.live, made.told = live and told is None, told
        made.lease.covered = self._vouched(step.stream, step.thread, step.at, step.current)
        made.lease.current = told

    def _fromcai(self, step: FromCai, now: Clock) -> None:
        source = self._exporter(step, now, "cai")
        declared = self._argument(step.stream)
        if source.kind == "array":
            wants(source.library in SPEAK_CAI)
            wants(not step.as_dict or source.library != "torch")
            wants(declared in {None, source.stream})
        else:
            wants(declared is None and not step.as_dict)
        made = self._view("dlpack", step, source, "source", now)
        made.live = source.kind == "array" or source.live
        made.lease.by_handle |= step.as_dict or is_handle(step.stream)

    def _exporter(self, step: ToCai | FromCai, now: Clock, view: str) -> Thing:
        source = self.find(step.source, now)
        wants(source.kind in {"array", view} and not source.released and not source.spent)
        if source.kind == "array":
            self._is_exporting(source, step.at, step.thread)
        else:
            wants(step.at is None and not getattr(step, "by", ""))
        return source

    def _view(
        self, kind: str, step: ToCai | FromCai, source: Thing, back: str, now: Clock
    ) -> Thing:
        """Add a view. One over a view is for the same array, and gives back as that one does."""
        array = source if source.kind == "array" else source.source
        kept = [source, *self._found(source, back)] if source is array else [*source.keeps]
        made = Thing(step.name, kind, source.block, None, None, now, keeps=kept, source=array)
        made.lease = Lease(array, back if source is array else source.lease.back)
        made.lease.by_handle = source is not array and source.lease.by_handle
        made.knows = self._ready(source, now)
        made.frozen = source.frozen
        readonly = source.library == "jax" or source.readonly
        made.readonly = readonly if step.readonly is None else step.readonly
        source.used = join(source.used, now)
        return self.add(made)

    def _argument(self, argument: str | None) -> str | None:
        stream = stream_of(argument)
        if argument is not None:
            wants(stream in self.kinds and self.manner != "unsaid")
            wants((argument != stream) == (self.manner == "handles"))
        return stream

    def _ready(self, source: Thing, now: Clock) -> Knowledge:
        """Tell what somebody comes after who takes an array or a view over now."""
        return (source.source if source.live else source).knows.passed_on(now)

    def _export(self, step: Export, now: Clock) -> None:
        view = self.find(step.source, now)
        wants(view.kind == "dlpack" and not view.released)
        wants(step.versioned or not view.readonly)
        stream = self._argument(step.stream)
        wants(stream is not None and stream[0] in "tc")
        wants(step.current is None or step.current[0] == "c")
        made = Thing(step.name, "capsule", view.block, None, stream, now)
        made.source, made.frozen = view.source, view.frozen
        made.keeps, made.knows = [*view.keeps], self._ready(view, now)
        covered = self._vouched(step.stream, step.thread, step.current)
        made.lease = Lease(view.source, view.lease.back, covered, stream)
        view.used = join(view.used, now)
        self.add(made)

    def _take(self, step: Take, now: Clock) -> None:
        source = self.find(step.source, now)
        wants(source.kind in {"cai", "dlpack", "capsule"} and not source.released)
        wants((step.stream is None) == (step.library in {"jax", "tvm_ffi"}))
        wants(step.stream is None or library_of(step.stream) == step.library)
        made = Thing(step.name, "array", source.block, step.library, step.stream, now)
        made.frozen = source.frozen or step.library == "jax"
        if source.kind == "cai":
            self._by_dict(step, source, made)
            made.knows = self._ready(source, now)
        elif source.kind == "dlpack":
            wants(step.how in OF_TENSORS.get(step.library, ()) and step.how != "capsule")
            wants(step.how != "asked" or self.manner == "told")
            wants(step.library != "jax" or not source.readonly)
            # Warp asks for a capsule that cannot say that it is read-only.
            writes = step.library == "warp" or (step.how == "convert" and step.library != "jax")
            wants(not (writes and source.readonly))
            made.names_its_stream = step.library != "numba"
            back = "never" if step.library == "jax" else source.lease.back
            made.source, made.lease = source.source, Lease(source.source, back)
            made.lease.by_handle = source.lease.by_handle
            made.keeps, made.knows = [*source.keeps], self._ready(source, now)
        else:
            wants(step.how == "capsule" and not source.spent and step.stream == source.stream)
            made.source, made.lease, made.keeps = source.source, source.lease, source.keeps
            made.knows = source.knows.passed_on(now)
            source.lease, source.keeps, source.spent = None, [], True
        source.used = join(source.used, now)
        self.add(made)

    def _tohost(self, step: ToHost, now: Clock) -> None:
        """A copy for the CPU, which the host has waited for, comes after what consumers do."""
        view = self.find(step.source, now)
        wants(view.kind == "dlpack" and not view.released)
        reader = Thing(step.name, "array", view.block, None, None, now)
        reader.knows = self._ready(view, now)
        self._may_work(reader, now, write=False)
        self._queue(reader, now, write=False)
        self.accesses[-1].done.append(now)
        self.expected[step.name] = view.block.value
        view.used = join(view.used, now)

    def _by_dict(self, step: Take, view: Thing, made: Thing) -> None:
        wants(step.how in OF_DICTS.get(step.library, ()))
        if view.told is not None:
            wants(step.stream == view.told, "the view is for another stream")
        else:
            wants(step.how not in {"memory", "no_sync"}, "nobody waits")
            waits = step.library not in {"torch", "warp"}
            wants(waits or self.manner == "unsaid", "it does not wait")
        wants(step.library != "torch" or not view.readonly)
        if step.library == "numba":
            wants(step.how != "argument" or self.kinds[step.stream or ""] == "blocking")
            made.names_its_stream = step.how != "argument" and view.told == step.stream
        made.keeps, made.under = [view], view.lease
        view.lease.streams.add(step.stream)


def expected(program: Program) -> dict[str, int]:
    """Tell the value that each read must see; refuses a program that is not right."""
    account = Discipline(program.manner, program.threads)
    for step in program.steps:
        account.take(step)
    return account.expected


def is_right(program: Program) -> bool:
    try:
        expected(program)
    except Refused:
        return False
    return True
