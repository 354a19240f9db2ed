"""What the hand-overs promise: the part of the model that is about the bridge.

The README's table, row by row. `lies` makes the model promise more than the bridge does, for the
test that the soak finds out.
"""

from __future__ import annotations

from typing import ClassVar

from . import steps as s
from .model import Array, Model, View, wants
from .order import HOST

SILENT = {"cai0", "cai1", "cai2"}


class Bridge(Model):
    """The model with `to_cai`, `from_cai`, exports and consumers."""

    lies: ClassVar[frozenset[str]] = frozenset()

    def _dlpack(self, array: Array) -> str | None:
        return next((kind for kind in array.speaks if kind.startswith("dlpack")), None)

    def _cai(self, array: Array) -> str | None:
        return next((kind for kind in array.speaks if kind.startswith("cai")), None)

    def _known(self, argument: s.Argument, stream: str | None) -> str | None:
        """Tell the stream that an order can be made with later: held, or a default one."""
        known = stream is not None and (s.is_default(stream) or argument == stream)
        return stream if known else None

    def _asked(self, argument: s.Argument, array: Array) -> str | None:
        stream = s.stream_of(argument)
        if stream is not None:
            wants(self.lanes[self._usable(stream)].device == array.device, "another device")
        return stream

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
            ready = f"L{self.arrays[view.array].device}" if source[0] == "k" else view.ready
            held, *kept = self.holds[source]
            view = view._replace(of_capsule=view.of_capsule or source[0] == "k")
        else:
            ready, held, kept = self._taken(step, self.arrays[source]), source, ()
            view = View(source, None, self.arrays[source].readonly)
        array = self.arrays[view.array]
        stream = self._asked(step.stream, array)
        if step.stream == -1:
            ready = None
        elif stream is not None:
            self.edge(self._usable(ready), stream)
            ready = None if array.empty else stream
        readonly = view.readonly if step.readonly is None else step.readonly
        known = self._known(step.stream, stream)
        made = view._replace(ready=ready, readonly=readonly, consumer=known, kind="cai")
        self._view(step.name, made, held, known, kept)
        if source[0] == "k":
            self._consumed(source)

    def _taken(self, step: s.ToCai, array: Array) -> str | None:
        """Import an array: the stream that it is ready on."""
        stream, pending, legacy = s.stream_of(step.stream), array.pending, f"L{array.device}"
        if array.empty:
            pending = None
        if "exchange" in array.speaks:
            current = self._current(step, array)
            self.edge(pending, current)
            return None if array.empty else current
        dlpack = self._dlpack(array)
        if dlpack is None:
            if self._cai(array) in SILENT and not array.empty:
                self.wait_for_device(array.device)
                return None
            return pending
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
            held, *kept = self.holds[source]
            wants(view.kind == "cai")
            ready = view.ready
        else:
            array, held, kept = self.arrays[source], source, ()
            view = View(source, None, array.readonly)
            wants(self._cai(array) is not None and not (step.as_dict and array.empty))
            ready = self._said(step, array) if step.stream is None else None
        array = self.arrays[view.array]
        stream = self._asked(step.stream, array)
        ready = ready if step.stream is None else stream
        if array.empty:
            ready = None
        readonly = view.readonly if step.readonly is None else step.readonly
        made = view._replace(
            ready=ready, readonly=readonly, consumer=None, producer=ready, kind="dlpack"
        )
        self._view(step.name, made, held, self._known(step.stream, stream), kept)

    def _said(self, step: s.FromCai, array: Array) -> str | None:
        """What the dict says, or who is asked where it says nothing."""
        if self._cai(array) not in SILENT or array.empty:
            return array.pending
        if "exchange" in array.speaks:
            return self._current(step, array)
        self.wait_for_device(array.device)
        return None

    def _view(
        self, name: str, view: View, held: str, stream: str | None, kept: tuple[str, ...]
    ) -> None:
        wants(stream is None or self._alive(stream))
        self.views[name] = view
        streams = (stream,) if stream is not None and not s.is_default(stream) else kept
        self._add(name, held, *streams)

    def _consumed(self, capsule: str) -> None:
        """The managed tensor has gone on to somebody else; the capsule itself stays."""
        del self.named[capsule]
        del self.views[capsule]
        self._less(capsule)

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
            readonly, ready, held = view.readonly, view.ready, self.holds[source]
        else:
            dlpack = self._dlpack(array)
            wants(
                dlpack in {"dlpack", "dlpack-legacy"} and (stream is None or step.stream != stream)
            )
            wants(dlpack == "dlpack" or not step.versioned)
            self.edge(None if array.empty else array.pending, ordered)
            readonly, ready, held = array.readonly, array.pending, self.holds[source][:1]
        wants(step.versioned or not readonly, "legacy capsules cannot say read-only")
        name = self.views[source].array if source[0] == "v" else source
        consumer = self._known(step.stream, stream) if source[0] == "v" else None
        self.views[step.name] = View(name, ready, readonly, consumer, ready)
        self._add(step.name, *held)

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
            return
        consumer = step.stream if step.as_object or s.is_default(step.stream) else None
        if kind in {"dlpack-none", "dlpack-exchange"}:
            consumer = f"L{array.device}"
        if kind == "capsule":
            consumer = view.consumer
        made = view._replace(consumer=consumer, kind="import")
        self.views[step.name] = made
        self._add(step.name, *self.holds[source])
        if kind == "capsule":
            self._consumed(source)

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
        wants(step.step.source[0] != "k" and self.capture is None)
        tried = self.copy()
        tried.take(step.step)
        tried.take(s.Drop(step.step.name))
        wants(tried.alive() == self.alive() and tried.after[HOST] == self.after[HOST])
        self.work_on = tried.work_on
        # Where a tensor was made and dropped, a free or an access was not: only orders were.
        wants(len(tried.places) == len(self.places))
