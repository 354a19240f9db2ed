"""Who may rely on what, where threads run side by side.

A clock is one number a thread. A step counts its thread's number up; `Meet` takes the larger of
two clocks. An earlier step is over for certain only if its clock is before that of the later one.
"""

from __future__ import annotations

from ..refusing import Lacking

Clock = tuple[int, ...]


class Unmet(Lacking):
    """Another thread has to get somewhere first: the two have to meet."""

    def __init__(self, other: int) -> None:
        super().__init__(f"thread {other} may not be there yet")
        self.other = other


def is_before(first: Clock, then: Clock) -> bool:
    return all(map(int.__le__, first, then))


def join(*clocks: Clock) -> Clock:
    return tuple(map(max, *clocks)) if len(clocks) > 1 else clocks[0]


def after(first: Clock, now: Clock) -> None:
    """Refuse unless that is over by now."""
    for thread, (made, known) in enumerate(zip(first, now, strict=True)):
        if made > known:
            raise Unmet(thread)


class Knowledge:
    """The accesses that work comes after, each with the moments from which on that holds."""

    def __init__(self) -> None:
        self._moments: dict[int, tuple[Clock, ...]] = {}

    def __contains__(self, access: int) -> bool:
        return access in self._moments

    def add(self, access: int, moment: Clock) -> None:
        known = self._moments.get(access, ())
        if not any(is_before(one, moment) for one in known):
            self._moments[access] = (*known, moment)

    def holds(self, access: int, now: Clock) -> bool:
        return any(is_before(one, now) for one in self._moments.get(access, ()))

    def nearest(self, access: int, now: Clock) -> Clock:
        """Tell the moment from which on this holds that lacks least."""

        def lacking(moment: Clock) -> int:
            return sum(made > known for made, known in zip(moment, now, strict=True))

        return min(self._moments[access], key=lacking)

    def learn(self, other: Knowledge, at: Clock) -> None:
        """Come after all that something else comes after, from a moment on."""
        for access, moments in other._moments.items():
            for moment in moments:
                self.add(access, join(moment, at))

    def passed_on(self, now: Clock) -> Knowledge:
        """Tell what somebody comes after who takes over now."""
        made = Knowledge()
        for access in self._moments:
            if self.holds(access, now):
                made.add(access, now)
        return made
