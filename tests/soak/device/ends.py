"""What an end promises: docs/guarantees.md, "Who keeps a stream alive" and "The end"."""

from __future__ import annotations

from .. import steps as s
from ..program import wants
from .model import Model, StreamRef, User, View
from .order import HOST, Barred
from .strangers import LATE


class Ends(Model):
    """The model with views, capsules and tensors, which end."""

    def keep(self, argument: str, *, registered: bool = True) -> StreamRef | None:
        """Who keeps a stream alive that a call names: its object, or a library that works there.

        None where nobody does. For a blocking stream the legacy default stream stands in.
        """
        stream, _, bare = argument.partition(".")
        device, kind = self.lanes[stream]
        if s.is_default(stream):
            return StreamRef(stream)
        if not bare or stream in self.working(device, owned=True, registered=registered):
            return StreamRef(stream, "object")
        if kind == "blocking" and not self.is_captured(stream):
            return StreamRef(f"L{device}")
        return None

    def confirmed(self, kept: StreamRef | None, view: View) -> str | None:
        """Name a stream that is kept, as its keeper has it now."""
        if kept is None or kept.by == "nobody":
            return None
        if kept.besides is not None and self._vouched(kept):
            return kept.stream
        if kept.by in {"exporter", "pinned"}:
            if self.arrays[view.array].says("cai") == LATE:
                return None
            pending = self.arrays[view.array].pending
            own = {view.place, self.arrays[view.array].device}
            wants(pending is None or own == {self.lanes[pending].device}, "of another GPU")
            return pending
        return kept.stream if self._alive(kept.stream) else None

    def names_now(self, view: View) -> str | None:
        """Name the stream that a producer's dict names by now, which named none at the import."""
        array = self.arrays[view.array]
        if not view.unnamed or array.says("cai") != "cai3" or array.pending is None:
            return None
        own = {view.place, array.device}
        wants(own == {self.lanes[array.pending].device}, "of another GPU")
        return array.pending

    def _vouched(self, kept: StreamRef) -> bool:
        return kept.besides == "always" or self._alive(kept.stream)

    def also(self, kept: StreamRef | None, view: View) -> str | None:
        """Name the stream of an exporter that has left the one that somebody vouches for."""
        if kept is None or kept.by != "exporter" or kept.besides is None:
            return None
        now = self.confirmed(kept._replace(besides=None), view)
        return None if now == kept.stream else now

    def hand_out(self, name: str, view: View, held: str, *, named: bool = True) -> None:
        """Make a view, a capsule or an import, which holds these."""
        self.views[name] = view
        self._meet(view)
        self._add(name, held, *view.streams(), named=named)

    def _meet(self, view: View) -> None:
        found = {one.stream for one in view.known() if one.by != "nobody"}
        root = self.root(view.array)
        self.met = {**self.met, root: self.met.get(root, frozenset()) | found}

    def change(self, name: str, view: View) -> None:
        before, self.views[name] = self.views[name], view
        self._meet(view)
        for stream in view.streams():
            self.count[stream] += 1
        held = list(self.holds[name])
        for stream in before.streams():
            held.remove(stream)
        self.holds[name] = (*held, *view.streams())
        for stream in before.streams():
            self._less(stream)

    def _let_go(self, name: str, also: str | None = None, *, declined: bool = False) -> None:
        if name not in self.holds:
            return
        held, before = self.holds.pop(name), self.doubt
        view = self.views.get(name)
        if name in self.lost:
            # What stands in for its consumer's stream is not captured, and may be waited for.
            wants(self.capture is None)
            # There is nothing to order any more. It is let go of, at once or a little later.
            self.doubt = (self.doubt or 0) | self.after[HOST]
        elif view is not None and not self.arrays[view.array].empty:
            if not declined:
                self._end_of(view, also)
            if view.copy:
                self._give_up_copy(view)
        # What ends with it is dropped, whoever released it.
        dropping, self.dropping = self.dropping, True
        for other in held:
            self._less(other)
        self.doubt, self.dropping = before, dropping

    def _end_of(self, view: View, also: str | None) -> None:
        """Settle an end, or keep all and try again, where a capture is in the way of a drop."""
        made, capture = self.made, self.capture
        try:
            self._settle(view, also)
        except Barred:
            if not self.dropping:
                raise
            wants(self.made == made and self.capture is capture)
            self.doubt = self.doubt or 0

    def _settle(self, view: View, also: str | None) -> None:
        """Order the producer after the consumers; where its stream is unknown, keep the memory."""
        if self.elsewhere and self.capture is not None:
            home = self.confirmed(view.home, view) or self.names_now(view)
            wants((home or "L")[0] != "T", "another thread's stream")
        # A copy's home may be what stands in for its stream: an event is recorded there.
        wants(view.user.kind != "home" or not self.is_beside(view.user.stream), "it may be refused")
        users, lost = self._users(view, also)
        if lost:
            wants(self.doubt is None or self.strict)
            # What a bare handle has done in a capture cannot be joined.
            wants(self.capture is None or view.user.kind != "unkept", "it may be refused")
            at = view.at if view.user.at is None else view.user.at
            self._wait_at_end(at, lost)
            # The host's wait is for one GPU; streams of the other are waited for by streams.
            users = [user for user in users if self.lanes[user].device != at]
        if not users:
            return
        home = self.confirmed(view.home, view) or self.names_now(view)
        producers = [home or f"L{view.place}"]
        upstream = [self.confirmed(kept, view) or "" for kept in view.upstream]
        upstream.append(self.also(view.home, view) or "")
        at = view.at if view.user.at is None else view.user.at
        unkept = [kept.stream for kept in view.upstream if kept.by == "nobody"]
        unkept += self._dropped(view)
        known = {*users, *producers, *upstream, *self._by_address(view)}
        # Libraries are asked where each of these streams is.
        for place in {at, *(self.lanes[one].device for one in unkept)}:
            known |= {*self.working(place)}
        if not set(unkept) <= known:
            wants(self.doubt is None or self.strict)
            for place in sorted({at, *(self.lanes[user].device for user in users)}):
                self._wait_at_end(place, {*users})
            return
        others = dict.fromkeys(upstream + unkept)
        producers += [one for one in others if one not in {"", *producers}]
        orders = [(self._here(user), self._here(home)) for user in users for home in producers]
        named = {*users, *producers} if self.elsewhere and self.capture is not None else set()
        wants(not any(stream[0] == "T" for stream in named), "another thread's stream")
        # Where both stand in for others, an event is recorded there.
        wants(not any(u == p and self.is_beside(u) for u, p in orders), "it may be refused")
        for user, producer in orders:
            if user == producer and not self.strict:
                # An event that stands for others is an action all the same.
                self.advance(user)
            if self.doubt is None:
                self.edge(user, producer, back=True)
            elif not self.strict and user != producer:
                self.connect(user, producer)
        if home is None:
            self._until(users)
            # With the memory an exporter is kept that was found by the address.
            root = self.root(view.array)
            self.maybe[root] = self.maybe.get(root, 0) | (self.doubt or 0)

    def _dropped(self, view: View) -> list[str]:
        """Name the stream of an exporter that names it no more: it may go on there."""
        kept = view.home
        if kept is None or kept.by != "exporter" or self.confirmed(kept, view) is not None:
            return []
        return [] if s.is_default(kept.stream) else [kept.stream]

    def _by_address(self, view: View) -> frozenset[str]:
        """List the streams that leases of ours over the same memory keep, or have kept."""
        return frozenset() if view.home else self.met.get(self.root(view.array), frozenset())

    def may_live(self, array: str) -> bool:
        """The same, and where a lease of the same memory has found an exporter by the address."""
        found = (v for name, v in self.views.items() if name in self.holds and v.home is None)
        return super().may_live(array) or any(self.root(v.array) == array for v in found)

    def _until(self, users: list[str]) -> None:
        """Keep the memory until that is done which streams have to do now."""
        wants(self.capture is None)
        for user in users:
            self.doubt = (self.doubt or 0) | self.closure(user)
        if not self.strict:
            # The host may find that a mark is reached, and is ordered after it.
            for user in users:
                self.after[HOST] |= self.advance(self._here(user))
            self.after[HOST] |= self.doubt or 0
            self.doubt = (self.doubt or 0) | self.after[HOST]

    def _users(self, view: View, also: str | None) -> tuple[list[str], set[str]]:
        """List the streams that the producer's has to wait for, and those that it cannot."""
        user, users, unsure, lacking = view.user, [], False, set[str]()
        if user.kind == "home":
            home, moved = self.confirmed(view.home, view), self.also(view.home, view)
            if user.stream and view.home and view.home.by == "exporter" and home != user.stream:
                # The producer has moved; the consumer has not.
                alive = self.confirmed(user.kept, view)
                users += [alive] if alive else []
                unsure, lacking = alive is None, {user.stream}
            elif also is None and moved is None and not view.upstream and not view.lent:
                far = view.home is not None and self.lanes[view.home.stream].device != view.place
                wants(home is not None or not far, "closed, of another GPU: the memory may be kept")
                return [], set()
            else:
                wants(home is not None or view.home is None, "closed: the host waits for its GPU")
                users.append(home or f"L{view.place}")
        elif user.kind == "on":
            alive = self.confirmed(user.kept, view)
            users += [alive] if alive else []
            unsure, lacking = alive is None, {user.kept.stream}
        elif user.kind == "unnamed":
            # The view may keep a stream for other reasons than that somebody reads there.
            known = {self.confirmed(kept, view) for kept in (view.home, *view.upstream)}
            known.add(self.also(view.home, view))
            lost = {one.stream for one in user.seen if one.by == "nobody"}
            users += [one.stream for one in user.seen if one.stream in known or one.by != "nobody"]
            lacking = lost - known
            unsure = True
        elif user.kind == "unkept":
            unsure, lacking = True, {user.stream}
        if also is not None:
            users.append(also)
        if unsure:
            at = view.at if user.at is None else user.at
            users += [f"L{at}", *self.working(at)]
        lost = lacking - {*users} if unsure else set()
        if view.lent:
            users.append(f"L{view.at}")
        return list(dict.fromkeys(users)), lost

    def _here(self, stream: str) -> str:
        """Name a stream in the thread that ends something; per-thread ones are another's there."""
        return f"L{stream[1:]}" if self.elsewhere and stream[0] == "T" else stream

    def _wait_at_end(self, device: int, lost: set[str]) -> None:
        """Wait for streams that nothing keeps, on the host, unless somebody keeps them then."""
        if self.doubt is None:
            self.wait_for_device(device)
            return
        # At a moment that nobody knows.
        wants(self.capture is None)
        for stream in lost:
            if self.lanes[stream].device == device:
                self.doubt |= self.after[stream]

    def _give_up_copy(self, view: View) -> None:
        """A copy's memory goes back on its own stream, else on the legacy default one."""
        home = self.confirmed(view.home, view)
        wants(self.doubt is None or self.strict)
        if home is None:
            self._wait_at_end(view.at, {*self.lanes})
        pool = self._here(home or f"L{view.at}")
        self.arrays[view.array] = self.arrays[view.array]._replace(pool=pool)

    def _release(self, step: s.Release) -> None:
        wants(step.how != "with" or step.view in self.holds, "released already")
        also = self.usable(s.stream_of(step.stream))
        view = self.views[step.view]
        anywhere = also is None or not (view.gpus or s.is_default(also))
        wants(anywhere or self.lanes[str(also)].device == view.at, "another device")
        wants(not (step.elsewhere and also is not None and also[0] == "T"))
        self._elsewhere(step.elsewhere)
        self._let_go(step.view, also, declined=step.stream == -1)
        self.elsewhere = False

    def _drop(self, step: s.Drop) -> None:
        if step.what[0] == "s":
            # One that is destroyed takes the capture that it is in along.
            wants(not self.is_captured(step.what))
        by_hand = step.how in {"native", "unlocked"}
        wants(not by_hand or step.what in self.by_hand, "no tensor that was taken by hand")
        del self.named[step.what]
        self._elsewhere(step.how in {"thread", "native"})
        self.dropping = True
        self._less(step.what)
        self.elsewhere = self.dropping = False

    def _elsewhere(self, elsewhere: bool) -> None:
        """Another thread has other current streams."""
        self.elsewhere = elsewhere
        if elsewhere:
            self.current = ()

    def _look(self, step: s.Look) -> None:
        """The bridge ends what it held on to; asked for only where nothing is queued any more."""
        wants(self.quiet and self.capture is None)
        self.maybe = {}

    def _cycle(self, step: s.Cycle) -> None:
        wants(not self.garbage and step.what in self.holds and self.capture is None)
        view = self.views[step.what]
        if step.through_owner:
            array = view.array
            wants(self.named.get(array) and self.count[array] == 2 and self.count[step.what] == 1)
            wants(array not in self.maybe and array in self.holds[step.what] and array[0] == "x")
            # The collector may clear the owner first, and with it the memory and its streams: then
            # there is no order to be made any more.
            wants(view.home is None or view.home.by != "exporter" or view.home.besides)
            wants(not view.unnamed)
            if view.user.kind != "nobody":
                self.maybe[array] = 0
            self.change(step.what, view._replace(user=User()))
            del self.named[array]
            self._less(array)
        wants(not self.views[step.what].lent)
        del self.named[step.what]
        self.garbage = (step.what,)

    def _collect(self, step: s.Collect) -> None:
        for name in self.garbage:
            view = self.views.get(name)
            wants(view is not None and self.capture is None)
            # An owner that only garbage refers to is garbage, too, and may be taken apart first.
            found = self._reachable()
            kept = view.tensor or view.array in found
            wants(view.user.kind in {"nobody", "unread", "declined"} or kept)
            if name not in found:
                lost = {stream for stream in view.streams() if stream not in found}
                wants(not (lost and self.maybe), "the bridge may hold the stream yet")
                # Their objects are finalized before the view's own end.
                self.closed |= lost
                if view.array not in found:
                    self._vouched_by_nobody(name)
            self._less(name)
        self.garbage = ()

    def _vouched_by_nobody(self, name: str) -> None:
        """An exporter that is garbage, too, vouches for no stream that would have to be touched."""
        asked = self.views[name]
        upstream = tuple(kept for kept in asked.upstream if kept.by != "exporter")
        view = asked._replace(upstream=upstream, unnamed=False)
        if view != asked:
            self.change(name, view)
        home, settled = view.home, view.user.kind == "home" and not view.upstream
        if home is None or home.by != "exporter":
            return
        if settled:
            # Nor does it say that the producer has moved.
            self.change(name, view._replace(user=User()))
            return
        if home.besides is not None:
            self.change(name, view._replace(home=StreamRef(home.stream, home.besides)))
            return
        user = User() if view.user.kind == "home" else view.user
        self.change(name, view._replace(home=None, user=user))

    def _reachable(self) -> set[str]:
        found, left = set[str](), list(self.named)
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left += self.holds.get(name, ())
        return found
