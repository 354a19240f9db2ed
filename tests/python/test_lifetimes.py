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


@EVERY
def test_a_with_block_releases_at_its_end_and_passes_exceptions_on(maker, cuda):
    x = cuda.array(shape=4)
    with MAKERS[maker](x) as view:
        gone = producer_of(view)
        assert gone() is not None
    assert gone() is None
    assert MAKERS[maker](x).__exit__(None, None, None) is None
    with pytest.raises(LookupError, match="mine"), MAKERS[maker](x) as view:
        raise LookupError("mine")
    assert view.owner is None
    with pytest.raises(BufferError, match=r"^view: got a released view; allowed: "), view:
        pytest.fail("entered")


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


@pytest.mark.parametrize("take", ["a capsule", "a versioned capsule", "the table"])
def test_a_consumer_that_deletes_is_the_last_to_let_go(take, cuda):
    view = from_cai(only_cai(cuda.array([1.0] * 4)))
    gone = producer_of(view)
    if take == "the table":
        taken = tables.managed(view)
    else:
        versioned = take == "a versioned capsule"
        capsule = view.__dlpack__(max_version=(1, 3) if versioned else None)
        taken = capsules.take(capsule)
        del capsule
    del view
    gc.collect()
    assert gone() is not None
    taken.delete()
    assert gone() is None


def test_every_export_holds_the_producer_by_itself(cuda):
    view = from_cai(only_cai(cuda.array([1.0] * 4)))
    gone = producer_of(view)
    held = [export(view) for export in EXPORTS.values() for _ in range(3)]
    taken = [capsules.take(view.__dlpack__()) for _ in range(3)]
    del view
    while held:
        assert gone() is not None
        held.pop()
    while taken:
        assert gone() is not None
        taken.pop().delete()
    assert gone() is None


def test_the_memory_is_freed_when_the_last_of_all_is_gone(cuda):
    x = cuda.array([1.0, 2.0], speaks="dlpack")
    view = to_cai(x)
    capsule = from_cai(view).__dlpack__(max_version=(1, 0))
    assert x.exports == 1
    memory = x.ptr
    del x, view
    again = to_cai(capsule)
    assert cuda.read(again) == [1.0, 2.0]
    del capsule
    assert again.ptr == memory
    assert cuda.read(again) == [1.0, 2.0]


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


def test_a_consumed_capsule_that_outlives_its_view_deletes_nothing_more(cuda):
    tensor = HandMade((kept := cuda.array(shape=4)).ptr, owner=kept)
    capsule = tensor.capsule()
    view = to_cai(capsule)
    view.release()
    assert tensor.deleted == 1
    del view, capsule
    assert tensor.deleted == 1


def test_a_method_that_returns_the_same_capsule_twice_is_taken_once(cuda):
    tensor = HandMade((kept := cuda.array(shape=4)).ptr, owner=kept)
    capsule = tensor.capsule()
    producer = DLPackPair(lambda **_: capsule)
    view = to_cai(producer)
    with pytest.raises(ValueError, match=r"^capsule: got a consumed one"):
        to_cai(producer)
    del view
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


def test_a_stream_object_of_one_export_is_held_by_that_exports_capsule_alone(cuda):
    view = from_cai(only_cai(cuda.array(shape=4)))
    stream = cuda.stream()
    gone = weakref.ref(stream)
    capsule = view.__dlpack__(stream=stream)
    del stream
    assert gone() is not None
    del capsule
    cuda.synchronize()
    assert gone() is None
    assert view.owner is not None


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


def test_a_cycle_of_views_that_own_one_another_by_dicts_is_collected(cuda):
    x = cuda.array(shape=4)
    holders = [only_cai(x) for _ in range(3)]
    for holder, before in zip(holders, [holders[-1], *holders], strict=False):
        holder.view = from_cai(interface(x), owner=before)
    gone = [weakref.ref(one) for holder in holders for one in (holder, holder.view)]
    del holders, holder, before
    gc.collect()
    assert [ref() for ref in gone] == [None] * 6


def test_a_released_view_is_no_part_of_a_cycle(cuda):
    view = from_cai(only_cai(cuda.array(shape=4)))
    view.owner.view = view
    gone = producer_of(view)
    view.release()
    assert gone() is None
    assert not [one for one in gc.get_referents(view) if one is not type(view)]


def test_a_cycle_through_the_stream_object_is_collected(cuda):
    stream = cuda.stream()
    view = from_cai(only_cai(cuda.array(shape=4)), stream=stream)
    stream.view = view
    gone = weakref.ref(view)
    del view, stream
    gc.collect()
    assert gone() is None


def test_views_can_be_referred_to_weakly(cuda):
    seen = []
    for call in (to_cai, from_cai):
        view = call(only_cai(cuda.array(shape=4)))
        reference = weakref.ref(view, lambda _: seen.append("gone"))
        assert reference() is view
        del view
        assert reference() is None
    assert seen == ["gone"] * 2


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
