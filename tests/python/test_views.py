"""What a view passes on, and who keeps what alive, for how long."""

import gc
import types
import weakref

import capsules
import numpy as np
import pytest
import tables
from capsules import READ_ONLY, HandMade
from contract import assert_refused, each
from fakes import DLPackPair, OnlyCai, interface, only_cai, restated

from cai_bridge import CaiView, DLPackView, from_cai, to_cai

EITHER = pytest.mark.parametrize("view", [to_cai, from_cai])


@pytest.mark.parametrize("speaks", ["dlpack", "exchange"])
def test_what_speaks_dlpack_only_is_sent_to_the_functions_that_take_it(cuda, speaks):
    with pytest.raises(
        TypeError, match="which speaks only DLPack and which to_cai and to_dlpack take"
    ):
        from_cai(cuda.array([1.0], speaks=speaks))
    assert from_cai(cuda.array([1.0], speaks="cai"), device="cuda:0").device == (2, 0)


@each("refusals", "object", object="view for NumPy")
@EITHER
def test_numpy_is_refused_rather_than_given_an_array_of_one_object(view, row, cuda):
    made = view(cuda.array([1.0], speaks="cai"))
    assert_refused(row, np.asarray, made)
    assert_refused(row, np.array, [made])


@pytest.mark.parametrize("speaks", ["exchange", "dlpack", "dlpack-legacy", "cai"])
def test_both_views_say_the_same_of_an_array(speaks, cuda):
    x = cuda.array([[1, 2], [3, 4]], dtype="int16", strides="F", speaks=speaks, device=1)
    view = to_cai(x)
    said = restated(view)
    assert said == restated(from_cai(view))
    assert " strides=(2, 4)" in repr(view)
    assert said == {
        "shape": (2, 2),
        "strides": (2, 4),
        "typestr": "<i2",
        "itemsize": 2,
        "ndim": 2,
        "size": 4,
        "nbytes": 8,
        "ptr": x.ptr,
        "device": (2, 1),
        "readonly": False,
        "stream": None if speaks == "cai" else 1,
    }
    # They are read-only, and there are no others.
    for name in (*said, "owner", "anything"):
        for one in (view, from_cai(view)):
            with pytest.raises(AttributeError):
                setattr(one, name, None)


# Own views are unwrapped, not stacked.
CHAINS = {
    "cai, cai": [to_cai, to_cai],
    "cai, dlpack": [to_cai, from_cai],
    "dlpack, cai": [from_cai, to_cai],
    "a long one": [from_cai, to_cai, to_cai, from_cai, to_cai, from_cai, to_cai] * 5,
    "cai, dlpack of a device": [to_cai, lambda view: from_cai(view, device=0)],
    "cai, dlpack of a type": [to_cai, lambda view: from_cai(view, dtype="float32")],
}


@pytest.mark.parametrize("chain", CHAINS)
def test_the_owner_of_a_view_of_a_view_is_the_original_producer(chain, cuda):
    x = only_cai(cuda.array([1.0] * 4))
    view, gone = x, []
    for call in CHAINS[chain]:
        view = call(view)
        gone.append(weakref.ref(view))
    assert view.owner is x
    assert cuda.read(view) == [1.0] * 4
    assert [ref() for ref in gone[:-1]] == [None] * (len(gone) - 1)


def flagged(cuda, form, module):
    """A producer of that module whose capsules say that they may be written to."""
    x = cuda.array(shape=4)
    kind = type("Array", (DLPackPair,), {"__module__": module})
    return kind(lambda **_: HandMade(x.ptr, form=form, owner=x).capsule())


@pytest.mark.parametrize("wanted", [None, True, False])
@pytest.mark.parametrize("form", ["legacy", "versioned"])
@pytest.mark.parametrize("module", ["jaxlib._jax", "jax", "jaxlib", "jax._src.array"])
def test_arrays_that_never_change_are_read_only_whatever_their_capsule_says(
    module, form, wanted, cuda
):
    view = to_cai(flagged(cuda, form, module), readonly=wanted)
    assert view.readonly is (True if wanted is None else wanted)
    assert view.__cuda_array_interface__["data"][1] is view.readonly


@pytest.mark.parametrize("form", ["legacy", "versioned"])
@pytest.mark.parametrize("module", ["jaxtyping", "cupy"])
def test_other_arrays_are_what_their_capsule_says(module, form, cuda):
    assert to_cai(flagged(cuda, form, module)).readonly is False


@pytest.mark.parametrize("flags", [0, READ_ONLY, 4, 1 << 63, (1 << 64) - 3])
def test_flags_that_nobody_knows_are_no_reason_to_refuse(flags, cuda):
    x = cuda.array(shape=4)
    assert to_cai(HandMade(x.ptr, flags=flags).capsule()).readonly is bool(flags & 1)
    made = tables.table(lambda _: HandMade(x.ptr, flags=flags))
    assert to_cai(tables.speaker(made)()).readonly is bool(flags & 1)


@EITHER
def test_a_view_is_true_and_has_the_length_of_its_first_dimension(view, cuda):
    for shape in ((3, 2), (0, 2)):
        made = view(cuda.array(np.zeros(shape), speaks="cai"))
        assert (len(made), bool(made)) == (shape[0], True)
    made = view(cuda.array(np.zeros(()), speaks="cai"))
    with pytest.raises(TypeError, match="a view of no dimensions has no length"):
        len(made)
    assert made


@pytest.mark.parametrize("kind", [CaiView, DLPackView])
def test_views_are_made_by_the_two_functions_only_and_have_an_identity(kind, cuda):
    with pytest.raises(TypeError):
        kind()
    with pytest.raises(TypeError):
        types.new_class("Mine", (kind,))
    x = cuda.array([1.0], speaks=("dlpack", "cai"))
    call = to_cai if kind is CaiView else from_cai
    one, other = call(x), call(x)
    assert one == one
    assert one != other
    assert len({one, other}) == 2
    del one, other
    gc.collect()


def test_an_object_that_speaks_both_is_read_by_the_door_that_it_goes_through(cuda):
    x = cuda.array([1.0], speaks=("dlpack", "cai"))
    assert to_cai(x).stream == 1
    assert from_cai(x).stream is None
    made = OnlyCai(x.__cuda_array_interface__, keep=x)
    made.__dlpack__ = "no method"
    assert from_cai(made).ptr == x.ptr


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
