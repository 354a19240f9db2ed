"""What is refused, by which exception, with what message; and that a refusal costs nothing.

The rows are tests/data/refusals.toml. `test_refused_objects.py` has those of whole objects.
"""

import gc
import weakref

import capsules
import numpy as np
import pytest
import tables
from capsules import HandMade
from contract import assert_refused, each, rows
from fakes import DLPackPair, OnlyCai, OnlyDLPack, StreamField, StreamObject, interface, only_cai
from specification import as_consumer

from cai_bridge import DLPackView, convert, from_cai, to_cai, to_dlpack

CAI_DOORS = {
    "from_cai": from_cai,
    "from_cai of a dict": lambda x: from_cai(x.__cuda_array_interface__, owner=x),
    "to_cai": to_cai,
    "convert": lambda x: convert(x, "dlpack"),
}


def spoiled(row, good):
    """A good dict with the row's entries in place of its own."""
    made = dict(good)
    for key, value in row.get("set", {}).items():
        made[key] = tuple(value) if isinstance(value, list) else value
    for key, text in row.get("python", {}).items():
        made[key] = eval(text)
    for key in row.get("unset", ()):
        del made[key]
    if "add" in row:
        made["data"] = (made["data"][0] + row["add"], False)
    return made


@as_consumer("dict", "data-pair", "data-accessible", "version")
@as_consumer("mask-elements", "mask-numpy", "stream-0")
@pytest.mark.parametrize("door", CAI_DOORS)
@each("refusals", "cai")
def test_a_malformed_dict_is_refused_by_every_door_and_the_object_stays_usable(row, door, cuda):
    x = cuda.array([1.0, 2.0, 3.0, 4.0], speaks=())
    good = interface(x)
    bad = spoiled(row, good)
    before, producer = dict(bad), OnlyCai(bad, keep=x)
    if row.get("where") == "CAI" and door != "to_cai":
        return  # DLPack has no word for it at all
    call = to_dlpack if door == "to_cai" and row.get("where") == "DLPack" else CAI_DOORS[door]
    assert_refused(row, call, producer)
    assert [*map(id, bad.values())] == [*map(id, before.values())], "unchanged"
    producer.interface = good
    view = call(producer)
    assert (view.shape, view.ptr, view.owner) == ((4,), x.ptr, producer)
    assert cuda.read(view) == [1.0, 2.0, 3.0, 4.0]
    gone = weakref.ref(producer)
    del view, producer
    gc.collect()
    assert gone() is None


def made_of(row, ptr):
    """The row's tensor."""
    fields = {**row.get("set", {}), **dict.fromkeys(row.get("max", ()), 2**64 - 1)}
    form = {"form": row["form"]} if "form" in row else {}
    return HandMade(ptr, null=row.get("null", ()), **form, **fields)


@pytest.mark.parametrize("wanted", [True, False])
@each("refusals", "tensor")
def test_a_refused_capsule_is_not_consumed_and_its_tensor_deleted_once(row, wanted, cuda):
    x = cuda.array(shape=4)
    tensor = made_of(row, x.ptr)
    capsule = tensor.capsule()
    name = capsules.name_of(capsule)
    for _ in range(2):
        assert_refused(row, to_cai, capsule)
        assert (capsules.name_of(capsule), tensor.deleted) == (name, 0)
    taken = capsules.take(capsule) if wanted else None
    del capsule
    if wanted:
        assert tensor.deleted == 0
        taken.delete()
    assert tensor.deleted == 1


ASKED = {
    "__dlpack__": lambda tensor: OnlyDLPack(lambda **_: tensor().capsule()),
    "__dlpack__ and its device": lambda tensor: DLPackPair(lambda **_: tensor().capsule()),
    "exchange API": lambda tensor: tables.speaker(tables.table(lambda _: tensor()))(),
}


@pytest.mark.parametrize("by", ASKED)
@each("refusals", "tensor")
def test_what_a_producer_hands_out_is_refused_alike_and_deleted_once(row, by, cuda):
    x = cuda.array(shape=4)
    bad, good = made_of(row, x.ptr), HandMade(x.ptr)
    answers = [bad, good]
    producer = ASKED[by](lambda: answers.pop(0))
    assert_refused(row, to_cai, producer)
    assert bad.deleted == 1
    view = to_cai(producer)
    assert (view.ptr, view.owner, good.deleted) == (x.ptr, producer, 0)
    del view
    assert good.deleted == 1


@pytest.mark.parametrize("pair", [(1, 0), (10, 0), (2, -1), (2**33, 0), (2, 2**33), (-1, 0)])
def test_a_device_out_of_reach_is_refused_before_a_capsule_is_asked_for(pair):
    producer = DLPackPair(lambda **_: pytest.fail("asked"), device=pair)
    with pytest.raises((BufferError, ValueError), match=r"^device: got .+; allowed: "):
        to_cai(producer)
    assert producer.asked == []


def arguments(row):
    names = {"StreamField": StreamField, "StreamObject": StreamObject, "numpy": np}
    return {name: eval(text, names) for name, text in row["with"].items()}


# How each door of the rows is called, and what the array speaks.
CALLS = {
    "to_cai": [
        (to_cai, speaks)
        for speaks in (
            "exchange",
            "dlpack",
            "dlpack-legacy",
            "dlpack-strict",
            "dlpack-bare",
            "cai3",
        )
    ],
    "from_cai": [(from_cai, "cai")],
    "convert": [
        (lambda x, to=to, tree=tree, **wishes: convert([x] if tree else x, to, **wishes), "cai")
        for to in ("cai", "dlpack", "numpy", "tvm_ffi")
        for tree in (False, True)
    ],
}
ROWS = [(row, call) for row in rows("refusals", "argument") for call in row["call"]]
CASES = [
    pytest.param(row, *how, id=f"{call} {number} {row['kind']}-{row['with']}")
    for row, call in ROWS
    if call != "dlpack"
    for number, how in enumerate(CALLS[call])
]


@pytest.mark.parametrize(("row", "call", "speaks"), CASES)
def test_an_argument_is_refused_and_the_array_taken_afterwards(row, call, speaks, cuda):
    x = cuda.array([1.0], speaks=speaks)
    assert_refused(row, call, x, **arguments(row))
    assert x.exports == 0
    call(x)
    assert cuda.read(to_cai(x)) == [1.0]


@pytest.mark.parametrize("row", [row for row, call in ROWS if call == "to_cai"])
def test_to_cai_refuses_an_argument_beside_a_capsule_and_leaves_it(row, cuda):
    tensor = HandMade((kept := cuda.array(shape=4)).ptr, owner=kept)
    capsule = tensor.capsule()
    assert_refused(row, to_cai, capsule, **arguments(row))
    assert capsules.name_of(capsule) == "dltensor_versioned"
    assert to_cai(capsule).shape == (4,)


@pytest.mark.parametrize("row", [row for row, call in ROWS if call == "dlpack"])
def test_a_view_refuses_an_argument_and_exports_afterwards(row, cuda):
    x = cuda.array([1.0, 2.0], speaks="cai")
    view = from_cai(x)
    assert_refused(row, view.__dlpack__, **arguments(row))
    seen = cuda.consumer("dlpack").read(view)
    cuda.synchronize()
    assert seen.value == [1.0, 2.0]
    seen.release()
    gone = weakref.ref(x)
    del x, view
    gc.collect()
    assert gone() is None


def test_dlpack_takes_but_its_stream_by_position(cuda):
    with pytest.raises(TypeError):
        from_cai(only_cai(cuda.array(shape=4))).__dlpack__(None, (1, 0))


@pytest.mark.parametrize("flag", [True, False])
def test_numpys_flags_are_flags(flag, cuda):
    x = cuda.array([1.0], speaks="cai")
    assert to_cai(x, readonly=np.bool_(flag)).readonly is flag
    view = from_cai(x, readonly=np.bool_(flag))
    assert view.readonly is flag
    seen = capsules.read(view.__dlpack__(copy=np.bool_(flag), max_version=(1, 3)))
    assert (seen.ptr != x.ptr) is flag
    cuda.synchronize()


@pytest.mark.parametrize("argument", ["readonly", "stream"])
def test_the_error_of_an_argument_passes_through_unchanged(argument, cuda):
    def torn(self):
        raise OSError("torn")

    torn_one = {"__module__": "numpy", "__bool__": torn, "__cuda_stream__": torn}
    with pytest.raises(OSError, match=r"^torn$"):
        to_cai(cuda.array([1.0]), **{argument: type("bool_", (), torn_one)()})


@each("refusals", "tensor")
def test_a_view_is_not_made_of_a_tensor_that_is_refused(row, cuda):
    x = cuda.array(shape=4)
    tensor = made_of(row, x.ptr)
    if row["kind"] in ("SubByte", "Dtype"):
        # DLPack has a word for it: the other protocol's view is refused.
        view = tables.to_object(DLPackView, tensor)
        assert_refused(row, to_cai, view)
        del view
    elif tensor.struct.major != 1:
        # dlpark looks at the version before the bridge does.
        with pytest.raises((BufferError, RuntimeError), match=r"version"):
            tables.to_object(DLPackView, tensor)
    else:
        assert_refused(row, tables.to_object, DLPackView, tensor)
    assert tensor.deleted == 1


def test_a_dict_is_not_its_own_owner(cuda):
    array = cuda.array([1.0], speaks=(), name="x")
    said = interface(array)
    with pytest.raises(ValueError, match="owner: got the dict itself; allowed: the object that"):
        from_cai(said, owner=said)

    owning = type("Owning", (dict,), {"owner": array})(said)
    assert from_cai(owning, owner=owning).owner is owning
