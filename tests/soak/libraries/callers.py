"""Calls by `adapt` in a program that runs: what the function does, and what comes back."""

from __future__ import annotations

import contextlib
from typing import Any

from .. import steps as p
from ..calling import LIKE
from .objects import Objects, Origin


class Callers(Objects):
    """The step that calls a function."""

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
        """Do the work of the function."""
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
