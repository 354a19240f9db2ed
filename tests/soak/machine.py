"""The objects of a program that runs on the simulated device: each step as the public API has it.

After each step the arrays that the model lets go of must be gone and the others alive; views must
say what the model says of them.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cai_bridge
from cai_bridge import DriverError
from cai_bridge.conformance import in_another_thread

from . import steps as s
from .handover import Bridge

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


class Asker:
    """A view that is asked with the stream object, or a capsule that somebody hands on."""

    def __init__(self, view: Any, stream: Any = None) -> None:
        self.view, self.stream = view, stream

    def __dlpack__(self, *, stream: Any = None, **version: Any) -> Any:
        if self.stream is None:
            return self.view
        return self.view.__dlpack__(stream=self.stream, **version)


class Machine:
    """The objects of a program that runs."""

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

    def run(self, step: s.Step) -> None:
        """Carry a step out, and compare."""
        before = self.cuda.current_device
        made = getattr(self, "_" + type(step).__name__.lower())(step)
        name = step.makes()
        if name is not None:
            self.objects[name] = made
        del made
        if isinstance(step, s.SetDevice):
            before = step.device
        if self.cuda.current_device != before:
            raise Wrong("device", f"the current device is {self.cuda.current_device}, not {before}")
        alive = self.model.alive()
        for array, gone in list(self.arrays.items()):
            if gone() is not None and self.model.may_live(array):
                continue
            if (gone() is not None) != (array in alive):
                state = "alive" if gone() is not None else "gone"
                raise Wrong(f"an array is {state}", f"{array} is {state} after: {step}")
            if array not in alive:
                del self.arrays[array]
        if isinstance(step, s.ToCai | s.FromCai):
            self._compare(step.name)

    def _compare(self, name: str) -> None:
        """A view says what the model has of it."""
        made, view = self.objects[name], self.model.views[name]
        array = self.model.arrays[view.array]
        if array.empty:
            return
        ready = None if view.ready is None else self.handles[view.ready]
        said, expected = (made.stream, made.readonly), (ready, view.readonly)
        if said != expected:
            raise Wrong("view", f"{name} says {said}; the model {expected} (stream, read-only)")

    def stream(self, argument: s.Argument) -> Any:
        if not isinstance(argument, str):
            return argument
        name, _, bare = argument.partition(".")
        return self.objects[name].handle if bare else self.objects[name]

    # --- the program's own work -------------------------------------------------------------------

    def _newstream(self, step: s.NewStream) -> Any:
        made = self.cuda.stream(step.name, device=step.device, blocking=step.blocking)
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
            speaks=step.speaks,
            stream=None if step.stream is None else self.objects[step.stream],
            device=step.device,
            memory=step.memory,
            readonly=step.readonly,
            name=step.name,
        )
        self.arrays[step.name] = weakref.ref(made)
        if step.memory in CHECK_MEMORY_OF:
            self.memory[step.name] = made.ptr
        return made

    def _fill(self, step: s.Fill) -> None:
        if step.stream is None:
            self.objects[step.array].assign(step.value)
        else:
            # As an exporter has to, the array keeps the streams that its dicts have named.
            array = self.objects[step.array]
            array.streams = (*getattr(array, "streams", ()), array.stream)
            self.objects[step.stream].fill(array, step.value)

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

    def _look(self, step: s.Look) -> None:
        nothing = {"shape": (0,), "typestr": "|u1", "data": (0, False), "version": 3}
        cai_bridge.from_cai(nothing, owner=self, device=0).release()

    def _setdevice(self, step: s.SetDevice) -> None:
        self.cuda.set_device(step.device)

    def _begin(self, step: s.Begin) -> Any:
        return self.cuda.capture(self.objects[step.stream], step.mode).__enter__()

    def _end(self, step: s.End) -> None:
        self.objects[step.graph].__exit__(None, None, None)

    def _replay(self, step: s.Replay) -> None:
        self.objects[step.graph].launch(self.objects[step.stream])

    # --- hand-overs -------------------------------------------------------------------------------

    def _with_current(self, current: str | None, call: Callable[[], Any]) -> Any:
        if current is None:
            return call()
        with self.cuda.current_stream(self.objects[current]):
            return call()

    def _tocai(self, step: s.ToCai) -> Any:
        source, stream = self.objects[step.source], self.stream(step.stream)
        call = lambda: cai_bridge.to_cai(source, stream=stream, readonly=step.readonly)  # noqa: E731
        return self._with_current(step.current, call)

    def _fromcai(self, step: s.FromCai) -> Any:
        source = self.objects[step.source]
        arguments: dict[str, Any] = {"stream": self.stream(step.stream), "readonly": step.readonly}
        if step.as_dict:
            arguments["owner"] = source
            arguments["dtype"] = source.dtype.name
            source = source.__cuda_array_interface__
        return self._with_current(step.current, lambda: cai_bridge.from_cai(source, **arguments))

    def _export(self, step: s.Export) -> Any:
        version = {"max_version": (1, 3)} if step.versioned else {}
        return self.objects[step.source].__dlpack__(stream=self.stream(step.stream), **version)

    def _copy(self, step: s.Copy) -> Any:
        version = {"max_version": (1, 3)} if step.versioned else {}
        source, stream = self.objects[step.source], self.stream(step.stream)
        return source.__dlpack__(stream=stream, copy=True, **version)

    def _consume(self, step: s.Consume) -> None:
        source, stream = self.objects[step.source], self.objects[step.stream]
        kind = "dlpack" if step.kind == "capsule" else step.kind
        if step.kind == "capsule":
            source = Asker(source)
        elif step.as_object:
            source = Asker(source, stream)
        consumer = self.cuda.consumer(kind, stream)
        if step.value is None:
            pending = consumer.read(source, name=step.name)
        else:
            pending = consumer.write(source, step.value, name=step.name)
        self.pendings[step.name] = pending

    def _attempt(self, step: s.Attempt) -> None:
        self.cuda.fail(step.call, step.nth, step.error)
        try:
            made = getattr(self, "_" + type(step.step).__name__.lower())(step.step)
            self.cuda.clear_faults()
            del made
        except DriverError as error:
            if error.call != step.call:
                raise Wrong(
                    "error", f"{step.call} failed, and the error names {error.call}"
                ) from error
            if self.cuda.clear_faults():
                raise Wrong("error", f"{error} without a fault") from error
            if isinstance(step.step, s.Release):
                if self.objects[step.step.view].owner is None:
                    raise Wrong("error", f"let go of in spite of {error}") from error
                self._release(step.step)
        self.cuda.clear_faults()

    # --- the end of things ------------------------------------------------------------------------

    def _release(self, step: s.Release) -> None:
        view = self.objects[step.view]
        if step.how == "with":
            in_thread(step.thread, lambda: view.__enter__().__exit__(None, None, None))
        elif step.stream is None:
            in_thread(step.thread, view.release)
        else:
            stream = self.stream(step.stream)
            in_thread(step.thread, lambda: view.release(stream))

    def _drop(self, step: s.Drop) -> None:
        if step.what in self.pendings:
            in_thread(step.thread, self.pendings[step.what].release)
            return
        in_thread(step.thread, lambda: self.objects.pop(step.what) and None)

    def _cycle(self, step: s.Cycle) -> None:
        view = self.objects.pop(step.view)
        if step.through_owner:
            del self.objects[self.model.views[step.view].array]
            view.owner.mine = view
            return
        box = [view]
        box.append(box)

    def _collect(self, step: s.Collect) -> None:
        gc.collect()

    # --- the end of the program -------------------------------------------------------------------

    def finish(self) -> None:
        """Wait, compare what was read, and let go of everything: nothing may be left."""
        self.cuda.synchronize()
        for name, pending in self.pendings.items():
            expected = self.model.seen[name]
            if expected is not None:
                compare(name, pending.value, expected)
            pending.release()
        if self.model.garbage:
            gc.collect()
        views = {name: made for name, made in self.objects.items() if name[0] in "vk"}
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
        session = self.cuda._session
        kept = [
            name for name, ptr in self.memory.items() if ptr and session.device_of(ptr) is not None
        ]
        if kept:
            raise Wrong("leak", f"the memory of {kept} was not freed")


def in_thread(thread: bool, call: Callable[[], object]) -> None:
    if thread:
        in_another_thread(call)
    else:
        call()


def compare(name: str, value: Any, expected: tuple[str, int] | None) -> None:
    """All items must be the one value that was written last."""
    assert expected is not None
    items = [value]
    while items and isinstance(items[0], list):
        items = [item for row in items for item in row]
    if any(item != expected[1] for item in items):
        raise Wrong(
            "value", f"{name} of {expected[0]}: got {value}; expected {expected[1]} everywhere"
        )
