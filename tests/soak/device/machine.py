"""A program that runs on the simulated device: each step, and what must be true after it.

After each step the arrays that the model lets go of must be gone and the others alive; views must
say what the model says of them.
"""

from __future__ import annotations

import contextlib
import gc
import traceback
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

import cai_bridge
from cai_bridge import DriverError, _core
from cai_bridge.testing import _work, simulated_cuda

from .. import doors
from .. import steps as s
from . import foreign, strangers
from .foreign import Registered
from .handover import Bridge
from .strangers import STRANGE

CHECK_MEMORY_OF = {"device", "pinned", "managed"}


@dataclass(frozen=True)
class Failure:
    """What went wrong. Two failures of one `kind` are taken for the same."""

    kind: str
    text: str


class Wrong(Exception):
    """A difference from the model."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.failure = Failure(kind, text)


def compare(name: str, value: Any, expected: tuple[str, int] | None) -> None:
    """All items must be the one value that was written last."""
    items = [value]
    while items and isinstance(items[0], list):
        items = [item for row in items for item in row]
    if any(item != expected[1] for item in items):
        raise Wrong(
            "value", f"{name} of {expected[0]}: got {value}; expected {expected[1]} everywhere"
        )


ON_HOST = np.arange(6, dtype="f4")


class Odd(Exception):
    """What a function raises that `adapt` has made."""


class Machine:
    """A program that runs: its objects, by the names that it has for them."""

    # Is told of each exception of the bridge's that a step expects.
    heard: Callable[[Exception], object] = staticmethod(lambda error: None)

    def __init__(self, cuda: Any, model: Bridge) -> None:
        self.cuda, self.model = cuda, model
        self.objects: dict[str, Any] = {
            f"{letter}{device}": cuda.default_stream(device, per_thread=letter == "T")
            for letter in "LT"
            for device in range(2)
        }
        # Of streams that may be gone from the program, but not from what holds them.
        self.handles = {name: stream.handle for name, stream in self.objects.items()}
        self.arrays: dict[str, weakref.ref[Any]] = {}
        self.memory: dict[str, int] = {}
        self.pendings: dict[str, Any] = {}
        self.closed: dict[str | None, Any] = {}

    def _newstream(self, step: s.NewStream) -> Any:
        made = self.cuda.stream(
            step.name,
            device=step.device,
            blocking=step.blocking,
            handle_of=self.closed.get(step.again),
        )
        self.handles[step.name] = made.handle
        return made

    def _newarray(self, step: s.NewArray) -> Any:
        shape, strides, offset = s.LAYOUTS[step.layout]
        itemsize = s.ITEMSIZE[step.dtype]
        if not isinstance(strides, str):
            strides = [stride * itemsize for stride in strides]
        made = self.cuda.array(
            fill=step.value,
            shape=shape,
            strides=strides,
            offset=offset * itemsize,
            dtype=step.dtype,
            speaks=() if STRANGE in step.speaks else step.speaks,
            stream=None if step.stream is None else self.objects[step.stream],
            device=step.device,
            memory=step.memory,
            readonly=step.readonly,
            name=step.name,
        )
        if step.memory in CHECK_MEMORY_OF:
            self.memory[step.name] = made.ptr
        return strangers.estranged(made, step.speaks) if STRANGE in step.speaks else made

    def _change(self, step: s.Change) -> None:
        strangers.change(self.objects[step.array], step.speaks)

    def _lie(self, step: s.Lie) -> None:
        if not strangers.TOLD[step.about](self.objects[step.array], self.heard):
            raise Wrong(f"{step.about} taken", f"{step}: nothing was raised, or another error")

    def _fill(self, step: s.Fill) -> None:
        array = self.objects[step.array]
        # A producer may write to what it hands out as read-only.
        if step.stream is None:
            _work.host_write(array._session, array, step.value, "assign")
            return
        if step.array[0] == "x":
            # As an exporter has to, the array keeps the streams that its dicts have named.
            array.streams = (*getattr(array, "streams", ()), array.stream)
        _work.fill(self.objects[step.stream], array, step.value, name="fill", checked=False)

    def _read(self, step: s.Read) -> Any:
        array = self.objects[step.array]
        if step.stream is None:
            compare(step.name, array.tolist(), self.model.seen[step.name])
            return None
        self.pendings[step.name] = self.objects[step.stream].read(array, name=step.name)
        return None

    def _wait(self, step: s.Wait) -> None:
        self.objects[step.then].wait(self.objects[step.first].record())

    def _sync(self, step: s.Sync) -> None:
        (self.cuda if step.stream is None else self.objects[step.stream]).synchronize()

    def _run(self, step: s.Run) -> None:
        self.cuda.run()

    def _setdevice(self, step: s.SetDevice) -> None:
        self.cuda.set_device(step.device)

    def _works(self, step: s.Works) -> None:
        """Do nothing: the library asks the model."""

    def _close(self, step: s.Close) -> None:
        self.closed[step.stream] = self.objects.pop(step.stream)
        self.closed[step.stream].destroy()

    def _reset(self, step: s.Reset) -> None:
        self.cuda.reset_device(step.device)
        for name in [name for name in self.objects if name[0] == "s"]:
            if name not in self.model.named:
                del self.objects[name]
        for name in self.model.lost:
            self.memory.pop(name, None)

    def _begin(self, step: s.Begin) -> Any:
        return self.cuda.capture(self.objects[step.stream], step.mode).__enter__()

    def _end(self, step: s.End) -> None:
        self.objects[step.graph].__exit__(None, None, None)

    def _replay(self, step: s.Replay) -> None:
        self.objects[step.graph].launch(self.objects[step.stream])

    doors = doors.Bridge()

    def stream(self, argument: s.Argument) -> Any:
        if not isinstance(argument, str):
            return argument
        name, _, form = argument.partition(".")
        stream = self.objects[name]
        return {"": stream, "handle": stream.handle}.get(form) or foreign.external(stream)

    def current(self, argument: s.Argument) -> AbstractContextManager[Any]:
        stream = self.stream(argument)
        return contextlib.nullcontext() if stream is None else self.cuda.current_stream(stream)

    def _carry_out(self, step: s.Step) -> Any:
        """Do what a step says, while its stream is current."""
        with self.current(step.within()[-1]):
            return step.method(self)(step)

    def _tocai(self, step: s.ToCai) -> Any:
        return self.doors.to_cai(self.objects[step.source], step, self.stream(step.stream))

    def _tree(self, step: s.Tree) -> dict[str, Any]:
        first, sources = step.parts[0], [self.objects[part.source] for part in step.parts]
        sources += [ON_HOST] if step.host else []
        stream = self.stream(first.stream)
        made = cai_bridge.convert(sources, "cai", stream=stream, readonly=first.readonly)
        if step.host and made.pop() is not ON_HOST:
            raise Wrong("host", f"{step}: the host's array is another one")
        return dict(zip((part.name for part in step.parts), made, strict=True))

    def _call(self, step: s.Call) -> Any:
        taken, work, kept = step.taken, step.work, list[Any]()

        def function(view: Any) -> Any:
            with self.current(work.current):
                self.pendings[work.name] = self._taken_in(work, view, self.stream(work.stream))
            if step.keeps:
                kept.append(view)
            if step.how in {"raises", "keeps and raises"}:
                raise Odd
            return view if step.how == "returns" else None

        adapted = cai_bridge.adapt(
            function, stream=self.stream(taken.stream), readonly=taken.readonly, returns=None
        )
        with contextlib.suppress(Odd):
            adapted(self.objects[taken.source])
        return kept[0] if kept else None

    def _fromcai(self, step: s.FromCai) -> Any:
        source, stream, dtype = self.objects[step.source], self.stream(step.stream), None
        if step.as_dict and step.source[0] != "v":
            dtype = source.dtype.name
        elif step.as_dict and source.typestr[1:2] == "V":
            dtype = "bfloat16"
        return self.doors.from_cai(source, step, stream, dtype=dtype)

    def _export(self, step: s.Export | s.Copy) -> Any:
        return self.doors.export(self.objects[step.source], step, self.stream(step.stream))

    _copy = _export

    def _tohost(self, step: s.ToHost) -> None:
        capsule = self.objects[step.source].__dlpack__(dl_device=(1, 0), max_version=(1, 3))
        compare(step.name, foreign.on_host(capsule), self.model.seen[step.name])

    def _consume(self, step: s.Consume) -> None:
        source, stream = self.objects[step.source], self.stream(step.stream)
        self.pendings[step.name] = self._taken_in(step, source, stream)

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
            source = doors.Asked(source, **asked)
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

    def _attempt(self, step: s.Attempt) -> None:
        self.cuda.fail(step.call, step.nth, step.error)
        try:
            made = self._carry_out(step.step)
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
            made = self._carry_out(step.step)
        except DriverError as error:
            self.heard(error)
            if "graph capture" not in str(error):
                raise
            return
        del made
        raise Wrong("not refused", f"{step.step} is not refused during a capture")

    def _release(self, step: s.Release) -> None:
        view, said = self.objects[step.view], self.stream(step.stream)
        block = step.how == "with"
        doors.in_thread(step.elsewhere, lambda: self.doors.release(view, said, block=block))

    def _drop(self, step: s.Drop) -> None:
        what, how = step.what, step.how
        pending = self.pendings.get(what)
        if pending is None:
            doors.in_thread(how == "thread", lambda: self.objects.pop(what) and None)
        elif how == "thread" or not isinstance(pending._held, foreign.ByHand):
            doors.in_thread(how == "thread", pending.release)
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

    def run(self, step: s.Step) -> None:
        """Carry a step out, and compare."""
        before = self.cuda.current_device
        made = self._carry_out(step)
        name = step.makes()
        if isinstance(step, s.Tree):
            self.objects.update(made)
        elif name is not None:
            self.objects[name] = made
            if name[0] in "xy":
                self.arrays[name] = weakref.ref(made)
        del made
        if isinstance(step, s.SetDevice):
            before = step.device
        if self.cuda.current_device != before:
            raise Wrong("device", f"the current device is {self.cuda.current_device}, not {before}")
        self._look_at_arrays(step)
        if isinstance(step, s.ToCai | s.FromCai | s.Adopt):
            self._compare(step.name)
        for part in step.parts if isinstance(step, s.Tree) else ():
            self._compare(part.name)

    def _look_at_arrays(self, step: s.Step) -> None:
        alive = self.model.alive()
        for array, gone in list(self.arrays.items()):
            if gone() is not None and self.model.may_live(array):
                continue
            if (gone() is not None) != (array in alive):
                state = "alive" if gone() is not None else "gone"
                raise Wrong(f"an array is {state}", f"{array} is {state} after: {step}")
            if array not in alive:
                del self.arrays[array]

    def _compare(self, name: str) -> None:
        made, view = self.objects[name], self.model.views[name]
        array = self.model.arrays[view.array]
        if array.empty:
            return
        ready = None if view.ready is None else self.handles[view.ready]
        said, expected = (made.stream, made.readonly), (ready, view.readonly)
        if said != expected:
            raise Wrong("view", f"{name} says {said}; the model {expected} (stream, read-only)")
        if view.gpus and made.device != (2, view.at):
            raise Wrong("view", f"{name} is on {made.device}; the model has it on (2, {view.at})")

    def finish(self) -> None:
        """Wait, compare what was read, and let go of everything: nothing may be left."""
        self.cuda.synchronize()
        if strangers.twice:
            raise Wrong("twice", f"deleted again: {strangers.twice.pop()}")
        for name, pending in self.pendings.items():
            expected = self.model.seen[name]
            if expected is not None:
                compare(name, pending.value, expected)
            pending.release()
        if self.model.garbage:
            gc.collect()
        views = {name: made for name, made in self.objects.items() if name[0] in "vky"}
        for name in views:
            del self.objects[name]
        views.clear()
        # A tensor that is let go of by the bridge may be a holder of the bridge's itself.
        for _ in range(2):
            self.cuda.synchronize()
            self._look(s.Look())
        arrays = {name: made for name, made in self.objects.items() if name[0] == "x"}
        self.objects.clear()
        for name, array in arrays.items():
            if array.exports:
                raise Wrong("leak", f"{name} has {array.exports} exports at the end")
        alive = list(arrays)
        arrays.clear()
        array = None
        left = [name for name, gone in self.arrays.items() if gone() is not None]
        if left:
            raise Wrong("leak", f"{left} of {alive} live on at the end")
        self._look_at_memory()

    def _look_at_memory(self) -> None:
        session = self.cuda._session
        kept = [
            name for name, ptr in self.memory.items() if ptr and session.device_of(ptr) is not None
        ]
        if kept:
            raise Wrong("leak", f"the memory of {kept} was not freed")


def run(
    program: s.Steps, model: Bridge, watch: Callable[[Any, int], None] | None = None
) -> Failure | None:
    """Run a program; tell what went wrong, if anything. `watch` looks before each step."""
    failure = None
    try:
        with simulated_cuda(devices=2, check=False) as cuda:
            machine = Machine(cuda, model)
            try:
                with Registered(machine):
                    failure = _carried_out(program, machine, watch)
            finally:
                # Before the device goes, with which everything ends that can.
                cuda.clear_faults()
                machine.objects.clear()
                machine.pendings.clear()
    except DriverError:
        # What failed may have left a capture open, and the end of the block waits for the device.
        if failure is None:
            raise
    return failure


def _carried_out(
    program: s.Steps, machine: Machine, watch: Callable[[Any, int], None] | None
) -> Failure | None:
    cuda = machine.cuda
    try:
        for number, step in enumerate(program):
            if watch is not None:
                watch(cuda, number)
            machine.model.take(step)
            machine.run(step)
            if cuda._session.reports():
                break
        else:
            if watch is not None:
                watch(cuda, len(program))
            machine.finish()
        return reported(cuda)
    except Wrong as wrong:
        # A wrong value is the race's; the report says more.
        return reported(cuda) or wrong.failure
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        call = getattr(error, "call", "")
        return Failure(f"exception: {type(error).__name__} {call}".strip(), text)


def reported(cuda: Any) -> Failure | None:
    if not cuda._session.reports():
        return None
    report = cuda.reports[0]
    return Failure(f"report: {report.kind}", str(report))
