"""The whole model: with hand-overs of several arrays, for one call, and with faults."""

from __future__ import annotations

from .. import steps as s
from ..refusing import wants
from .handover import HandOvers
from .order import Made


class Bridge(HandOvers):
    """The whole model."""

    # --- convert and adapt ------------------------------------------------------------------------

    def _tree(self, step: s.Tree) -> None:
        """The arrays of a tree are handed over as each by itself, when all are taken in."""
        first = step.parts[0]
        wants(all(part.stream == first.stream for part in step.parts))
        self.current = () if first.current is None else (first.current,)
        # One of the bridge's own for CAI would come back as it is.
        wants(all(part.converts for part in step.parts))
        views = [self._imported(part) for part in step.parts]
        start = len(self.made)
        for part, view in zip(step.parts, views, strict=True):
            before = len(self.made)
            self._made_of(part, view)
            # All are asked, and waited for by the host, before the first order.
            if any(one.whose == "host" for one in self.made[before:]):
                wants(not any(one.whose == "edge" for one in self.made[start:before]))

    def _call(self, step: s.Call) -> None:
        """The memory is the caller's again after the call, whatever the function keeps."""
        taken, name = step.taken, step.taken.name
        wants(self.capture is None and step.work.source == name)
        wants(taken.converts)
        working = () if taken.current is None else (taken.current,)
        self.current = working
        self._tocai(taken)
        self._consume(step.work)
        self.current = working
        if step.how in {"raises", "keeps and raises"}:
            self._let_go(name)
        self.dropping = True
        if not step.keeps:
            del self.named[name]
            self._less(name)
        self.dropping = False
        if name in self.holds:
            self._over(name)

    def _over(self, name: str) -> None:
        """A call is over: what the end of its view would order is ordered, and the view goes on."""
        view, before, maybe = self.views[name], self.doubt, {**self.maybe}
        if self.arrays[view.array].empty:
            return
        self._end_of(view, None)
        # The view goes on, and it alone says how long the memory is kept.
        self.maybe = maybe
        left = [name] if self.doubt is not None else []
        while left:
            for held in self.holds.get(left.pop(), ()):
                # For how long is not said: the view's own end may decline.
                self.maybe[held] = self.maybe.get(held, 0)
                left.append(held)
        self.doubt = before

    # --- faults -----------------------------------------------------------------------------------

    def _attempt(self, step: s.Attempt) -> None:
        """Nothing is promised but that nothing is lost; what is made is dropped at once."""
        wants(self.capture is None)
        if isinstance(step.step, s.Release | s.Drop):
            wants(getattr(step.step, "how", None) in {None, "release", "with"})
            wants(step.step.current is None)
            self._release(step.step) if isinstance(step.step, s.Release) else self._drop(step.step)
            return
        wants(step.step.source[0] != "k")
        tried, host = self.copy(), Made(self.number, "host")
        tried.take(step.step)
        tried.take(s.Drop(step.step.name))
        wants(tried.alive() == self.alive() and len(tried.places) == len(self.places))
        wants(tried.made.count(host) == self.made.count(host))
        same = all(tried.views[name] == view for name, view in self.views.items())
        wants(same, "whether the dict was read before it failed is not known")
        self.maybe = {name: self.maybe.get(name, 0) for name in tried.maybe}
