"""The steps that are about the bridge, as the public API has them."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from typing import Any

import numpy as np

import cai_bridge
from cai_bridge import DriverError, _core
from cai_bridge.testing import _work

from .. import steps as s
from ..doors import Asked, Bridge, in_thread
from . import foreign
from .objects import Objects, Wrong, compare

ON_HOST = np.arange(6, dtype="f4")


class Odd(Exception):
    """What a function raises that `adapt` has made."""


class Hands(Objects):
    """Hand-overs, consumers and ends."""

    doors = Bridge()

    def stream(self, argument: s.Argument) -> Any:
        if not isinstance(argument, str):
            return argument
        name, _, form = argument.partition(".")
        stream = self.objects[name]
        return {"": stream, "handle": stream.handle}.get(form) or foreign.external(stream)

    def _with_current(self, current: str | None, call: Callable[[], Any]) -> Any:
        if current is None:
            return call()
        with self.cuda.current_stream(self.stream(current)):
            return call()

    def _tocai(self, step: s.ToCai) -> Any:
        source, stream = self.objects[step.source], self.stream(step.stream)
        return self._with_current(step.current, lambda: self.doors.to_cai(source, step, stream))

    def _tree(self, step: s.Tree) -> dict[str, Any]:
        first, sources = step.parts[0], [self.objects[part.source] for part in step.parts]
        sources += [ON_HOST] if step.host else []
        stream, readonly = self.stream(first.stream), first.readonly
        made = self._with_current(
            first.current,
            lambda: cai_bridge.convert(sources, "cai", stream=stream, readonly=readonly),
        )
        if step.host and made.pop() is not ON_HOST:
            raise Wrong("host", f"{step}: the host's array is another one")
        return dict(zip((part.name for part in step.parts), made, strict=True))

    def _call(self, step: s.Call) -> Any:
        taken, work, kept = step.taken, step.work, list[Any]()

        def function(view: Any) -> Any:
            call = lambda: self._taken_in(work, view, self.stream(work.stream))  # noqa: E731
            self.pendings[work.name] = self._with_current(work.current, call)
            if step.keeps:
                kept.append(view)
            if step.how in {"raises", "keeps and raises"}:
                raise Odd
            return view if step.how == "returns" else None

        adapted = cai_bridge.adapt(
            function, stream=self.stream(taken.stream), readonly=taken.readonly, returns=None
        )
        with contextlib.suppress(Odd):
            self._with_current(taken.current, lambda: adapted(self.objects[taken.source]))
        return kept[0] if kept else None

    def _fromcai(self, step: s.FromCai) -> Any:
        source, stream, dtype = self.objects[step.source], self.stream(step.stream), None
        if step.as_dict and step.source[0] != "v":
            dtype = source.dtype.name
        elif step.as_dict and source.typestr[1:2] == "V":
            dtype = "bfloat16"
        call = lambda: self.doors.from_cai(source, step, stream, dtype=dtype)  # noqa: E731
        return self._with_current(step.current, call)

    def _export(self, step: s.Export | s.Copy) -> Any:
        source, stream = self.objects[step.source], self.stream(step.stream)
        return self._with_current(step.current, lambda: self.doors.export(source, step, stream))

    _copy = _export

    def _tohost(self, step: s.ToHost) -> None:
        capsule = self.objects[step.source].__dlpack__(dl_device=(1, 0), max_version=(1, 3))
        compare(step.name, foreign.on_host(capsule), self.model.seen[step.name])

    def _consume(self, step: s.Consume) -> None:
        source, stream = self.objects[step.source], self.stream(step.stream)
        self.pendings[step.name] = self._with_current(
            step.current, lambda: self._taken_in(step, source, stream)
        )

    def _taken_in(self, step: s.Consume, source: Any, stream: Any) -> Any:
        if step.by_hand:
            held = foreign.ByHand(source)
            if step.value is None:
                return held.read(stream, step.name)
            return held.write(stream, step.value, step.name)
        if step.kind == "address":
            return self._by_address(step, source, stream)
        asked: dict[str, Any] = {"stream": stream} if step.as_object else {}
        if step.device is not None:
            asked["dl_device"] = (2, step.device)
        kind = "dlpack" if step.kind == "capsule" else step.kind
        if step.kind == "capsule" or asked:
            source = Asked(source, **asked)
        consumer = self.cuda.consumer(kind, stream)
        if step.value is None:
            return consumer.read(source, name=step.name)
        return consumer.write(source, step.value, name=step.name)

    def _by_address(self, step: s.Consume, source: Any, stream: Any) -> Any:
        """Work with the bare address, of which the bridge learns by its being read."""
        with self.cuda.current_stream(stream):
            address = source.ptr
        region = _work.region_of(source)
        if region.ptr != address:
            raise Wrong("view", f"{step.source} is at {address:#x}; its items at {region.ptr:#x}")
        if step.value is None:
            return _work.read(stream, region, name=step.name)
        return foreign.written(stream, region, step.value, step.name)

    def _relay(self, step: s.Relay) -> Any:
        kind = foreign.CaiRelay if step.speaks == "cai3" else foreign.DLPackRelay
        tensor = _core._simulated_import_capsule(self.objects[step.source])
        return kind(self.cuda._session, tensor, self.objects[step.stream])

    def _adopt(self, step: s.Adopt) -> Any:
        return foreign.adopted(cai_bridge.DLPackView, self.objects[step.source])

    def _look(self, step: s.Look) -> None:
        nothing = {"shape": (0,), "typestr": "|u1", "data": (0, False), "version": 3}
        # A call of the bridge asks a few, and those may hold others.
        for _ in range(8):
            cai_bridge.from_cai(nothing, owner=self, device=0).release()

    # --- faults -----------------------------------------------------------------------------------

    def _attempt(self, step: s.Attempt) -> None:
        self.cuda.fail(step.call, step.nth, step.error)
        try:
            made = step.step.method(self)(step.step)
            self.cuda.clear_faults()
            del made
        except DriverError as error:
            self.heard(error)
            if error.call != step.call:
                raise Wrong(
                    "error", f"{step.call} failed, and the error names {error.call}"
                ) from error
            if self.cuda.clear_faults():
                raise Wrong("error", f"{error} without a fault") from error
            if isinstance(step.step, s.Release):
                # One that was released refuses this.
                self.objects[step.step.view].__enter__()
                self._release(step.step)
        self.cuda.clear_faults()
        if isinstance(step.step, s.Drop):
            # An end that failed is tried again by later calls.
            self._look(s.Look())

    def _refusal(self, step: s.Refusal) -> None:
        try:
            made = step.step.method(self)(step.step)
        except DriverError as error:
            self.heard(error)
            if "graph capture" not in str(error):
                raise
            return
        del made
        raise Wrong("not refused", f"{step.step} is not refused during a capture")

    # --- the end of things ------------------------------------------------------------------------

    def _release(self, step: s.Release) -> None:
        view, said = self.objects[step.view], self.stream(step.stream)
        call = lambda: self.doors.release(view, said, block=step.how == "with")  # noqa: E731
        self._with_current(step.current, lambda: in_thread(step.elsewhere, call))

    def _drop(self, step: s.Drop) -> None:
        self._with_current(step.current, lambda: self._let_go(step.what, step.how))

    def _let_go(self, what: str, how: str | None) -> None:
        pending = self.pendings.get(what)
        if pending is None:
            in_thread(how == "thread", lambda: self.objects.pop(what) and None)
        elif how == "thread" or not isinstance(pending._held, foreign.ByHand):
            in_thread(how == "thread", pending.release)
        else:
            pending._held.delete(how)
            pending.release()

    def _cycle(self, step: s.Cycle) -> None:
        view = self.objects.pop(step.what)
        if step.through_owner:
            del self.objects[self.model.views[step.what].array]
            view.owner.mine = view
            return
        box = [view]
        box.append(box)

    def _collect(self, step: s.Collect) -> None:
        gc.collect()
