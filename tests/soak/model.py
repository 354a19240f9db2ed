"""What each step of a program promises, by the tables of the README; refuses what is not promised.

The model is the oracle: the value that each read must see, the stream that each view must name, and
which arrays are alive after each step.
"""

from __future__ import annotations

from typing import NamedTuple

from . import steps as s
from .order import HOST, Order, Refused

RETURN_EDGE = False


class Array(NamedTuple):
    """An array of the program."""

    device: int
    speaks: tuple[str, ...]
    readonly: bool
    empty: bool
    pool: str | None
    pending: str | None
    compact: bool


class View(NamedTuple):
    """A view, or a capsule or tensor that was made of an array."""

    array: str
    ready: str | None
    readonly: bool
    # Who waits for whom when it goes: the consumer's stream, and the producer's.
    consumer: str | None = None
    producer: str | None = None
    kind: str = ""
    of_capsule: bool = False


def wants(condition: object, why: str = "cannot be done") -> None:
    """Refuse the step unless that is so."""
    if not condition:
        raise Refused(why)


class Model(Order):
    """The state of a program. `take` carries a step out, or raises and is to be thrown away."""

    def __init__(self, *, return_edge: bool | None = None) -> None:
        super().__init__()
        self.return_edge = RETURN_EDGE if return_edge is None else return_edge
        self.device = 0
        self.arrays: dict[str, Array] = {}
        self.views: dict[str, View] = {}
        # The value that an array has, and that a read or write must have seen.
        self.values: dict[str, int] = {}
        self.seen: dict[str, tuple[str, int] | None] = {}
        self.freed: dict[str, int] = {}
        # References: who holds what, how many hold it, and what the program has a name for.
        self.holds: dict[str, tuple[str, ...]] = {}
        self.count: dict[str, int] = {}
        self.named: dict[str, bool] = {}
        self.garbage: tuple[str, ...] = ()
        self.work_on: dict[int, str] = {}

    def take(self, step: s.Step) -> None:
        for name in step.needs():
            wants(name in self.named, f"{name} is gone")
        getattr(self, "_" + type(step).__name__.lower())(step)
        self.number += 1

    # --- who holds what ---------------------------------------------------------------------------

    def _add(self, name: str, *held: str | None, named: bool = True) -> None:
        self.holds[name] = tuple(h for h in held if h is not None and not s.is_default(h))
        for other in self.holds[name]:
            self.count[other] += 1
        self.count[name] = 1
        if named:
            self.named[name] = True

    def _less(self, name: str) -> None:
        self.count[name] -= 1
        if self.count[name]:
            return
        del self.count[name]
        if name[0] == "m" and not self.arrays["x" + name[1:]].empty:
            self._free("x" + name[1:])
        self._let_go(name)

    def _let_go(self, name: str) -> None:
        """The end of a view, a capsule or an import: the return edge, and then the references."""
        if name not in self.holds:
            return
        view = self.views.get(name)
        if view is not None and self.return_edge and not self.arrays[view.array].empty:
            self.edge(self._vouched(view.consumer), view.producer)
        for other in self.holds.pop(name):
            self._less(other)

    def _vouched(self, stream: str | None) -> str | None:
        return stream if stream is not None and self._alive(stream) else None

    def _free(self, name: str) -> None:
        self.outside()
        pool = self.arrays[name].pool
        bit = self.free(pool or HOST, name)
        if pool is not None:
            self.freed[pool] = self.freed.get(pool, 0) | bit

    def _alive(self, stream: str) -> bool:
        return s.is_default(stream) or stream in self.count

    def _usable(self, stream: str | None) -> str | None:
        wants(stream is None or self._alive(stream), "a dead stream")
        return stream

    def alive(self) -> frozenset[str]:
        """The arrays that must be alive."""
        return frozenset(name for name in self.count if name[0] == "x")

    # --- the program's own work -------------------------------------------------------------------

    def _newstream(self, step: s.NewStream) -> None:
        wants(self.capture is None)
        self.lane(step.name, step.device, "blocking" if step.blocking else "non-blocking")
        self._add(step.name)

    def _newarray(self, step: s.NewArray) -> None:
        self.outside()
        empty = step.layout == "empty"
        device = step.device if step.stream is None else self.lanes[step.stream].device
        wants(device == step.device and not (step.memory == "pool" and step.stream is None))
        legacy_only = any(kind in step.speaks for kind in ("dlpack-strict", "dlpack-legacy"))
        wants(not (step.readonly and (legacy_only or "dlpack-bare" in step.speaks)))
        pool = step.stream if step.memory == "pool" else None
        compact = step.layout in {"vector", "matrix", "scalar", "offset", "empty"}
        array = Array(device, step.speaks, step.readonly, empty, pool, step.stream, compact)
        self.arrays[step.name] = array
        # The array itself, and its memory, which its exports hold.
        memory = "m" + step.name[1:]
        self._add(memory, named=False)
        self._add(step.name, memory, step.stream)
        self.count[memory] -= 1
        if empty:
            self._no_bytes(step.stream or HOST)
        else:
            self.blocks[step.name] = (self.freed.get(pool, 0), 0)
            self.access(step.stream or HOST, step.name, write=True)
        self.values[step.name] = step.value

    def _fill(self, step: s.Fill) -> None:
        self._write(step.array, step.stream or HOST, step.value)
        if step.stream is None:
            return
        wants(self.lanes[step.stream].device == self.arrays[step.array].device)
        self.arrays[step.array] = self.arrays[step.array]._replace(pending=step.stream)
        memory, *before = self.holds[step.array]
        after = () if s.is_default(step.stream) else (step.stream,)
        self.holds[step.array] = (memory, *after)
        for stream in after:
            self.count[stream] += 1
        for stream in before:
            self._less(stream)

    def _read(self, step: s.Read) -> None:
        self._see(step.name, step.array, step.stream or HOST)
        self._add(step.name)

    def _write(self, array: str, place: str, value: int) -> None:
        if self.arrays[array].empty:
            self._no_bytes(place)
            return
        if self.access(place, array, write=True, effect=("write", array, value)):
            self.values[array] = value

    def _no_bytes(self, place: str) -> None:
        """Queue work that touches nothing: an action for the simulated device, if not a promise."""
        self.outside()
        if not self.strict and place != HOST:
            self.advance(place)

    def _see(self, name: str, array: str, place: str) -> None:
        self.seen[name] = None
        if self.arrays[array].empty:
            self._no_bytes(place)
            self.seen[name] = (array, 0)
        elif self.access(place, array, write=False, effect=("read", name + " " + array, 0)):
            self.seen[name] = (array, self.values[array])

    def _wait(self, step: s.Wait) -> None:
        wants(step.first != step.then)
        self.edge(step.first, step.then)

    def _sync(self, step: s.Sync) -> None:
        self.wait_on_host(step.stream)

    def _run(self, step: s.Run) -> None:
        del step

    def _setdevice(self, step: s.SetDevice) -> None:
        self.device = step.device

    # --- captures ---------------------------------------------------------------------------------

    def _begin(self, step: s.Begin) -> None:
        self.begin(step.name, step.stream)
        self._add(step.name)

    def _end(self, step: s.End) -> None:
        self.end(step.graph)

    def _replay(self, step: s.Replay) -> None:
        for what, name, value in self.replay(step.graph, step.stream):
            if what == "write":
                wants("m" + name[1:] in self.count, "the graph's memory is gone")
                self.values[name] = value
            else:
                read, array = name.split()
                wants("m" + array[1:] in self.count, "the graph's memory is gone")
                self.seen[read] = (array, self.values[array])

    # --- the end of things ------------------------------------------------------------------------

    def _release(self, step: s.Release) -> None:
        view = self.views[step.view]
        wants(step.how != "with" or step.view in self.holds, "released already")
        if step.stream is not None:
            stream = self._usable(s.stream_of(step.stream))
            self.views[step.view] = view._replace(consumer=self._known(step.stream, stream))
        self._let_go(step.view)

    def _drop(self, step: s.Drop) -> None:
        if step.what[0] == "s":
            # Torch's streams, which its exchange API names by a bare handle, never die.
            wants(step.what not in self.work_on.values())
        del self.named[step.what]
        self._less(step.what)

    def _cycle(self, step: s.Cycle) -> None:
        wants(not self.garbage and step.view in self.holds and self.capture is None)
        if step.through_owner:
            array = self.views[step.view].array
            wants(self.named.get(array) and self.count[array] == 2 and self.count[step.view] == 1)
            wants(array in self.holds[step.view] and not self.views[step.view].of_capsule)
            del self.named[array]
            self._less(array)
        del self.named[step.view]
        self.garbage = (step.view,)

    def _collect(self, step: s.Collect) -> None:
        for name in self.garbage:
            self._less(name)
        self.garbage = ()
