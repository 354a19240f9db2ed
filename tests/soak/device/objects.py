"""The objects of a program that runs on the simulated device, and the program's own work."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cai_bridge.testing import _work

from .. import steps as s
from . import strangers
from .bridge import Bridge
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


class Objects:
    """The objects, by the names that the program has for them."""

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
