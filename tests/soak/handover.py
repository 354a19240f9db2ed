"""What the hand-overs promise: the part of the model that is about the bridge.

The README's table, row by row. `lies` makes the model promise more than the bridge does, for the
test that the soak finds out.
"""

from __future__ import annotations

from typing import ClassVar

from . import steps as s
from .copies import Copies
from .model import Array, View, wants
from .order import HOST

SILENT = {"cai0", "cai1", "cai2"}


class Bridge(Copies):
    """The model with `to_cai`, `from_cai`, exports and consumers."""

    lies: ClassVar[frozenset[str]] = frozenset()

    def _dlpack(self, array: Array) -> str | None:
        return next((kind for kind in array.speaks if kind.startswith("dlpack")), None)

    def _cai(self, array: Array) -> str | None:
        return next((kind for kind in array.speaks if kind.startswith("cai")), None)

    def _object(self, argument: s.Argument) -> str | None:
        """Tell the stream whose object was given."""
        return argument if isinstance(argument, str) and "." not in argument else None

    def _current(self, step: s.ToCai | s.FromCai, array: Array) -> str:
        if step.current is None:
            return f"L{array.device}"
        wants(self.lanes[step.current].device == array.device)
        self.work_on = {**self.work_on, self.number: step.current}
        return step.current

    # --- to_cai -----------------------------------------------------------------------------------

    def _tocai(self, step: s.ToCai) -> None:
        source = step.source
        if source[0] in "vk":
            wants(source in self.holds, "released or consumed")
            view = self.views[source]
            ready = view.ready
            if source[0] == "k" and not self.arrays[view.array].empty:
                ready = f"L{self.arrays[view.array].device}"
            held = self.holds[source][0] if source[0] == "v" else source
            if source[0] == "k":
                view = View(view.array, ready, view.readonly, of_capsule=True)
        else:
            view = View(source, None, self.arrays[source].readonly)
            ready, view = self._taken(step, self.arrays[source], view)
            held = source
        array = self.arrays[view.array]
        stream = self._asked(step.stream, array)
        if step.stream == -1:
            ready = None
        elif stream is not None:
            self.edge(None if array.empty else self._usable(ready), stream)
            ready = None if array.empty else stream
        readonly = view.readonly if step.readonly is None else step.readonly
        consumer, alive = self._live(step.stream, step.current, view.home)
        if step.stream in {None, -1} and source[0] == "v":
            # Whoever reads it is told the same stream.
            consumer, alive = view.consumer, view.keeps_consumer
        keeps = self._object(step.stream) or view.keeps
        view = view._replace(lent_out=False)
        made = view._replace(ready=ready, readonly=readonly, consumer=consumer, kind="cai")
        self._hand_out(step.name, made._replace(keeps=keeps), held, alive)
        if source[0] == "k":
            # The view holds the tensor that was in the capsule from now on.
            del self.named[source]
            self._less(source)

    def _taken(self, step: s.ToCai, array: Array, view: View) -> tuple[str | None, View]:
        """Import an array: the stream that it is ready on, and where it goes back to."""
        pending = None if array.empty else array.pending
        if "exchange" in array.speaks:
            current = self._current(step, array)
            self.edge(pending, current)
            view = view._replace(home=current, keeps_home=current)
            return None if array.empty else current, view
        if self._dlpack(array) is not None:
            return self._asked_for(step, array, pending), view
        if self._cai(array) in SILENT:
            if not array.empty:
                self.wait_for_device(array.device)
            return None, view
        lent = step.current != array.pending
        return pending, view._replace(home=array.pending, lent=lent)

    def _asked_for(self, step: s.ToCai, array: Array, pending: str | None) -> str | None:
        """What a producer with `__dlpack__` does: the stream that its memory is ready on."""
        stream, legacy = s.stream_of(step.stream), f"L{array.device}"
        dlpack = self._dlpack(array)
        if dlpack == "dlpack-bare":
            self.edge(pending, legacy)
            return None if array.empty else legacy
        if step.stream == -1:
            if dlpack == "dlpack-strict":
                self.edge(pending, legacy)
            return None
        self.edge(pending, stream or legacy)
        return None if array.empty else stream or legacy

    # --- from_cai ---------------------------------------------------------------------------------

    def _fromcai(self, step: s.FromCai) -> None:
        source = step.source
        wants(source[0] in "xv")
        if source[0] == "v":
            wants(source in self.holds, "released")
            view = self.views[source]
            wants(view.kind == "cai")
            view = view._replace(keeps=self._object(step.stream) or view.keeps, lent_out=False)
            ready, held = view.ready, self.holds[source][0]
            declared = s.stream_of(step.stream)
            if declared not in {None, view.home} and not self.arrays[view.array].empty:
                declared, kept = self._live(step.stream, step.current)
                view = view._replace(declared=declared, keeps_declared=kept)
        else:
            array, held = self.arrays[source], source
            wants(self._cai(array) is not None and not (step.as_dict and array.empty))
            ready, home, keeps = self._said(step, array)
            view = View(source, None, array.readonly, home=home, keeps_home=keeps)
            if step.stream in (None, -1) and self._cai(array) not in SILENT and not step.as_dict:
                view = view._replace(lent=step.current != array.pending)
        array = self.arrays[view.array]
        stream = self._asked(step.stream, array)
        ready = ready if step.stream is None else stream
        ready = None if array.empty else ready
        readonly = view.readonly if step.readonly is None else step.readonly
        made = view._replace(ready=ready, readonly=readonly, kind="dlpack")
        self._hand_out(step.name, made, held, view.keeps_consumer)

    def _said(self, step: s.FromCai, array: Array) -> tuple[str | None, str | None, str | None]:
        """Tell what the dict says: the stream it is ready on, the one it goes back to, held."""
        if isinstance(step.stream, str):
            return None, *self._live(step.stream, step.current)
        if self._cai(array) not in SILENT:
            return array.pending, array.pending, None
        if array.empty or step.stream == -1:
            return None, None, None
        if "exchange" in array.speaks:
            current = self._current(step, array)
            return current, current, current
        self.wait_for_device(array.device)
        return None, None, None

    # --- exports and consumers --------------------------------------------------------------------

    def _export(self, step: s.Export) -> None:
        source = step.source
        array = self.arrays[self.views[source].array if source[0] == "v" else source]
        stream = self._asked(step.stream, array)
        ordered = None if step.stream == -1 else stream or f"L{array.device}"
        if source[0] == "v":
            view = self.views[source]
            wants(source in self.holds and view.kind == "dlpack")
            self.edge(self._usable(view.ready), ordered)
            held = self.holds[source][0]
        else:
            dlpack = self._dlpack(array)
            wants(
                dlpack in {"dlpack", "dlpack-legacy"} and (stream is None or step.stream != stream)
            )
            wants(dlpack == "dlpack" or not step.versioned)
            self.edge(None if array.empty else array.pending, ordered)
            view, held = View(source, array.pending, array.readonly), self.holds[source][0]
        wants(step.versioned or not view.readonly, "legacy capsules cannot say read-only")
        consumer, alive = self._live(step.stream, None, view.home)
        if source[0] == "x":
            # The producer's own capsule: the bridge has no part in its end.
            consumer = alive = None
        elif step.stream is None:
            consumer = ordered
        made = view._replace(consumer=consumer, kind="capsule", lent_out=False)
        self._hand_out(step.name, made, held, alive)

    def _consume(self, step: s.Consume) -> None:
        source = step.source
        view = self.views[source]
        array = self.arrays[view.array]
        wants(source in self.holds and self.lanes[step.stream].device == array.device)
        kind = "capsule" if source[0] == "k" else step.kind
        wants((view.kind == "cai") == kind.startswith("cai"))
        wants((source[0] == "k") == (step.kind == "capsule"))
        on = self._entitled(step, view, array, kind)
        wants(step.value is None or not view.readonly, "read-only")
        if step.value is None:
            self._see(step.name, view.array, on)
        else:
            self.seen[step.name] = None
            self._write(view.array, on, step.value)
        if kind.startswith("cai") or kind == "dlpack-borrowed":
            self._add(step.name, source)
            if kind == "dlpack-borrowed" and not array.empty:
                self.views[source] = view._replace(lent_out=True)
            return
        consumer = alive = None if kind == "dlpack-unordered" else step.stream
        if kind in {"dlpack-none", "dlpack-exchange"}:
            consumer, alive = f"L{array.device}", None
        elif kind == "capsule":
            # The tensor in it, with all that it holds, is the consumer's now.
            consumer, alive = view.consumer, None
            del self.named[source]
        elif consumer == view.home and not step.as_object:
            alive = None
        held = self.holds[source][0]
        self._hand_out(
            step.name, view._replace(consumer=consumer, kind="import", lent_out=False), held, alive
        )
        if kind == "capsule":
            del self.views[source]
            self._less(source)

    def _entitled(self, step: s.Consume, view: View, array: Array, kind: str) -> str:
        """Take the array in: the stream that the consumer may work on."""
        own, legacy, ready = step.stream, f"L{array.device}", view.ready
        if kind == "cai-trusting" and "cai-trusting waits" in self.lies:
            self.edge(ready, own)
        if kind in {"capsule", "cai-trusting", "dlpack-unordered"}:
            return own
        if kind.startswith("cai"):
            self._usable(ready)
            if ready is None:
                return own
            if kind == "cai-waits":
                self.edge(ready, own)
            elif kind == "cai-blocks":
                self.wait_on_host(ready)
            else:
                return ready
            return own
        self._usable(ready)
        wants(kind not in {"dlpack-legacy-capsule", "dlpack-borrowed"} or not view.readonly)
        on = legacy if kind in {"dlpack-none", "dlpack-exchange", "dlpack-borrowed"} else own
        self.edge(ready, on)
        return on

    def _attempt(self, step: s.Attempt) -> None:
        """Nothing is promised but that nothing is lost; what is made is dropped at once."""
        wants(self.capture is None)
        if isinstance(step.step, s.Release):
            self._release(step.step)
            return
        wants(step.step.source[0] != "k")
        tried = self.copy()
        tried.take(step.step)
        tried.take(s.Drop(step.step.name))
        wants(tried.alive() == self.alive() and tried.after[HOST] == self.after[HOST])
        self.maybe = {name: self.maybe.get(name, 0) for name in tried.maybe}
        self.work_on = tried.work_on
        # Where a tensor was made and dropped, a free or an access was not: only orders were.
        wants(len(tried.places) == len(self.places))
