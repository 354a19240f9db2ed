"""A program that runs on the simulated device: each step, and what must be true after it.

After each step the arrays that the model lets go of must be gone and the others alive; views must
say what the model says of them.
"""

from __future__ import annotations

import gc
import weakref

from .. import steps as s
from . import strangers
from .hands import Hands
from .objects import Failure, Wrong, compare

__all__ = ["Failure", "Machine", "Wrong"]


class Machine(Hands):
    """A program that runs."""

    def run(self, step: s.Step) -> None:
        """Carry a step out, and compare."""
        before = self.cuda.current_device
        made = step.method(self)(step)
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
        """A view says what the model has of it."""
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

    # --- the end of the program -------------------------------------------------------------------

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
