"""The account of calls by `adapt`: two hand-overs, and the end of the first when it returns.

What the function is given is an array of its library, which gives back when the call has returned,
or, where it comes back itself, when that array ends. A new array is of the function's library, and
is handed over as any other; it ends with what it came back as.
"""

from __future__ import annotations

from ..calling import LIKE, CallLibrary
from ..refusing import wants
from ..step import HAVE_CURRENT
from .clocks import Clock, join
from .handles import Access, Block, Lease, Thing, library_of
from .labour import PRODUCERS, Labour

KNOWN_STREAM = {"torch", "tvm_ffi", "numba"}
"""The libraries whose arrays name the stream that is to wait at an end."""

NAMELESS = {"jax", "tvm_ffi"}
"""Those whose stream has no name here."""


class Calls(Labour):
    """The step that calls a function."""

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
        assert library is not None
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
        """Add the new array, or what it comes back as."""
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
        assert array.stream is not None
        current = at or self.current(thread, array.stream[0])
        default = current is None and self.kinds[array.stream] == "default"
        wants(default or current == array.stream, "its stream is not the current one")
