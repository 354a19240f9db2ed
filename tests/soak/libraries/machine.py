"""Runs a program: its threads, each step as the libraries have it, and what its reads saw."""

from __future__ import annotations

import contextlib
import gc
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from cai_bridge import convert

from .. import steps as p
from ..doors import Asked, in_thread
from ..program import Program
from ..steps import HAVE_CURRENT, LIKE, OF_STREAM, is_handle, stream_of

SHOWN = 5


class Counts:
    """Counters of steps, of libraries' steps, of routes, and of other things."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.kinds: dict[str, Counter[str]] = {
            kind: Counter() for kind in ("steps", "libraries", "routes", "others")
        }

    def add(self, kind: str, what: str, by: int = 1) -> None:
        with self._lock:
            self.kinds[kind][what] += by


class Reads:
    """Copies of arrays that are still on the device, and what came of those that are not.

    `expected` is the value that each read must see in all items, `wrong` tells of the first reads
    that saw something else, and `first` is the name of the very first.
    """

    def __init__(self, expected: dict[str, int], counts: Counts) -> None:
        self.expected, self.counts = expected, counts
        self.wrong: list[str] = []
        self.first: str | None = None
        self._queued: dict[str, tuple[Any, Any, int]] = {}
        self._writers: dict[int, str] = {}

    def written(self, value: int, by: object) -> None:
        """Note who writes a value, which nobody else does."""
        self._writers[value] = str(by)

    def add(self, name: str, adapter: Any, copied: Any, thread: int) -> None:
        self._queued[name] = adapter, copied, thread

    def of(self, thread: int | None = None) -> list[str]:
        queued = list(self._queued.items())
        return [name for name, (*_, owner) in queued if thread in {None, owner}]

    def compare(self, names: list[str]) -> None:
        """Look at copies, all work on which is done."""
        for name in names:
            adapter, copied, _ = self._queued.pop(name)
            self.saw(name, adapter.values(copied))

    def saw(self, name: str, values: Any) -> None:
        """Compare what a read has seen that the host has waited for."""
        expected = self.expected[name]
        others = values[values != expected]
        self.counts.add("others", "reads compared")
        if not len(others):
            return
        self.first = self.first or name
        if len(self.wrong) < SHOWN:
            found = ", ".join(f"{value:g}" for value in sorted(set(others.tolist()))[:3])
            value = float(others[0])
            writer = self._writers.get(int(value)) if value == value // 1 else None
            self.wrong.append(
                f"{name}: {len(others)} of {len(values)} items are {found} instead of {expected}"
                f"\n    {expected} is of: {self._writers.get(expected)}"
                f"\n    {value:g} is of: {writer or 'nobody in this program'}"
            )


class Origin(NamedTuple):
    """Whose an array is, or the array behind a view; `route` is how it came there."""

    library: str
    stream: str | None
    words: int
    pointer: int | None
    route: str


_collecting = threading.Lock()

"""Held by a thread that collects: a collection does nothing while another one is under way."""


class Machine:
    """Runs a program, and keeps what went wrong; a method a step.

    `libraries` are the adapters of the program, `doors` the bridge or what stands in its place;
    `expected` has the value that each read must see, and in `progress` each thread writes the
    number of its step.
    """

    def __init__(
        self,
        program: Program,
        libraries: dict[str, Any],
        doors: Any,
        expected: dict[str, int],
        progress: Any = None,
    ) -> None:
        self.program, self.libraries, self.doors = program, libraries, doors
        self.counts = Counts()
        self.reads = Reads(expected, self.counts)
        self.objects: dict[str, Any] = {}
        self.streams: dict[str, Any] = {}
        self.homes: dict[str, Origin] = {}
        self.pointers: set[int] = set()
        self.entered: list[list[tuple[str, Any]]] = [[] for _ in range(program.threads)]
        self.progress = [0] * program.threads if progress is None else progress
        self.met = {n: threading.Event() for n, s in enumerate(program.steps) if type(s) is p.Meet}
        # What could not be made without the bridge.
        self.missing: set[str] = set()
        self.errors: list[str] = []
        self.raised: list[str] = []
        self.raised_at: int | None = None
        self.stopped = False

    def _newstream(self, step: p.NewStream) -> None:
        self.streams[step.name] = self.libraries[step.library].new_stream(step.kind)

    def _enter(self, step: p.Enter) -> None:
        stack = contextlib.ExitStack()
        stack.enter_context(self._on(step.stream))
        self.entered[step.thread].append((step.stream, stack))

    def _leave(self, step: p.Leave) -> None:
        self.entered[step.thread].pop()[1].close()

    def _make(self, step: p.Make) -> Any:
        adapter = self.libraries[step.library]
        self.reads.written(step.value, step)
        made = adapter.full(step.words, step.value, self._stream(step.stream), step.spin)
        pointer = adapter.pointer(made)
        self._note_again(pointer, "arrays in memory of an earlier one")
        self.homes[step.name] = Origin(step.library, step.stream, step.words, pointer, step.library)
        return made

    def _read(self, step: p.Read) -> None:
        home = self.homes[step.array]
        array, adapter = self.objects[step.array], self.libraries[home.library]
        copied = adapter.copy(array, home.words, self._stream(home.stream), step.spin)
        self.reads.add(step.name, adapter, copied, step.thread)
        self.counts.add("libraries", home.library)

    def _fill(self, step: p.Fill) -> None:
        home = self.homes[step.array]
        array, adapter = self.objects[step.array], self.libraries[home.library]
        self.reads.written(step.value, step)
        adapter.fill(array, home.words, step.value, self._stream(home.stream), step.spin)
        self.counts.add("libraries", home.library)

    def _reuse(self, step: p.Reuse) -> None:
        adapter, made = self.libraries[step.library], []
        self.reads.written(step.value, step)
        for _ in range(step.times):
            made.append(adapter.full(step.words, step.value, self._stream(step.stream), 0.0))
            self._note_again(adapter.pointer(made[-1]), "blocks that came again at once")

    def _note_again(self, pointer: int | None, what: str) -> None:
        if pointer is not None:
            self.counts.add("others", what, pointer in self.pointers)
            self.pointers.add(pointer)

    def _sync(self, step: p.Sync) -> None:
        self._compare(self.reads.of(step.thread))

    def _compare(self, names: list[str]) -> None:
        self._synchronize()
        self.reads.compare(names)

    def _synchronize(self) -> None:
        for adapter in self.libraries.values():
            adapter.synchronize()

    def _tocai(self, step: p.ToCai) -> Any:
        source, stream = self.objects[step.source], self._argument(step.stream)
        with self._current(step.thread, step.current, self._exporting(step)):
            made = self.doors.to_cai(source, step, stream)
        self._follow(step, step.source)
        return made

    def _fromcai(self, step: p.FromCai) -> Any:
        source, stream = self.objects[step.source], self._argument(step.stream)
        with self._current(step.thread, self._exporting(step)):
            made = self.doors.from_cai(source, step, stream)
        self._follow(step, step.source)
        return made

    def _export(self, step: p.Export) -> Any:
        view, stream = self.objects[step.source], self._argument(step.stream)
        with self._current(step.thread, step.current):
            made = self.doors.export(view, step, stream)
        self._follow(step, step.source)
        return made

    def _exporting(self, step: p.ToCai | p.FromCai) -> str | None:
        """Name the stream that has to be the exporter's current one, where it is not."""
        is_array = step.source[0] in "xy"
        return self.homes[step.source].stream if self.doors.shares_current and is_array else step.at

    def _follow(self, step: p.ToCai | p.FromCai | p.Export, source: str) -> None:
        home = self.homes[source]
        self.homes[step.name] = home._replace(route=f"{home.route} > {p.spoken(step)}")

    def _take(self, step: p.Take) -> Any:
        home, stream = self.homes[step.source], self._stream(step.stream)
        pending = self.libraries[home.library].is_pending(self._stream(home.stream))
        with self._current(step.thread, step.stream):
            made = self._taken(step, stream, home)
        self.homes[step.name] = Origin(
            step.library, step.stream, home.words, home.pointer, step.library
        )
        producer, *calls = home.route.split(" > ")
        shown = calls if len(calls) <= 3 else [calls[0], "…", calls[-1]]
        route = " > ".join([producer, *shown, f"{step.library}.{step.how}"])
        self.counts.add("routes", route)
        self.counts.add("others", "hand-overs while the producer's work was pending", pending)
        self.counts.add("others", "hand-overs")
        return made

    def _taken(self, step: p.Take, stream: Any, home: Origin) -> Any:
        source, adapter = self.objects[step.source], self.libraries[step.library]
        if self.doors.native:
            return adapter.take_natively(step.how, source, stream)
        if step.how in {"asked", "capsule"}:
            source = Asked(source, **({"stream": stream} if step.how == "asked" else {}))
        if step.how == "convert":
            with adapter.works_on(stream):
                made = convert(source, step.library)
        else:
            made = adapter.take(step.how, source, stream)
        at = adapter.pointer(made)
        if None not in (at, home.pointer) and at != home.pointer:
            raise AssertionError(f"{step.name} is a copy: at {at:#x}, not at {home.pointer:#x}")
        return made

    def _tohost(self, step: p.ToHost) -> None:
        self.reads.saw(step.name, self.doors.to_host(self.objects[step.source]))
        self.counts.add("routes", f"{self.homes[step.source].route} > the host")
        self.counts.add("others", "hand-overs")

    def _release(self, step: p.Release) -> None:
        view, stream = self.objects[step.view], self._argument(step.stream)
        block = step.how == "with"
        in_thread(step.elsewhere, lambda: self.doors.release(view, stream, block=block))

    def _drop(self, step: p.Drop) -> None:
        in_thread(step.how == "thread", lambda: self._forget(step.what))

    def _forget(self, name: str) -> None:
        self.objects.pop(name, None)

    def _cycle(self, step: p.Cycle) -> None:
        if not self.doors.keeps_cycles:
            self._forget(step.what)
            return
        box = [self.objects.pop(step.what, None)]
        box.append(box)

    def _collect(self, step: p.Collect) -> None:
        with _collecting:
            gc.collect()

    def _stream(self, name: str | None) -> Any:
        return None if name is None else self.streams[name]

    def _argument(self, argument: str | None) -> Any:
        name = stream_of(argument)
        if name is None:
            return None
        stream = self.streams[name]
        return self.libraries[OF_STREAM[name[0]]].handle(stream) if is_handle(argument) else stream

    def _on(self, name: str) -> Any:
        return self.libraries[OF_STREAM[name[0]]].on(self.streams[name])

    @contextlib.contextmanager
    def _current(self, thread: int, *streams: str | None) -> Iterator[None]:
        """Make streams the current ones of their libraries, where they are not."""
        with contextlib.ExitStack() as stack:
            for name in streams:
                if name is None or OF_STREAM[name[0]] not in HAVE_CURRENT:
                    continue
                entered = [one for one, _ in self.entered[thread] if one[0] == name[0]]
                if self.doors.shares_current or name not in entered[-1:]:
                    stack.enter_context(self._on(name))
            yield

    def _calllibrary(self, step: p.CallLibrary) -> Any:
        home, stream = self.homes[step.source], self._stream(step.stream)
        library = home.library if step.returns == LIKE else step.returns
        there, back = self.libraries[step.library], self.libraries[library]
        pending = self.libraries[home.library].is_pending(self._stream(home.stream))
        pointers: list[int | None] = []
        at = home.stream if self.doors.shares_current else step.at
        theirs = () if self.doors.shares_current else (step.stream, step.back)
        with contextlib.ExitStack() as inside:
            inside.enter_context(self._current(step.thread, at, *theirs))
            inside.enter_context(there.works_on(stream))
            if step.back:
                inside.enter_context(back.works_on(self._stream(step.back)))

            def function(array: Any) -> Any:
                if self.doors.shares_current:
                    # Until what is returned is handed over: it is exported on this stream.
                    inside.enter_context(self._current(step.thread, step.stream))
                return self._called(step, array, home, pointers)

            results = self.doors.adapted(function, step, self.objects[step.source], (there, back))
        same, made = results if step.does == "both" else (None, results)
        self._check(step, (home.pointer, *pointers), (same, made), back)
        if step.does == "both":
            copied = back.copy(same, home.words, self._stream(step.back), 0.0)
            self.reads.add(step.again, back, copied, step.thread)
        if step.name is not None:
            self.homes[step.name] = Origin(library, step.back, home.words, pointers[1], library)
        self.counts.add("routes", f"{home.library} > adapt({step.library}).{step.does} > {library}")
        self.counts.add("others", "hand-overs while the producer's work was pending", pending)
        self.counts.add("others", "hand-overs")
        return made

    def _called(
        self, step: p.CallLibrary, array: Any, home: Origin, pointers: list[int | None]
    ) -> Any:
        adapter, stream = self.libraries[step.library], self._stream(step.stream)
        if not (self.doors.native or adapter.has(array)):
            raise AssertionError(f"{step} is given a {type(array).__name__}")
        pointers.append(adapter.pointer(array))
        copied = adapter.copy(array, home.words, stream, step.spin)
        self.reads.add(step.read, adapter, copied, step.thread)
        if step.writes:
            self.reads.written(step.value, step)
            adapter.fill(array, home.words, step.value, stream, 0.0)
        if step.does == "write":
            return None
        self.reads.written(step.fresh, step)
        new = adapter.full(home.words, step.fresh, stream, step.spin)
        pointers.append(adapter.pointer(new))
        return (array, new) if step.does == "both" else new

    def _check(
        self,
        step: p.CallLibrary,
        pointers: tuple[int | None, ...],
        results: tuple[Any, Any],
        back: Any,
    ) -> None:
        """Nothing is copied on the way to the function and back, and the kind is what was said."""
        if self.doors.native:
            return
        before, given, *new = pointers
        same, made = results
        for one in results:
            if one is not None and not back.has(one):
                raise AssertionError(f"{step} gives a {type(one).__name__}, not of {back.name}")
        pairs = [(before, given)]
        pairs += [] if same is None else [(given, back.pointer(same))]
        pairs += [] if made is None else [(new[0], back.pointer(made))]
        for one, other in pairs:
            if None not in (one, other) and one != other:
                raise AssertionError(f"{step} makes a copy: at {other:#x}, not at {one:#x}")

    @property
    def at(self) -> int | None:
        if self.raised_at is None and self.reads.first is not None:
            named = (self.reads.first in step.named() for step in self.program.steps)
            return list(named).index(True)
        return self.raised_at

    def run(self) -> None:
        """Run all threads to their ends, and let go of everything."""
        for step in self.program.steps:
            if isinstance(step, p.NewStream):
                self._newstream(step)
                self.counts.add("steps", "NewStream")
        others = [
            threading.Thread(target=self._run_thread, args=(number,))
            for number in range(1, self.program.threads)
        ]
        for thread in others:
            thread.start()
        self._run_thread(0)
        for thread in others:
            thread.join()
        if not self.errors:
            self._compare(self.reads.of())
        self.objects.clear()
        gc.collect()
        self._synchronize()

    def _run_thread(self, thread: int) -> None:
        try:
            for number, step in enumerate(self.program.steps):
                if self.stopped:
                    break
                if isinstance(step, p.Meet):
                    self._meet(number, step, thread)
                elif step.thread == thread and not isinstance(step, p.NewStream):
                    self._run_step(number, step)
            while self.entered[thread]:
                self.entered[thread].pop()[1].close()
        except BaseException as error:
            self.errors.append(traceback.format_exc())
            self.raised.append(type(error).__name__)
            self.stopped = True

    def _meet(self, number: int, step: p.Meet, thread: int) -> None:
        if thread == step.other:
            self.met[number].set()
        elif thread == step.thread:
            self.progress[thread] = number
            while not self.met[number].wait(0.05) and not self.stopped:
                pass
            self.counts.add("steps", "Meet")

    def _run_step(self, number: int, step: p.Step) -> None:
        self.progress[step.thread] = number
        if step.needs() & self.missing:
            self._skip(step, "skipped")
            return
        try:
            made = step.method(self)(step)
        except Exception as error:
            if not self.doors.native:
                error.add_note(f"in step {number}: {step}")
                self.raised_at = number if self.raised_at is None else self.raised_at
                raise
            self._skip(step, "refused")
            return
        if step.makes() is not None and made is not None:
            self.objects[step.makes() or ""] = made
        del made
        self.counts.add("steps", type(step).__name__)
        if step.library_used() is not None:
            self.counts.add("libraries", step.library_used() or "")

    def _skip(self, step: p.Step, why: str) -> None:
        """Without the bridge, not everything can be handed to everybody."""
        self.counts.add("others", f"steps {why} in the control")
        if step.makes() is not None:
            self.missing.add(step.makes() or "")
