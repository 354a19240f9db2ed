"""What the scenes of a program are put together of."""

from __future__ import annotations

from .. import steps as s
from .draw import Drawing


class Parts(Drawing):
    """A program in the making: parts of its scenes."""

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
