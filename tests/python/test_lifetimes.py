"""Who keeps what alive, for how long, and that it is let go once: views, capsules, streams."""

import weakref

import pytest
import tables
from capsules import HandMade
from fakes import DLPackPair, OnlyCai, interface, only_cai

from cai_bridge import from_cai, to_cai


def by_dict(x):
    return from_cai(interface(x), owner=OnlyCai(None, keep=x))


MAKERS = {
    "to_cai of CAI": lambda x: to_cai(only_cai(x)),
    "from_cai": lambda x: from_cai(only_cai(x)),
    "from_cai of a dict": by_dict,
    "to_cai of a method": lambda x: to_cai(DLPackPair(lambda **_: HandMade(x.ptr).capsule())),
    "to_cai of a table": lambda x: to_cai(
        tables.speaker(tables.table(lambda _: HandMade(x.ptr)))()
    ),
    "back again": lambda x: from_cai(to_cai(only_cai(x))),
}
EVERY = pytest.mark.parametrize("maker", MAKERS)


def producer_of(view):
    """A weak reference to the producer."""
    return weakref.ref(view.owner)


@EVERY
def test_a_released_view_lets_go_at_once_and_says_so(maker, cuda):
    view = MAKERS[maker](cuda.array(shape=4))
    gone, before = producer_of(view), (view.shape, view.ptr, view.strides, view.typestr)
    assert view.release() is None
    assert (gone(), view.owner) == (None, None)
    view.release()
    assert (view.shape, view.ptr, view.strides, view.typestr) == before
    assert repr(view).endswith(", released>")
    for export in (to_cai, from_cai, lambda view: view.__enter__()):
        with pytest.raises((BufferError, TypeError)):
            export(view)


# --- the garbage collector, and what comes back ---------------------------------------------------


def test_a_producers_end_may_come_back_to_the_view(cuda):
    said = []

    class Talkative(OnlyCai):
        def __del__(self):
            view = self.view()
            if view is not None:
                view.release()
                said.append((view.owner, view.shape, repr(view).endswith("released>")))

    x = cuda.array(shape=4)
    view = from_cai(Talkative(interface(x)))
    view.owner.view = weakref.ref(view)
    view.release()
    assert said == [(None, (4,), True)]
