"""Who keeps what alive, for how long, and that it is let go once: views, capsules, streams."""

import gc
import weakref

import capsules
import pytest
import tables
from capsules import HandMade
from fakes import DLPackPair, OnlyCai, interface, only_cai

from cai_bridge import from_cai, to_cai

MAKERS = {
    "to_cai of CAI": lambda x: to_cai(only_cai(x)),
    "from_cai": lambda x: from_cai(only_cai(x)),
    "from_cai of a dict": lambda x: from_cai(interface(x), owner=OnlyCai(None, keep=x)),
    "to_cai of a method": lambda x: to_cai(DLPackPair(lambda **_: HandMade(x.ptr).capsule())),
    "to_cai of a table": lambda x: to_cai(
        tables.speaker(tables.table(lambda _: HandMade(x.ptr)))()
    ),
    "back again": lambda x: from_cai(to_cai(only_cai(x))),
}


@pytest.fixture(params=MAKERS)
def made(request, cuda):
    """A list with a view, which nobody else holds."""
    return [MAKERS[request.param](cuda.array(shape=4))]


def gone(refs):
    return [ref() is None for ref in refs]


def test_a_producer_lives_exactly_as_long_as_its_view(made):
    producer = weakref.ref(made[0].owner)
    assert producer() is not None
    made.clear()
    assert producer() is None


def test_a_released_view_lets_go_at_once_and_says_so(made):
    view = made.pop()
    producer = weakref.ref(view.owner)
    before = view.shape, view.ptr, view.strides, view.typestr
    assert view.release() is None
    assert (producer(), view.owner) == (None, None)
    view.release()
    assert (view.shape, view.ptr, view.strides, view.typestr) == before
    assert repr(view).endswith(", released>")
    for export in (to_cai, from_cai, lambda view: view.__enter__(), lambda view: view.wait()):
        with pytest.raises((BufferError, TypeError)):
            export(view)


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
    producer = weakref.ref(view.owner)
    made = EXPORTS[export](view)
    if how != "dropped":
        view.release()
    if how != "released":
        del view
    assert producer() is not None
    del made
    assert producer() is None


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


@pytest.mark.parametrize("call", [to_cai, from_cai])
def test_a_stream_object_is_held_as_long_as_its_stream_is_named(call, cuda):
    stream = cuda.stream()
    object_ = weakref.ref(stream)
    view = call(only_cai(cuda.array(shape=4)), stream=stream)
    other = from_cai(view) if call is to_cai else to_cai(view)
    del stream
    view.release()
    assert object_() is not None
    del other
    assert object_() is None


def test_a_cycle_through_views_of_either_protocol_and_their_dicts_is_collected(made, cuda):
    """And through their streams."""
    view, stream = made.pop(), cuda.stream()
    cai, dlpack = to_cai(view, stream=stream), from_cai(to_cai(view), stream=stream)
    by_owner = from_cai(cai.__cuda_array_interface__, owner=dlpack)
    view.owner.held = stream.held = {"views": [view, cai, dlpack, by_owner]}
    refs = [weakref.ref(one) for one in (view, cai, dlpack, by_owner, stream, view.owner)]
    del view, cai, dlpack, by_owner, stream
    assert gone(refs) == [False] * 6
    gc.collect()
    assert gone(refs) == [True] * 6


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
