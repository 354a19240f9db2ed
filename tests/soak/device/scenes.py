"""Draws programs at random: single steps, and arrays that are handed over, consumed, written again.

The same seed makes the same program.
"""

from __future__ import annotations

from collections.abc import Callable

from .. import steps as s
from .draw import CAI_CONSUMERS, Drawing
from .handover import Bridge
from .strangers import LATE, STRANGE


class Draw(Drawing):
    """A program in the making: what takes several steps."""

    def written(self, speaks: tuple[str, ...] | None = None) -> str | None:
        """An array with pending work."""
        array = self.one("x") if speaks is None else None
        if array is None or self.chance(0.5):
            array = self.pushed(self.new_array(speaks))
        if array is not None:
            self.push(s.Fill(array, self.value(), self.worker(array)))
        return array

    def made_of(self, capsule: str) -> tuple[str | None, list[str]]:
        """Make a view of a capsule, by whomever: the view for DLPack, and all names."""
        how = self.pick(("adopt", "door", "relay", "relay"))
        if how == "adopt":
            view = self.pushed(s.Adopt(self.name("v"), capsule))
            return view, [view] if view else []
        made = capsule
        if how == "relay":
            relay = self.pushed(self.relay(capsule))
            if relay is None:
                return None, [capsule]
            self.push(self.pick((None, s.Fill(relay, self.made, self.worker(relay)))))
            made = relay
            if self.model.arrays[relay].speaks == ("cai3",):
                view = self.pushed(self.taken_in(relay))
                return view, [relay, *([view] if view else [])]
        dicts = self.pushed(s.ToCai(self.name("v"), made, self.argument(self.at(made))))
        view = dicts and self.pushed(self.taken_in(dicts))
        return view, [name for name in (made, dicts, view) if name in self.model.named]

    def taken_in(self, source: str) -> s.Step:
        device = self.place(source)
        works_on, gpu = self.works_on(source, device), self.gpu(source)
        argument = self.said(source, device) if self.chance(0.4) else None
        return s.FromCai(self.name("v"), source, argument, None, works_on, device=gpu)

    def door(self, source: str) -> s.Step:
        if source[0] == "x":
            speaks = self.model.arrays[source].speaks
            to = "cai3" not in speaks or self.chance(0.3)
        else:
            to = self.model.views[source].kind == "dlpack"
        if not to:
            return self.taken_in(source)
        works_on = self.works_on(source, self.at(source))
        argument, converts = self.said(source, self.at(source)), self.chance(0.3)
        return s.ToCai(self.name("v"), source, argument, None, works_on, converts)

    def consumer(self, view: str) -> s.Step | None:
        known, made = self.model.views[view], self.consume(view)
        if made is None or made.kind != "cai-trusting" or self.chance(0.5):
            return made
        # It works where the array is ready, or is made to wait.
        stream = known.ready if known.ready in self.model.named else made.stream
        return s.Consume(made.name, view, made.kind, stream, made.value, current=made.current)

    def by_address(self, view: str) -> s.Step | None:
        made = self.consume(view)
        return made and s.Consume(made.name, view, "address", made.stream, made.value)

    def reuse(self, names: list[str]) -> None:
        """Let go of things in some order, and write the memory again, or take it again."""
        self.random.shuffle(names)
        array = next((name for name in names if name[0] == "x"), None)
        if array is None:
            return
        spec = self.model.arrays[array]
        stays = self.chance(0.4)
        for name in names:
            if name[0] == "v" and self.chance(0.4):
                self.push(self.releasing(name, 0.1))
            if not (stays and name == array):
                self.push(self.dropping(name, 0.1))
        self.made += 1
        if stays and array in self.model.named and spec.pending is not None:
            self.push(s.Fill(array, self.made, spec.pending))
            return
        pool = spec.pool
        if pool is not None and (s.is_default(pool) or pool in self.model.named):
            made = s.NewArray(self.name("x"), self.made, spec.speaks, pool, spec.device, "pool")
            self.push(made)

    def chain(self) -> None:
        """An array is written, handed over and consumed; then perhaps all is dropped and reused."""
        array = self.written()
        if array is None:
            return
        source, views, reads = array, [], []
        for _ in range(self.pick((1, 1, 2, 3))):
            made = self.pushed(self.door(source))
            if made is None:
                break
            views.append(made)
            source = made
        for view in views[-2:]:
            reads.append(self.pushed(self.consumer(view)))
        if views and self.chance(0.6):
            self.reuse([array, *views, *(read for read in reads if read)])

    def works(self) -> s.Step:
        """A registered library moves to another stream; none there is one of its own no more."""
        device = int(self.chance(0.3))
        streams = self.named("s", device)
        if not streams or self.chance(0.1):
            return s.Works(device, None)
        return s.Works(device, self.pick(streams) + self.pick(("", "", ".handle", ".external")))

    def unnamed(self) -> None:
        """A dict or address is read by those who say nothing of where they work; all is dropped."""
        array = self.written()
        if array is None:
            return
        source = array
        if self.chance(0.3) and self.model.arrays[array].says("cai"):
            door = self.taken_in(array)
            source = self.pushed(door) or array
        works_on, read = self.works_on(source, self.at(source)), self.consumer
        made: s.Step = s.ToCai(self.name("v"), source, None, None, works_on)
        if source == array and self.model.arrays[array].says("cai") and self.chance(0.25):
            made, read = self.taken_in(array), self.by_address
        view = self.pushed(made)
        if view is None:
            return
        reads = [self.pushed(read(view)) for _ in range(self.pick((1, 1, 2)))]
        names = dict.fromkeys((array, view, source))
        self.reuse([*names, *(read for read in reads if read)])

    def nested(self) -> None:
        """What a view hands out becomes an array of others, which is handed over in turn."""
        array = self.written((self.pick(("cai3", "cai3", "cai2")),))
        view = array and self.pushed(self.taken_in(array))
        names = [name for name in (array, view) if name]
        for _ in range(self.pick((1, 2, 2, 3))):
            if view is None:
                break
            capsule = self.pushed(
                s.Export(self.name("k"), view, self.argument(self.at(view)), True)
            )
            if capsule is None:
                break
            view, found = self.made_of(capsule)
            names += found
        if view is not None and self.chance(0.7):
            names.append(str(self.pushed(self.consumer(view))))
        self.reuse([name for name in names if name in self.model.named])

    def ended(self) -> None:
        """A stream is destroyed, by its owner or with its last name, before what was done on it."""
        array = self.written()
        view = array and self.pushed(self.door(array))
        if array is None or view is None:
            return
        device = self.at(view)
        name, kind = self.name("s"), self.pick(("blocking", "non_blocking"))
        stream = self.pushed(s.NewStream(name, "cuda", kind, device))
        source = self.model.views[view].kind
        argument = None if stream is None else self.bare(stream)
        if source == "cai":
            held = self.pushed(s.ToCai(self.name("v"), view, argument))
        else:
            held = self.pushed(s.Export(self.name("k"), view, argument))
        if held is None or stream is None:
            return
        kind = "cai-enqueues" if source == "cai" else "capsule"
        by_hand = kind == "capsule" and self.chance(0.5)
        read = self.pushed(s.Consume(self.name("p"), held, kind, stream, by_hand=by_hand))
        self.push(self.pick((s.Close, s.Drop))(stream))
        if stream in self.model.free_handles and self.chance(0.7):
            name, kind = self.name("s"), "blocking" if self.chance(0.3) else "non_blocking"
            other = self.pushed(s.NewStream(name, "cuda", kind, device, stream))
            if other is not None and self.chance(0.7):
                self.push(s.Works(device, other))
        self.reuse([name for name in (array, view, held, read) if name in self.model.named])

    def copies(self) -> None:
        """A copy, consumed while the array is written again; then some of it is dropped."""
        if self.chance(0.5):
            sources = [x for x in self.named("xy") if self.model.arrays[x].says("cai")]
            sources += [v for v in self.named("v") if self.model.views[v].kind == "cai"]
            if sources:
                self.push(self.taken_in(self.pick(sources)))
        made = self.pushed(self.copy())
        if made is None:
            return
        source = self.model.views[self.steps[-1].source].array
        if source in self.model.named and self.chance(0.6):
            self.made += 1
            pending = self.model.arrays[source].pending
            self.push(s.Fill(source, self.made, pending))
        stream = self.model.arrays[self.model.views[made].array].copied_on
        if self.chance(0.5):
            consumed = s.Consume(self.name("p"), made, "capsule", stream, by_hand=self.chance(0.5))
            reads = [made, self.pushed(consumed)]
        else:
            view = self.pushed(s.ToCai(self.name("v"), made, self.pick((-1, stream))))
            reads = [view, view and self.pushed(self.consumer(view))]
        for name in reads:
            if name in self.model.named and self.chance(0.7):
                self.push(self.dropping(name, 0.2))

    def elsewhere(self) -> None:
        """Memory that every GPU works on is handed to the streams of the other one."""
        drawn = self.new_array()
        at = self.random.randint(0, 1)
        own, far = (self.pushed(self.new_stream_on(device)) for device in (at, 1 - at))
        array = self.pushed(
            s.NewArray(
                drawn.makes() or "",
                self.made,
                drawn.speaks,
                own or f"L{at}",
                at,
                self.pick(("managed", "pinned")),
            )
        )
        if array is None:
            return
        source, names = array, [array]
        for _ in range(self.pick((1, 2, 2, 3))):
            made = self.pushed(self.door(source))
            if made is None:
                break
            names.append(made)
            source = made
            if self.chance(0.6):
                names.append(self.pushed(self.consumer(source)) or "")
        if far and self.chance(0.3):
            self.push(self.pick((s.Close, s.Drop))(far))
        self.reuse([name for name in names if name in self.model.named])

    def declared(self) -> None:
        """A view is said to be ready on another stream, and whoever reads its dict works there."""
        array = self.written()
        if array is None:
            return
        works_on = self.works_on(array, self.at(array))
        names = [array, self.pushed(s.ToCai(self.name("v"), array, None, None, works_on)) or ""]
        pending = self.model.arrays[array].pending
        if not names[1] or pending is None:
            return
        stream = self.stream(self.at(names[1]))
        self.push(s.Wait(stream, pending))
        names += [self.pushed(s.FromCai(self.name("v"), names[1], stream)) or ""]
        if names[2]:
            names += [self.pushed(s.ToCai(self.name("v"), names[2])) or ""]
        if names[-1]:
            seen = s.Consume(self.name("p"), names[-1], "cai-enqueues", stream)
            names += [self.pushed(seen) or ""]
        self.reuse([name for name in names if name in self.model.named])

    def moved(self, array: str) -> None:
        """The producer goes on with an array on a stream, another one rather."""
        known = self.model.arrays[array]
        streams = [*self.named("s", known.device), f"L{known.device}", f"T{known.device}"]
        others = [stream for stream in streams if stream != known.pending]
        self.push(s.Fill(array, self.value(), self.pick(others)))

    def moving(self) -> None:
        """An exporter of dicts moves while its views are read, and where they end."""
        array = self.pushed(self.new_array((*self.pick(((), (), ("dlpack",))), "cai3")))
        if array is None:
            return
        if self.chance(0.5):
            self.moved(array)
        first = self.model.arrays[array].pending
        view = self.first_view(array, first)
        names = [array, *([view] if view else [])]
        for _ in range(self.pick((1, 1, 2, 3))):
            self.moved(array)
            view = self.one("v") if view is None or self.chance(0.2) else view
            if view is None or view not in self.model.holds:
                break
            made = self.pushed(self.look_again(view))
            names += [made] if made else []
            if made and made[0] == "v":
                view = made
        if self.chance(0.3):
            self.moved(array)
        if view in names and self.push(s.Cycle(view, self.chance(0.5))):
            self.push(self.pick((None, s.Collect())))
        self.reuse([name for name in names if name in self.model.named])
        if array in self.model.named:
            # Both streams are the producer's, where something else keeps the first one.
            self.push(s.Fill(array, self.value(), first))

    def silenced(self) -> None:
        """An exporter names its stream no more while a consumer has its memory."""
        array = self.written(("cai3", STRANGE))
        if array is None:
            return
        known = self.model.arrays[array]
        others = [one for one in self.named("s", known.device) if one != known.pending]
        argument = self.pick(others) if others else self.argument(known.device)
        current = self.works_on(array, known.device)
        view = self.pushed(s.ToCai(self.name("v"), array, argument, None, current))
        if view is None:
            return
        read = self.pushed(self.consumer(view))
        if self.push(s.Change(array, (LATE, STRANGE))):
            self.push(s.Release(view) if self.chance(0.3) else s.Drop(view))
            self.push(s.Fill(array, self.value(), known.pending))
        self.reuse([name for name in (array, view, read) if name in self.model.named])

    def first_view(self, array: str, first: str | None) -> str | None:
        """A view of an array, while a library may work on its stream."""
        device = self.model.arrays[array].device
        named = first is not None and self.chance(0.25)
        argument = self.bare(str(first)) if named else self.pick((None, None, -1))
        current = self.current(device, first, 0.6)
        if self.model.arrays[array].says("dlpack") is None and self.chance(0.4):
            return self.pushed(s.ToCai(self.name("v"), array, argument, None, current))
        return self.pushed(s.FromCai(self.name("v"), array, argument, None, current))

    def look_again(self, view: str) -> s.Step | None:
        """Whoever meets a view after its exporter has moved."""
        chance, at = self.random.random(), self.at(view)
        if self.model.views[view].kind == "cai":
            return self.consumer(view) if chance < 0.7 else self.taken_in(view)
        if chance < 0.35:
            argument = self.argument(at) if self.chance(0.3) else None
            return s.ToCai(self.name("v"), view, argument, None, self.current(at))
        if chance < 0.5:
            return s.Copy(self.name("k"), view, self.argument(at), True, self.current(at))
        if chance < 0.6:
            return s.ToHost(self.name("p"), view)
        if chance < 0.7:
            return s.Export(self.name("k"), view, self.argument(at), True, self.current(at))
        return self.consumer(view)

    def sources(self) -> list[str]:
        """What `convert` hands over in CAI's terms: all but what speaks them already."""
        self.push(self.export() if self.chance(0.3) else None)
        views = [view for view in self.named("v") if self.model.views[view].kind == "dlpack"]
        return [*self.named("xyk"), *views]

    def converted(self, source: str, argument: s.Argument, current: str | None) -> s.ToCai:
        return s.ToCai(self.name("v"), source, argument, None, current, converts=True)

    def tree(self) -> None:
        """Arrays and views go to one consumer by one call; it reads some, and all is dropped."""
        array = self.written()
        if array is not None and self.model.arrays[array].says("cai") and self.chance(0.6):
            self.push(self.taken_in(array))
        found = self.sources()
        if array is None or not found:
            return
        count = self.pick((1, 2, 2, 3))
        sources = [array, *(self.pick(found) for _ in range(count))]
        if any(one[0] == "k" and sources.count(one) > 1 for one in sources):
            return
        current, argument = self.works_on(array, self.at(array)), self.said(array, self.at(array))
        parts = tuple(self.converted(one, argument, current) for one in sources)
        if not self.push(s.Tree(parts, self.strange.random() < 0.3)):
            return
        made = [part.name for part in parts]
        reads = [self.pushed(self.consumer(view)) for view in made[:2]]
        self.reuse([*dict.fromkeys((*sources, *made)), *(read for read in reads if read)])

    def call(self) -> None:
        """A function is called by `adapt`, and may keep what it got; the caller goes on."""
        self.written()
        found = self.sources()
        if not found:
            return
        source = self.pick(found)
        at = self.at(source)
        current = self.works_on(source, at)
        taken = self.converted(source, self.said(source, at), current)
        stream = s.stream_of(taken.stream) if self.chance(0.7) else None
        kind, value = self.pick((*CAI_CONSUMERS, "address", "address")), None
        if self.chance(0.3):
            value = self.value()
        work = s.Consume(self.name("p"), taken.name, kind, stream or self.stream(at), value)
        how = self.pick((None, None, "keeps", "returns", "raises", "keeps and raises"))
        if not self.push(s.Call(taken, work, how)):
            return
        root = self.model.views[taken.name].array if taken.name in self.model.views else source
        if root in self.model.named and self.chance(0.6):
            self.push(s.Fill(root, self.value(), self.model.arrays[root].pending))
        if taken.name in self.model.holds and self.chance(0.5):
            self.push(self.consumer(taken.name))
        self.reuse([one for one in (root, taken.name, work.name) if one in self.model.named])

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
