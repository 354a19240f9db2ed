"""What `assert_equivalent` finds: one broken object for each field, and none in whole ones."""

import copy
import inspect
import pickle

import capsules
import pytest
import tables
from capsules import HandMade
from fakes import DLPackPair, OnlyCai, OnlyDLPack, interface, only_cai

from cai_bridge import from_cai, to_cai
from cai_bridge.testing import Difference, NotEquivalentError, assert_equivalent, describe
from cai_bridge.testing._kit.equivalence import FIELDS, WHY

METHODS = ["dlpack", "dlpack-legacy", "dlpack-strict", "dlpack-bare"]
WHOLE = [
    *(("exchange", method) for method in METHODS),
    *((method, "cai3") for method in METHODS),
    *(("exchange", method, "cai3") for method in METHODS),
    ("exchange", "cai3"),
]
SILENT = [(other, f"cai{v}") for other in ("exchange", "dlpack-legacy") for v in range(3)]


def found(*objects, **keywords):
    """The differences, each as field, doors and values."""
    with pytest.raises(NotEquivalentError) as caught:
        assert_equivalent(*objects, **keywords)
    return [
        (one.field, one.left_door, one.left, one.right_door, one.right)
        for one in caught.value.differences
    ]


class Both(OnlyCai, DLPackPair):
    """Speaks both protocols, each with entries and fields of its own; float32 of shape (2, 3)."""

    def __init__(self, *, entries=None, **fields):
        made = {"shape": (2, 3), "typestr": "<f4", "data": (4096, False), "version": 3}
        OnlyCai.__init__(self, {**made, **(entries or {})})
        device = fields.pop("said_device", fields.get("device", (2, 0)))
        tensor = {"shape": (2, 3), **fields}
        DLPackPair.__init__(self, lambda **_: HandMade(4096, **tensor).capsule(), device)


@pytest.mark.parametrize("speaks", WHOLE, ids="+".join)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2"])
@pytest.mark.parametrize(
    ("shape", "strides"), [((2, 3), "F"), ((0, 3), "C"), ((), "C"), ((1,), "C")]
)
def test_a_whole_array_says_the_same_everywhere(speaks, dtype, shape, strides, cuda):
    assert_equivalent(cuda.array(shape=shape, dtype=dtype, strides=strides, speaks=speaks))


def test_a_read_only_array_is_read_only_everywhere(cuda):
    assert_equivalent(cuda.array([1.0], speaks=["exchange", "dlpack", "cai"], readonly=True))
    # No legacy capsule can say it, and this one's producer refuses to be silent about it.
    (only,) = found(cuda.array([1.0], speaks=["dlpack-legacy", "cai"], readonly=True))
    assert only[:2] == ("error", "__dlpack__")


@pytest.mark.parametrize("speaks", WHOLE, ids="+".join)
def test_work_on_a_stream_is_no_contradiction(speaks, cuda):
    x, stream = cuda.array([1.0], speaks=speaks), cuda.stream()
    stream.fill(x, 2.0)
    assert_equivalent(x)
    stream.synchronize()


def test_views_are_equivalent_to_their_source_and_to_each_other(cuda):
    stream = cuda.stream()
    x = cuda.array(shape=(2, 3), dtype="bfloat16", speaks=["cai", "dlpack", "exchange"])
    stream.fill(x, 1.0)
    assert_equivalent(x, to_cai(x, stream=cuda.stream()))
    assert_equivalent(x, from_cai(x))
    assert_equivalent(to_cai(x), from_cai(x))
    assert_equivalent(from_cai(x))
    assert_equivalent(describe(to_cai(x)), describe(x))
    assert_equivalent(to_cai(x), from_cai(x).__dlpack__())
    cuda.synchronize()


READ_ONLY = capsules.READ_ONLY
MASK = OnlyCai({})
OPEN = {"typestr": "<V2", "strides": None}
# One that is broken, and each difference: the field, and what CAI and DLPack say.
BROKEN = {
    "shape": (Both(shape=(3, 2)), ("shape", (2, 3), (3, 2))),
    "ptr": (Both(byte_offset=8), ("ptr", 4096, 4104)),
    "strides": (Both(strides=(1, 2)), ("strides", (12, 4), (4, 8))),
    "dtype": (Both(dtype=(0, 32, 1)), ("dtype", "float32", "int32")),
    "readonly": (Both(flags=READ_ONLY), ("readonly", False, True)),
    "mask": (Both(entries={"mask": MASK}), ("masked", True, False)),
    "an open typestr": (Both(entries=OPEN, dtype=(2, 16, 1)), ("dtype", "<V2", "float16")),
    "strides of more than one item": (
        Both(entries={"shape": (1, 3), "strides": (400, 4)}, shape=(1, 3), strides=(7, 2)),
        ("strides", (400, 4), (28, 8)),
    ),
    "itemsize": (
        Both(dtype=(2, 64, 1)),
        ("strides", (12, 4), (24, 8)),
        ("dtype", "float32", "float64"),
        ("itemsize", 4, 8),
    ),
    "malformed": (
        Both(entries={"version": 4}),
        ("malformed", "version: got 4", "an integer from 0 to 3"),
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_field_that_differs_is_found_alone(what):
    broken, *differences = BROKEN[what]
    other = "specification" if what == "malformed" else "__dlpack__"
    assert found(broken) == [(field, "CAI", a, other, b) for field, a, b in differences]
    fields = tuple(field for field, _, _ in differences)
    assert_equivalent(broken, ignore=fields)
    assert_equivalent(broken, ignore=fields[0] if len(fields) == 1 else fields)


def test_a_device_that_is_not_the_capsules_is_malformed():
    wrong = "__dlpack_device__: got (2, 1)"
    assert found(Both(said_device=(2, 1))) == [
        ("malformed", "__dlpack__", wrong, "specification", "(2, 0), as in the capsule")
    ]


ONE = (1, 3)
NONE = {"shape": (0, 3), "data": (64, False), "strides": (400, 4)}


@pytest.mark.parametrize(
    "whole",
    [
        # A legacy capsule cannot say that the memory is read-only.
        Both(form="legacy", entries={"data": (4096, True)}),
        Both(entries={"mask": None}),
        # Strides of one item, and where there are none.
        Both(entries={"shape": ONE, "strides": (400, 4)}, shape=ONE, strides=(7, 1)),
        Both(entries=NONE, shape=(0, 3), strides=(7, 7), null=["data"]),
        Both(entries={"shape": (3, 2)}, shape=(3,), lanes=2),
        # Typestrs that leave the type open.
        Both(entries=OPEN, dtype=(4, 16, 1)),
        Both(entries={"typestr": "|V1"}, dtype=(12, 8, 1)),
    ],
)
def test_what_is_no_matter_or_cannot_be_said_is_no_difference(whole):
    assert_equivalent(whole)


def test_a_type_that_is_named_has_to_be_the_same(cuda):
    named = Both(entries={"typestr": "|V1"}, dtype=(12, 8, 1))
    named.dtype = "float8_e4m3fn"
    assert found(named) == [("dtype", "CAI", "float8_e4m3fn", "__dlpack__", "float8_e5m2")]


def test_devices_that_differ_are_found(cuda):
    table = tables.table(lambda _: HandMade(4096, device=(2, 1)), allocate=1, to_object=1)
    kind = tables.speaker(table, DLPackPair)
    broken = kind(lambda **_: HandMade(4096).capsule())
    assert found(broken) == [("device", "exchange API", (2, 1), "__dlpack__", (2, 0))]


@pytest.mark.parametrize("speaks", SILENT, ids="+".join)
def test_a_dict_that_says_nothing_of_streams_is_found(speaks, cuda):
    x = cuda.array([1.0], speaks=speaks)
    table = speaks[0] == "exchange"
    other = ("exchange API", 1) if table else ("__dlpack__", "orders the consumer's")
    assert found(x) == [("stream", "CAI", "unsaid", *other)]
    assert_equivalent(x, ignore=("stream",))
    # Of no items nothing can be pending.
    assert_equivalent(cuda.array(shape=(0,), speaks=speaks))


def test_a_door_that_cannot_be_read_is_found():
    broken = Both()
    broken.interface = RuntimeError("no")
    assert found(broken) == [("error", "CAI", "RuntimeError: no", "__dlpack__", "can be read")]
    assert_equivalent(broken, ignore=("error",))
    silent = OnlyDLPack(lambda **_: None)
    assert [one[0] for one in found(silent, OnlyCai(4))] == ["error", "error", "malformed"]


def test_every_field_has_a_test_here_and_a_reason():
    source = inspect.getsource(inspect.getmodule(test_every_field_has_a_test_here_and_a_reason))
    assert all(f'"{field}"' in source for field in FIELDS)
    assert all(WHY.values())


def test_the_message_is_a_table_with_the_reasons():
    with pytest.raises(NotEquivalentError) as caught:
        assert_equivalent(Both(flags=READ_ONLY, byte_offset=8))
    assert str(caught.value).splitlines() == [
        "Both: the protocols say different things, 2 differences",
        "  field     one door  says    another     says",
        "  ptr       CAI       0x1000  __dlpack__  0x1008",
        "  readonly  CAI       False   __dlpack__  True",
        "why it matters",
        f"  ptr: {WHY['ptr']}",
        "  readonly: a consumer of one protocol writes where the other's may not",
    ]
    assert str(caught.value.differences[1]).startswith("readonly: CAI False, __dlpack__ True: ")


def test_the_error_is_an_assertion_and_can_be_copied_and_pickled():
    difference = Difference("ptr", "CAI", 1, "__dlpack__", 2, "why")
    error = NotEquivalentError((difference,), "x")
    assert isinstance(error, AssertionError)
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (other.differences, str(other)) == (error.differences, str(error))


def test_one_protocol_alone_cannot_be_compared(cuda):
    x = cuda.array([1.0], speaks="cai")
    with pytest.raises(
        TypeError, match=r"which speaks only CAI; allowed: .* in two ways, or a sec"
    ):
        assert_equivalent(x)
    with pytest.raises(TypeError, match=r"which speaks only capsule; "):
        assert_equivalent(HandMade(4096).capsule())
    with pytest.raises(TypeError, match=r"^b: got int; allowed: "):
        assert_equivalent(only_cai(x), 4)
    with pytest.raises(TypeError, match=r"^a: got NoneType; allowed: an object with"):
        assert_equivalent(None, x)
    with pytest.raises(TypeError, match=r"^b: got NoneType; allowed: an object with"):
        assert_equivalent(x, None)
    assert_equivalent(interface(x, shape=(1,)), x)
    y = cuda.array([1.0], speaks="cai")
    assert found(x, y) == [("ptr", "a: CAI", x.ptr, "b: CAI", y.ptr)]


def test_a_field_that_is_none_cannot_be_ignored(cuda):
    with pytest.raises(ValueError, match=r"^ignore: got 'streams'; allowed: error, malformed, "):
        assert_equivalent(Both(), ignore=("stream", "streams"))
