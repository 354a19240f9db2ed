"""Draws programs at random, step by step. The same seed makes the same program."""

from __future__ import annotations

from collections.abc import Callable

from . import steps as s
from .draw import CAI_CONSUMERS, DLPACK_CONSUMERS, Drawing
from .handover import Bridge


class Draw(Drawing):
    """A program in the making: what takes several steps."""

    # --- several steps ----------------------------------------------------------------------------

    def chain(self) -> None:
        """An array is written, handed over and consumed; then perhaps all is dropped and reused."""
        array = self.one("x")
        if array is None or self.random.random() < 0.5:
            array = self._pushed(self.new_array())
        if array is None:
            return
        device = self.model.arrays[array].device
        self.made += 1
        self.push(s.Fill(array, self.made, self.stream(device)))
        source, views, reads = array, [], []
        for _ in range(self.pick((1, 1, 2, 3))):
            made = self._pushed(self._door(source))
            if made is None:
                break
            views.append(made)
            source = made
        for view in views[-2:]:
            reads.append(self._pushed(self._consumer(view)))
        if views and self.random.random() < 0.6:
            self._reuse([array, *views, *(read for read in reads if read)])

    def copies(self) -> None:
        """A copy, consumed while the array is written again; then some of it is dropped."""
        if self.random.random() < 0.5:
            sources = [x for x in self.named("x") if self.model._cai(self.model.arrays[x])]
            sources += [v for v in self.named("v") if self.model.views[v].kind == "cai"]
            if sources:
                self.push(self._taken_in(self.pick(sources)))
        made = self._pushed(self.copy())
        if made is None:
            return
        source = self.model.views[self.program[-1].source].array
        if source in self.model.named and self.random.random() < 0.6:
            self.made += 1
            pending = self.model.arrays[source].pending
            self.push(s.Fill(source, self.made, pending))
        stream = self.model.arrays[self.model.views[made].array].copied_on
        if self.random.random() < 0.5:
            reads = [made, self._pushed(s.Consume(self.name("p"), made, "capsule", stream))]
        else:
            view = self._pushed(s.ToCai(self.name("v"), made, self.pick((-1, stream))))
            reads = [view, view and self._pushed(self._consumer(view))]
        for name in reads:
            if name in self.model.named and self.random.random() < 0.7:
                self.push(s.Drop(name, self.random.random() < 0.2))

    def _pushed(self, step: s.Step | None) -> str | None:
        return step.makes() if step is not None and self.push(step) else None

    def _taken_in(self, source: str) -> s.Step:
        device = self._device(source)
        current = self._current(source, device)
        return s.FromCai(self.name("v"), source, self.argument(device), None, current)

    def _door(self, source: str) -> s.Step:
        device = self._device(source)
        if source[0] == "x":
            speaks = self.model.arrays[source].speaks
            to = "cai3" not in speaks or self.random.random() < 0.3
        else:
            to = self.model.views[source].kind == "dlpack"
        current = self._current(source, device)
        argument = self.argument(device) if to or self.random.random() < 0.2 else None
        door = s.ToCai if to else s.FromCai
        return door(self.name("v"), source, argument, None, current)

    def _consumer(self, view: str) -> s.Step:
        known = self.model.views[view]
        device = self._device(view)
        kinds = CAI_CONSUMERS if known.kind == "cai" else DLPACK_CONSUMERS
        kind, stream = self.pick(kinds), self.stream(device)
        if kind == "cai-trusting" and known.ready in self.model.named:
            stream = known.ready
        self.made += 1
        value = self.made if self.random.random() < 0.2 else None
        asks = kind == "dlpack" and self.random.random() < 0.6
        return s.Consume(self.name("p"), view, kind, stream, value, asks)

    def _reuse(self, names: list[str]) -> None:
        """Let go of things in some order, and take the memory again."""
        self.random.shuffle(names)
        array = next(name for name in names if name[0] == "x")
        spec = self.model.arrays[array]
        for name in names:
            thread = self.random.random() < 0.1
            if name[0] == "v" and self.random.random() < 0.4:
                self.push(self._releasing(name, thread))
            self.push(s.Drop(name, thread))
        pool = spec.pool
        if pool is not None and (s.is_default(pool) or pool in self.model.named):
            self.made += 1
            made = s.NewArray(self.name("x"), self.made, spec.speaks, pool, spec.device, "pool")
            self.push(made)

    def _releasing(self, view: str, thread: bool) -> s.Step:
        how = "with" if self.random.random() < 0.3 else "release"
        stream = None
        if how == "release" and self.random.random() < 0.6:
            stream = self.argument(self._device(view))
        return s.Release(view, stream, how, thread)

    # --- captures ---------------------------------------------------------------------------------

    def capture(self) -> None:
        """A capture from begin to end, and its launches; nothing where it does not work out."""
        model, program = self.model, len(self.program)
        graph = self.name("g")
        device = int(self.random.random() < 0.2)
        arrays = [x for x in self.named("x") if model.arrays[x].device == device]
        streams = [*self.named("s", device), f"T{device}"]
        origin = self.pick(streams)
        mode = self.pick(("global", "thread_local", "relaxed"))
        done = bool(arrays) and self.push(s.Begin(graph, origin, mode))
        for _ in range(self.random.randint(1, 6) if done else 0):
            made = self.pick(CAPTURED)
            self.push(made(self))
        while done and self.model.capture is not None:
            members = self.model.capture.members
            open_ = [m for m in members if members[m] & ~members[origin]]
            step = s.Wait(origin, self.pick(open_)) if open_ else s.End(graph)
            done = self.push(step)
        if not done:
            self.model = model
            del self.program[program:]
            return
        for _ in range(self.random.randint(1, 3)):
            self.push(s.Replay(graph, self.stream(device)))


CAPTURED: tuple[Callable[[Draw], s.Step | None], ...] = (
    *(Draw.fill, Draw.read, Draw.to_cai, Draw.to_cai, Draw.from_cai, Draw.export),
    *(Draw.consume, Draw.consume, Draw.consume, Draw.wait, Draw.drop, Draw.release),
)
KINDS: dict[Callable[[Draw], object], int] = {
    Draw.new_stream: 4,
    Draw.chain: 14,
    Draw.new_array: 6,
    Draw.fill: 8,
    Draw.read: 6,
    Draw.to_cai: 10,
    Draw.from_cai: 8,
    Draw.export: 7,
    Draw.copy: 2,
    Draw.copies: 12,
    Draw.consume: 16,
    Draw.release: 5,
    Draw.drop: 8,
    Draw.cycle: 4,
    Draw.collect: 12,
    Draw.wait: 1,
    Draw.sync: 1,
    Draw.run: 2,
    Draw.look: 4,
    Draw.set_device: 1,
    Draw.attempt: 3,
    Draw.capture: 2,
}
CHOICES, WEIGHTS = tuple(KINDS), tuple(KINDS.values())


def program(seed: int, model: Bridge | None = None) -> s.Program:
    """Draw the program of a seed."""
    draw = Draw(seed, model or Bridge())
    wanted = draw.random.randint(5, 25)
    draw.push(draw.new_stream())
    draw.push(draw.new_stream())
    draw.push(draw.new_array())
    for kind in draw.random.choices(CHOICES, WEIGHTS, k=wanted * 3):
        for _ in range(3):
            made = kind(draw)
            if made is None or draw.push(made):
                break
        if len(draw.program) >= wanted:
            break
    draw.push(s.Sync(None))
    return tuple(draw.program)
