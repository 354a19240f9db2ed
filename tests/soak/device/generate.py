"""Draws programs at random, step by step. The same seed makes the same program."""

from __future__ import annotations

from collections.abc import Callable

from .. import steps as s
from .bridge import Bridge
from .scenes import Scenes


class Draw(Scenes):
    """A program in the making: with captures."""

    def forked(self, array: str, origin: str, other: str) -> None:
        """Inside a capture an array is written, handed to another stream, and written again."""
        self.push(s.Fill(array, self.value(), origin))
        to = "cai3" not in self.model.arrays[array].speaks or self.chance(0.5)
        made: s.Step = s.ToCai(self.name("v"), array, other, None, origin)
        if not to:
            made = s.FromCai(self.name("v"), array, None, None, origin)
        view = self.pushed(made)
        if view is None:
            return
        kind = "cai-enqueues" if to else "dlpack"
        read = self.pushed(s.Consume(self.name("p"), view, kind, other))
        for name in (read, view):
            if name is not None:
                self.push(s.Drop(name))
        self.push(s.Fill(array, self.value(), origin))

    def capture(self) -> None:
        """A capture from begin to end, and its launches; nothing where it does not work out."""
        model, before = self.model, len(self.steps)
        graph = self.name("g")
        device = int(self.chance(0.2))
        arrays = [x for x in self.named("x") if model.arrays[x].device == device]
        streams = [*self.named("s", device), f"T{device}"]
        origin = self.pick(streams)
        mode = self.pick(("global", "thread_local", "relaxed"))
        done = bool(arrays) and self.push(s.Begin(graph, origin, mode))
        for _ in range(self.pick((0, 1, 2)) if done else 0):
            self.forked(self.pick(arrays), origin, self.pick(streams))
        for _ in range(self.random.randint(1, 6) if done else 0):
            made = self.pick(CAPTURED)(self)
            if not self.push(made) and isinstance(made, REFUSED):
                self.push(s.Refusal(made))
        while done and self.model.capture is not None:
            members = self.model.capture.members
            open_ = [m for m in members if members[m] & ~members[origin]]
            step = s.Wait(origin, self.pick(open_)) if open_ else s.End(graph)
            done = self.push(step)
        if not done:
            self.model = model
            del self.steps[before:]
            return
        for _ in range(self.random.randint(1, 3)):
            self.push(s.Replay(graph, self.stream(device)))


REFUSED = (s.ToCai, s.FromCai, s.Export, s.Release)
CAPTURED: tuple[Callable[[Draw], s.Step | None], ...] = (
    *(Draw.fill, Draw.read, Draw.to_cai, Draw.to_cai, Draw.from_cai, Draw.export),
    *(Draw.consume, Draw.consume, Draw.consume, Draw.wait, Draw.drop, Draw.release),
)
KINDS: dict[Callable[[Draw], object], int] = {
    Draw.new_stream: 4,
    Draw.works: 6,
    Draw.chain: 12,
    Draw.unnamed: 8,
    Draw.nested: 6,
    Draw.ended: 6,
    Draw.moving: 8,
    Draw.silenced: 4,
    Draw.declared: 4,
    Draw.elsewhere: 5,
    Draw.tree: 4,
    Draw.call: 6,
    Draw.new_array: 5,
    Draw.fill: 8,
    Draw.read: 6,
    Draw.to_cai: 8,
    Draw.from_cai: 7,
    Draw.export: 6,
    Draw.copy: 2,
    Draw.copies: 8,
    Draw.to_host: 2,
    Draw.consume: 14,
    Draw.relay: 3,
    Draw.adopt: 2,
    Draw.release: 5,
    Draw.drop: 8,
    Draw.cycle: 4,
    Draw.collect: 12,
    Draw.wait: 1,
    Draw.sync: 1,
    Draw.run: 2,
    Draw.look: 4,
    Draw.set_device: 1,
    Draw.close: 1,
    Draw.reset: 1,
    Draw.attempt: 3,
    Draw.capture: 4,
}
CHOICES, WEIGHTS = tuple(KINDS), tuple(KINDS.values())


def program(seed: int, model: Bridge | None = None) -> s.Steps:
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
                draw.push(draw.unsettled())
                break
        if len(draw.steps) >= wanted:
            break
    draw.push(s.Sync(None))
    return tuple(draw.steps)
