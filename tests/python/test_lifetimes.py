"""Who keeps what alive, for how long, and that it is let go once: views, capsules, streams."""

import gc
import weakref

import capsules
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
def test_a_producer_lives_exactly_as_long_as_its_view(maker, cuda):
    x = cuda.array(shape=4)
    view = MAKERS[maker](x)
    gone = producer_of(view)
    assert gone() is not None
    del view
    assert gone() is None


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


# --- exports keep the producer --------------------------------------------------------------------

EXPORTS = {
    "a legacy capsule": lambda view: view.__dlpack__(),
    "a versioned capsule": lambda view: view.__dlpack__(max_version=(1, 3)),
    "a view": to_cai,
    "a view of a view": lambda view: from_cai(to_cai(view)),
}


@pytest.mark.parametrize("export", EXPORTS)
@pytest.mark.parametrize("how", ["released", "dropped", "both"])
def test_what_was_exported_keeps_the_producer_when_the_view_is_gone(how, export, cuda):
    view = from_cai(only_cai(cuda.array([1.0] * 4)))
    gone = producer_of(view)
    made = EXPORTS[export](view)
    if how != "dropped":
        view.release()
    if how != "released":
        del view
    assert gone() is not None
    del made
    assert gone() is None


# --- a producer's tensor is deleted once ----------------------------------------------------------


@pytest.mark.parametrize("form", ["versioned", "legacy", "1.1"])
def test_a_producers_tensor_is_deleted_with_the_last_holder_and_once(form, cuda):
    tensor = HandMade((kept := cuda.array(shape=4)).ptr, owner=kept, form=form)
    capsule = tensor.capsule()
    view = to_cai(capsule)
    assert capsules.name_of(capsule) == f"used_dltensor{'' if form == 'legacy' else '_versioned'}"
    del capsule
    shared = [to_cai(view), from_cai(view), from_cai(view).__dlpack__()]
    view.release()
    del view
    while shared:
        assert tensor.deleted == 0
        shared.pop()
    assert tensor.deleted == 1


# --- stream objects -------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [to_cai, from_cai])
def test_a_stream_object_is_held_as_long_as_its_stream_is_named(call, cuda):
    stream = cuda.stream()
    gone = weakref.ref(stream)
    view = call(only_cai(cuda.array(shape=4)), stream=stream)
    other = from_cai(view) if call is to_cai else to_cai(view)
    del stream
    view.release()
    assert gone() is not None
    del other
    assert gone() is None


# --- the garbage collector, and what comes back ---------------------------------------------------


@EVERY
def test_a_cycle_of_producer_and_view_is_collected(maker, cuda):
    view = MAKERS[maker](cuda.array(shape=4))
    view.owner.view = view
    gone, producer = weakref.ref(view), producer_of(view)
    del view
    assert gone() is not None
    gc.collect()
    assert (gone(), producer()) == (None, None)


@EVERY
def test_a_cycle_through_views_of_either_protocol_and_their_dicts_is_collected(maker, cuda):
    view = MAKERS[maker](cuda.array(shape=4))
    cai, dlpack = to_cai(view), from_cai(to_cai(view))
    by_owner = from_cai(cai.__cuda_array_interface__, owner=dlpack)
    view.owner.held = {"views": [view, cai, dlpack, by_owner]}
    gone = [weakref.ref(one) for one in (view, cai, dlpack, by_owner, view.owner)]
    del view, cai, dlpack, by_owner
    assert None not in [ref() for ref in gone]
    gc.collect()
    assert [ref() for ref in gone] == [None] * 5


def test_a_cycle_through_the_stream_object_is_collected(cuda):
    stream = cuda.stream()
    view = from_cai(only_cai(cuda.array(shape=4)), stream=stream)
    stream.view = view
    gone = weakref.ref(view)
    del view, stream
    gc.collect()
    assert gone() is None


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
