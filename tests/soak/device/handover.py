"""What the hand-overs promise: docs/guarantees.md, "Which streams" and "Hand-over".

Those of several arrays, those for one call, those with faults, and those of ended contexts as well.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cai_bridge import _core

from .. import steps as s
from ..program import wants
from . import strangers
from .exports import Exports
from .model import SILENT, Array, StreamRef, User, View
from .order import HOST, Barred, Made

# A view of a view is for the same consumer, where that is known, until another is named.
HANDED_ON = {"home", "unread", "on", "unkept"}


class Strangers:
    """Whether the bridge knows no library, so that each producer is one that no row vouches for."""

    all = False


def know_nobody() -> None:
    """Empty the table of habits, for the bridge and for the model."""
    if not Strangers.all:
        Strangers.all = True
        _core._forget_habits()


def told(stream: str, on: StreamRef | None) -> str:
    """Name what others are told of a stream: the legacy default one that stands in for it."""
    return stream if on is None else on.stream


class Bridge(Exports):
    """The whole model."""

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

    def _tocai(self, step: s.ToCai) -> None:
        self._made_of(step, self._imported(step))

    def _imported(self, step: s.ToCai) -> View:
        source = step.source
        wants(not step.converts or source[0] != "v" or self.views[source].kind == "dlpack")
        asked = replace(step, stream=None) if step.converts else step
        return self._viewed(step) if source[0] in "vk" else self._taken(asked)

    def _made_of(self, step: s.ToCai, view: View) -> None:
        source = step.source
        array = self.arrays[view.array]
        stream = self.asked(step.stream, view.at, gpus=view.gpus)
        if step.stream is None:
            # Whoever reads it is told the stream that it is ready on.
            reader = view.user if view.user.kind in HANDED_ON else User("unread")
            again = view if reader is view.user else view.handed_on(reader)
            view = view._replace(user=User()) if array.empty else again
        else:
            # What nobody said is no part of a capture.
            by_dict = source[0] == "x" and not view.tensor
            said = view.home is not None or not (by_dict and self._is_presumed(array))
            is_ordered = said or view.ready is None or not self.is_beside(view.ready)
            if stream is not None and not array.empty and is_ordered:
                self._to_stream(view, "" if step.converts else source, stream)
            user = User() if array.empty else self.user(step.stream, view.home)
            on = user.kept
            if user.kind == "home" and (on is None or on.stream != stream):
                # The consumer's work is there, wherever the producer goes.
                on = view.home
                if on is not None and on.by == "exporter":
                    on = on._replace(by="pinned")
            view = view.handed_on(user)._replace(on=on, ready=None if array.empty else stream)
        readonly = view.readonly if step.readonly is None else step.readonly
        made = view._replace(readonly=readonly, kind="cai", lent=False)
        if source[0] == "k":
            # The view holds the tensor that was in the capsule from now on.
            tensor = "i" + step.name[1:]
            taken = self.views[source]._replace(kind="import")
            self.hand_out(tensor, taken, self.holds[source][0], named=False)
            self._consumed(source)
            self.hand_out(step.name, made, tensor)
            self.count[tensor] -= 1
        else:
            held = self.holds[source][0] if source[0] == "v" else source
            self.hand_out(step.name, made, held)

    def _to_stream(self, view: View, source: str, stream: str) -> None:
        """Make an array usable on the consumer's stream."""
        if source[:1] in {"x", "y"} and view.ready is not None:
            # Whoever has just named the stream keeps it for the call.
            self.edge(self.usable(view.ready), stream)
        else:
            self.hand_over(view, stream)

    def _viewed(self, step: s.ToCai) -> View:
        """One of the bridge's own views, or a capsule."""
        wants(step.source in self.holds, "released or consumed")
        view = self.views[step.source]
        if step.source[0] == "v":
            return self.by_now(view)
        array = self.arrays[view.array]
        place = view.at if view.gpus else array.device
        ready = None if array.empty else f"L{place}"
        on = None if ready is None else StreamRef(ready)
        # A capsule says nothing of its stream; the bridge knows for which it was made.
        declined = None if view.ready is None else view.on
        known = {"on": view.user.kept, "home": view.home, "declined": declined}.get(view.user.kind)
        own = None if array.empty else self.confirmed(known, view)
        if known is not None and own is not None:
            ready, on = own, known
        elif view.user.kind in {"on", "home"} and step.stream != -1 and not array.empty:
            # Of a stream that nothing keeps the bridge uses what that one waited for.
            to = ready if step.stream is None else s.stream_of(step.stream)
            self.edge(self.confirmed(view.home, view), to)
        user = User("unread")
        made = View(view.array, ready, on, view.readonly, place, place, user=user, tensor=True)
        # A tensor of ours leads to the producer that its lease knows.
        return made._replace(gpus=view.gpus, **self.from_lease(view))

    def _taken(self, step: s.ToCai) -> View:
        """Import an array: the stream that it is ready on, and where it goes back to."""
        source, array = step.source, self.arrays[step.source]
        device = array.device
        view = View(source, None, None, array.readonly, device, device, gpus=array.own)
        if "exchange" in array.speaks:
            return self._by_table(step, view, passed_on=step.stream is None)
        if array.says("dlpack") is not None:
            ready, home = self._asked_for(step, array), self._of_dict(array)
            on = None if ready is None else StreamRef(ready)
            if home is not None and home.stream == ready:
                # The stream that its dict names, too: it moves with that one.
                on = home
            # Who names none then may name one at the end.
            view = view._replace(
                unnamed=home is None and not array.empty and array.says("cai") == "cai3"
            )
            return view._replace(ready=ready, on=on, tensor=True, home=home)
        if array.says("cai") in SILENT:
            if not array.empty:
                self.wait_for_device(device)
            return view
        return self._by_dict(view)

    def _by_table(self, step: s.ToCai | s.FromCai, view: View, *, passed_on: bool) -> View:
        """The exchange API, or its answer alone: what the library works on is the producer's."""
        array = self.arrays[view.array]
        works_on = step.current or f"L{array.device}"
        stream = str(s.stream_of(works_on))
        wants(self.lanes[stream].device == array.device)
        if array.empty:
            wants(self.capture is None, "an order that nothing needs may be refused")
            return view._replace(tensor=True)
        if (Strangers.all or array.is_strange) and array.says("cai") == "cai3":
            # The stream that a stranger's dict names is heard as well.
            wants(self.capture is None or array.pending in {None, stream}, "it may be refused")
            named = array.pending
            if named not in {None, stream}:
                wants(self.lanes[str(named)].device == array.device, "its streams are elsewhere")
                # And it waits at the end, as the producer's own does.
                view = view.above(self.exporters(str(named)))
        home, on = self.producer(f"{stream}.handle", array.device, passed_on=passed_on)
        tensor = isinstance(step, s.ToCai)
        ready = told(stream, on) if passed_on else stream
        return view._replace(ready=ready, on=on, home=home, tensor=tensor)

    def producer(
        self, argument: str, device: int, *, passed_on: bool
    ) -> tuple[StreamRef | None, StreamRef | None]:
        """Tell the producer's stream, and what is waited for in its stead, where they are kept."""
        stream, legacy = str(s.stream_of(argument)), f"L{device}"
        kept = self.keep(argument)
        # Others are told the legacy stream of the memory's GPU.
        far = kept is not None and kept.stream != stream and kept.stream != legacy
        if passed_on and (kept is None or far):
            self.edge(stream, legacy)
            return kept, StreamRef(legacy)
        return kept, kept

    def _asked_for(self, step: s.ToCai, array: Array) -> str | None:
        """What a producer with `__dlpack__` does: the stream that its memory is ready on."""
        stream = self.asked(step.stream, array.device, gpus=array.own)
        legacy = f"L{array.device}"
        dlpack = array.says("dlpack")
        if dlpack == "dlpack-bare":
            self.makes_ready(array, legacy)
            return None if array.empty else legacy
        if step.stream == -1:
            if dlpack == "dlpack-strict":
                self.makes_ready(array, legacy)
            return None
        self.makes_ready(array, stream or legacy)
        if dlpack == strangers.DEAF and array.says("cai") == "cai3" and not array.empty:
            # Its dict names the stream, too, and is heard: one of the memory's GPU.
            near = array.pending is None or self.lanes[array.pending].device == array.device
            wants(near, "its streams are elsewhere")
            self.edge(array.pending, stream or legacy)
        strange = Strangers.all or array.is_strange
        unsaid = strange and stream is not None and not array.empty
        if unsaid and not self.is_beside(legacy):
            self.edge(legacy, stream)
        return None if array.empty else stream or legacy

    def from_lease(self, view: View) -> dict[str, Any]:
        """What is known of memory that comes back in a tensor of ours."""
        if self.arrays[view.array].empty:
            return {}
        return {"home": view.home, "upstream": view.upstream, "unnamed": view.unnamed}

    def _of_dict(self, array: Array) -> StreamRef | None:
        """The stream that the dict names of an array that speaks DLPack, too."""
        if array.says("cai") != "cai3" or array.empty or array.pending is None:
            return None
        wants(self.lanes[array.pending].device == array.device, "its streams are elsewhere")
        return self.exporters(array.pending)

    def _by_dict(self, view: View) -> View:
        array = self.arrays[view.array]
        pending = array.pending
        view = view._replace(unnamed=not array.empty)
        if self._is_presumed(array) and not array.empty:
            # At most there: who is known to mean nothing by it?
            legacy = f"L{array.device}"
            return view._replace(ready=legacy, on=StreamRef(legacy, "unsaid"))
        if array.empty or pending is None:
            return view
        wants(self.lanes[pending].device == array.device, "the producer's streams are elsewhere")
        kept = self.exporters(pending)
        return view._replace(ready=pending, on=kept, home=kept, unnamed=False)

    def _fromcai(self, step: s.FromCai) -> None:
        source = step.source
        if source[0] == "v":
            view = self._dict_of_view(step) if step.as_dict else self._again(step)
        else:
            view = self._dict(step)
        wants(step.device is None or not self.arrays[view.array].empty)
        if step.device is not None:
            wants(step.device == view.at if view.gpus else True, "another GPU's own")
            user = view.user
            if user.kind in {"home", "on", "unkept"} and user.at is None:
                # Another device does not move who was named before.
                user = user._replace(at=view.at)
            view = view._replace(at=step.device, gpus=True, user=user)
        readonly = view.readonly if step.readonly is None else step.readonly
        held = self.holds[source][0] if source[0] == "v" else source
        self.hand_out(step.name, view._replace(readonly=readonly, kind="dlpack", lent=False), held)

    def _again(self, step: s.FromCai) -> View:
        """One of the bridge's own views; a stream is one of the producer's besides."""
        wants(step.source in self.holds, "released")
        view = self.by_now(self.views[step.source])
        wants(view.kind == "cai")
        array = self.arrays[view.array]
        gpus = view.gpus or step.device is not None
        stream = self.asked(step.stream, view.place, gpus=gpus)
        if view.user.kind in {"unnamed", "declined"}:
            view = view.handed_on(User("unread"))
        if step.stream == -1 or array.empty:
            return view._replace(ready=None)
        if stream is None:
            return view
        if view.ready != stream:
            # Where it was ready before is heard as well.
            self.hand_over(view, stream)
        view = view._replace(ready=stream)
        home = view.home
        # A dict that names none any more does not say that its stream is still the one.
        asked = home is not None and home.by == "exporter"
        late = asked and array.says("cai") == strangers.LATE
        stays = home is not None and not late and self.also(home, view) is None
        near = self.lanes[stream].device == view.place
        if near and stays and home.stream == stream == self.confirmed(home, view):
            return view._replace(on=home)
        kept, on = self.producer(str(step.stream), view.place, passed_on=True)
        return view._replace(ready=told(stream, on), on=on).above(*([kept] if kept else []))

    def _dict(self, step: s.FromCai) -> View:
        array = self.arrays[step.source]
        device, cai = array.device, array.says("cai")
        wants(cai is not None and not (step.as_dict and array.empty))
        view = View(step.source, None, None, array.readonly, device, device, gpus=array.own)
        stream = self.asked(step.stream, device, gpus=array.own or step.device is not None)
        if array.empty:
            return view
        if stream is not None:
            named = array.pending if cai == "cai3" else None
            if named is not None:
                # The dict's stream is heard as well; a default stream is one of the memory's GPU.
                near = self.lanes[named].device == device
                wants(near or self.capture is None, "its streams are elsewhere")
                self.edge(named if near else None, stream)
                if near and named != stream:
                    # At the end it waits as well.
                    view = view.above(self.exporters(named))
                elif not near and s.is_default(named):
                    # The bridge takes it for the one of the memory's GPU.
                    view = view.above(StreamRef(f"{named[0]}{device}", "exporter", "always"))
            home, on = self.producer(str(step.stream), device, passed_on=True)
            return view._replace(ready=told(stream, on), on=on, home=home)
        if cai in SILENT:
            return view if step.stream == -1 else self._silent(step, view)
        # A dict by itself says what its owner's own dict says, so that one is its exporter.
        view = self._by_dict(view)
        if step.stream == -1:
            named = array.pending is not None and cai != strangers.LATE
            return view._replace(ready=None, on=view.on if named else None, unnamed=False)
        return view

    def _is_presumed(self, array: Array) -> bool:
        """Whether its dict says None, which means the legacy default stream at most."""
        strange = Strangers.all or array.is_strange
        return array.says("cai") == strangers.LATE or (array.pending is None and strange)

    def _change(self, step: s.Change) -> None:
        array = self.arrays[step.array]
        wants(array.is_strange and step.speaks != array.speaks)
        # Views of one that says two things have asked for both.
        wants(len(array.speaks) == 2)
        # Who is asked again where its array is ready has to know it still. At an end it need not.
        views = [view for view in self.views.values() if view.array == step.array]
        named = array.pending is not None and not s.is_default(array.pending)
        silent = named and "cai3" in array.speaks and strangers.LATE in step.speaks
        homes = [view.home for view in views if not silent]
        refs = [*homes, *(ref for view in views for ref in (view.on, *view.upstream))]
        asked = {"exporter", "pinned"}
        wants(not any(ref is not None and ref.by in asked for ref in refs), "it is asked again")
        wants(silent or not any(view.unnamed for view in views), "it is asked again")
        self.arrays[step.array] = array._replace(speaks=step.speaks)

    def _lie(self, step: s.Lie) -> None:
        array = self.arrays[step.array]
        wants(array.own and not array.empty and self.capture is None and not self.ended)

    def _dict_of_view(self, step: s.FromCai) -> View:
        """The dict of one of our views by itself: its memory is the same producer's."""
        wants(step.source in self.holds and self.capture is None)
        view = self.views[step.source]
        array, root = self.arrays[view.array], self.arrays[self.root(view.array)]
        wants(view.kind == "cai" and not array.empty)
        stream = self.asked(step.stream, array.device)
        named = self.named_by_dict(step.source)
        place, home, upstream = array.device, view.home, view.handed_on(User()).upstream
        wants(view.place == place)
        made = View(view.array, None, None, view.readonly, place, place, home, upstream)
        made = made._replace(gpus=root.own, tensor=view.tensor, unnamed=view.unnamed)
        if step.stream == -1:
            # As for any other dict: with -1 nobody is asked again.
            return made._replace(unnamed=False)
        if stream is None and named is None:
            return made
        if stream is not None:
            # A default stream of the dict is taken for one of the memory's GPU.
            wants(named is None or self.lanes[named].device == place, "its streams are elsewhere")
            self.edge(self.usable(named), stream)
            kept = None if named is None else self.keep(f"{named}.handle", registered=False)
            if kept is not None and kept.stream == named != stream:
                # It waits at the end as well.
                made = made.above(kept)
        ready = stream or str(self.usable(named))
        argument = f"{ready}.handle" if stream is None else str(step.stream)
        wants(self.lanes[ready].device == place)
        kept, on = self.producer(argument, place, passed_on=True)
        made = made._replace(ready=told(ready, on), on=on)
        return made.above(*([kept] if kept and stream is not None else []))

    def _silent(self, step: s.FromCai, view: View) -> View:
        """A dict that says nothing of streams: somebody else is asked, or the host waits."""
        array = self.arrays[step.source]
        if "exchange" in array.speaks:
            return self._by_table(step, view, passed_on=True)
        if array.says("dlpack") is not None and not step.as_dict:
            ready = f"L{array.device}"
            self.makes_ready(array, ready)
            return view._replace(ready=ready, on=StreamRef(ready))
        self.wait_for_device(array.device)
        return view

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
