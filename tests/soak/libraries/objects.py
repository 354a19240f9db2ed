"""The objects of a program that runs: each step as the libraries and the bridge have it."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

from cai_bridge import convert

from .. import bridging as b
from .. import steps as p
from ..doors import Asked, in_thread
from ..program import Program
from ..step import HAVE_CURRENT, OF_STREAM, is_handle, stream_of
from .judging import Counts, Reads


class Origin(NamedTuple):
    """Whose an array is, or the array behind a view; `route` is how it came there."""

    library: str
    stream: str | None
    words: int
    pointer: int | None
    route: str


class Objects:
    """What a program has made so far; a method a step.

    Parameters
    ----------
    libraries : dict of str to adapter
        Those of the program.
    doors : object
        The bridge, or what stands in its place.
    expected : dict of str to int
        The value that each read must see.
    """

    def __init__(
        self, program: Program, libraries: dict[str, Any], doors: Any, expected: dict[str, int]
    ) -> None:
        self.program, self.libraries, self.doors = program, libraries, doors
        self.counts = Counts()
        self.reads = Reads(expected, self.counts)
        self.objects: dict[str, Any] = {}
        self.streams: dict[str, Any] = {}
        self.homes: dict[str, Origin] = {}
        self.pointers: set[int] = set()
        self.entered: list[list[tuple[str, Any]]] = [[] for _ in range(program.threads)]

    def _newstream(self, step: p.NewStream) -> None:
        self.streams[step.name] = self.libraries[step.library].new_stream(step.kind)

    # --- the program's own work -------------------------------------------------------------------

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

    # --- hand-overs -------------------------------------------------------------------------------

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
        self.homes[step.name] = home._replace(route=f"{home.route} > {b.spoken(step)}")

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
        if step.how == "convert" and self.doors.converts:
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

    # --- the end of things ------------------------------------------------------------------------

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

    # --- streams ----------------------------------------------------------------------------------

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


_collecting = threading.Lock()
"""Held by a thread that collects: a collection does nothing while another one is under way."""
