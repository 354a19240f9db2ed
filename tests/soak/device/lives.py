"""What is left of things when the context of their GPU ends, and of calls that are refused."""

from __future__ import annotations

from .. import steps as s
from ..refusing import wants
from .exports import Exports
from .order import HOST, Barred
from .words import View


class Lives(Exports):
    """The model with contexts that end."""

    def _reset(self, step: s.Reset) -> None:
        """A device's primary context ends, where nothing is queued any more."""
        device = step.device
        self.outside()
        wants(self.after[HOST] == (1 << len(self.places)) - 1 and not self.garbage)
        streams = {name for name, lane in self.lanes.items() if lane.device == device}
        # Else an exporter that goes on would name a stream that is no more.
        wants(all(a.device == device or a.pending not in streams for a in self.arrays.values()))
        lost = {name for name, array in self.arrays.items() if self._is_lost(name, streams)}
        lost |= {
            name for name in self.holds if name in self.views and self._goes(name, lost, streams)
        }
        lost |= {name for name in self.graphs if self.graphs[name].origin in streams}
        self.lost |= set() if "contexts last" in self.lies else lost
        gone = {stream for stream in streams if not s.is_default(stream)}
        self.closed |= gone
        self.ended |= {device}
        for stream in [name for name in self.named if name in gone]:
            del self.named[stream]
            self._less(stream)
        self.quiet = True

    def _is_lost(self, name: str, streams: set[str]) -> bool:
        """Whether an array has anything to do with streams."""
        array, root = self.arrays[name], self.arrays[self.root(name)]
        found = {array.pending, array.pool, array.copied_on, root.pool, f"L{root.device}"}
        return bool(found & streams) or any(held in streams for held in self.holds.get(name, ()))

    def _goes(self, name: str, lost: set[str], streams: set[str]) -> bool:
        """The same of a view."""
        view = self.views[name]
        found = view.names() | {str(view.ready), f"L{view.at}", f"L{view.place}"}
        return view.array in lost or bool(found & streams)

    def _refusal(self, step: s.Refusal) -> None:
        """A graph capture is in the way: the bridge says so, and all is as before."""
        # What another thread raises would hold what it ended.
        wants(self.capture is not None and not getattr(step.step, "elsewhere", False))
        # The host may wait for a stream that nobody keeps, or may keep.
        if isinstance(step.step, s.Release):
            involved = {*self.capture.members, *self.views[step.step.view].names()}
            wants((self.bare | self.closed).isdisjoint(involved))
        tried = self.copy()
        try:
            tried.take(step.step)
        except Barred:
            # Nothing has come of it before.
            wants(tried.made == self.made and tried.capture is self.capture)
            return
        wants(False, "it is not refused")


__all__ = ["Lives", "View"]
