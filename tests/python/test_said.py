"""What `describe` and `assert_equivalent` say at the edges of what a protocol allows."""

import pytest
import tables
from capsules import HandMade
from fakes import DLPackPair, OnlyCai

from cai_bridge.testing import NotEquivalentError, assert_equivalent, describe
from cai_bridge.testing._kit.dtypes import typestr_name

PTR = 4096


def entries(**changes):
    made = {"shape": (2, 3), "typestr": "<f4", "data": (PTR, False), "version": 3}
    return {**made, **changes}


def said_of(x):
    (said,) = describe(x)
    return said


def in_a_dict(**changes):
    return said_of(entries(**changes))


def in_a_capsule(**fields):
    return said_of(HandMade(PTR, **fields).capsule())


def table_of(make, **changes):
    """A table with every function that it has to have."""
    return tables.table(make, **{"allocate": PTR, "to_object": PTR, **changes})


def by_a_table(*, functions=None, asked=None, **fields):
    table = table_of(lambda _: HandMade(PTR, **fields), asked=asked, **(functions or {}))
    return tables.speaker(table)()


def differences(*objects):
    with pytest.raises(NotEquivalentError) as caught:
        assert_equivalent(*objects)
    return list(caught.value.differences)


class Three(OnlyCai, DLPackPair):
    """Speaks by a dict and by the method; a subclass of it by a table, too. Shape (2, 3)."""

    def __init__(self, interface, **fields):
        tensor = {"shape": (2, 3), **fields}
        OnlyCai.__init__(self, interface)
        device = tensor.get("device", (2, 0))
        DLPackPair.__init__(self, lambda **_: HandMade(PTR, **tensor).capsule(), device)


BAD_STREAM = "stream: got {}; allowed: None, 1, 2 or the handle of a stream"
BAD_PTR = "data[0]: got {}; allowed: an address of 64 bits"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        *(({"version": version}, None) for version in range(4)),
        ({"version": -1}, "version: got -1; allowed: an integer from 0 to 3"),
        *(({"data": (ptr, False)}, None) for ptr in (1, 2**64 - 1)),
        *(({"data": (ptr, False)}, BAD_PTR.format(ptr)) for ptr in (2**64, 2**65)),
        ({"data": (0, False)}, "data[0]: got 0; allowed: the address of the first item"),
        *(({"stream": stream}, None) for stream in (1, 2, 2**64 - 1)),
        *(({"stream": stream}, BAD_STREAM.format(stream)) for stream in (0, 2**64, 2**65)),
        ({"shape": (1,) * 64, "strides": (4,) * 64}, None),
        ({"shape": (), "strides": ()}, None),
    ],
)
def test_what_a_dict_may_say(changes, problem):
    said = in_a_dict(**changes)
    assert said.problems == (() if problem is None else (problem,))
    for name in changes.keys() - {"data", "version"}:
        assert getattr(said, name) == changes[name]
    assert said.version == str(changes.get("version", 3))


def test_a_stream_that_a_dict_of_an_older_version_says_is_noted():
    for version in range(3):
        said = in_a_dict(version=version, stream=7)
        assert said.stream == "unsaid"
        assert said.notes == (f"stream: 7 is said, which version {version} has not",)
        assert in_a_dict(version=version).notes == ()


def test_a_dtype_that_cannot_be_read_is_noted_and_the_typestr_stays():
    class Untold(OnlyCai):
        @property
        def dtype(self):
            raise RuntimeError("not today")

    said = said_of(Untold(entries(typestr="<V2")))
    assert (said.error, said.problems) == (None, ())
    assert (said.dtype, said.typestr, said.itemsize) == ("<V2", "<V2", 2)
    assert said.notes == ("dtype: RuntimeError: not today",)


def test_a_key_that_raises_is_an_error_of_the_dict():
    class Key:
        def __hash__(self):
            return hash("version")

        def __eq__(self, other):
            raise RuntimeError("no key of anybody's")

    said = said_of({Key(): 3})
    assert (said.door, said.error) == ("CAI", "RuntimeError: no key of anybody's")


@pytest.mark.parametrize(
    ("typestr", "itemsize"),
    [("<U4", 16), ("|S4", 4), ("|O", 8), ("|O4", 4), ("<f4", 4), ("<M8[ns]", 8), ("|V3", 3)],
)
def test_the_size_of_an_item_is_its_typestrs(typestr, itemsize):
    said = in_a_dict(typestr=typestr)
    assert (said.itemsize, said.strides) == (itemsize, (3 * itemsize, itemsize))


def test_a_type_in_the_other_byte_order_or_with_a_unit_is_none_of_the_named():
    class Typed(OnlyCai):
        dtype = "bfloat16"

    for typestr, name in (("<V2", "bfloat16"), ("|V2", "bfloat16"), (">V2", ">V2")):
        assert said_of(Typed(entries(typestr=typestr))).dtype == name
    assert in_a_dict(typestr="<f4[s]").dtype == "<f4[s]"
    assert typestr_name("no typestr") == "no typestr"


def test_a_tensor_without_dimensions_has_one_item():
    said = in_a_capsule(shape=())
    assert (said.shape, said.strides, said.size, said.problems) == ((), (), 1, ())
    assert in_a_capsule(shape=(2, 3)).size == 6


def test_lanes_and_packed_items_are_noted():
    plain = in_a_capsule(shape=(3,)).notes
    for dtype, note in (
        ((2, 32, 4), "lanes: 4, shown as the last dimension"),
        ((17, 4, 1), "strides: (1,) items of 4 bits, packed"),
    ):
        assert in_a_capsule(shape=(3,), dtype=dtype).notes == (note, *plain)


def test_a_type_that_there_is_not_and_one_of_no_lanes_are_malformed():
    for dtype in ((200, 8, 1), (2, 32, 0)):
        (problem,) = in_a_capsule(dtype=dtype).problems
        assert problem.startswith("dtype: got (code={}, bits={}, lanes={}); ".format(*dtype))


def test_a_table_is_asked_for_the_stream_of_every_device_but_the_cpu():
    for device, stream in (((2, 0), 1), ((2, 1), 1), ((1, 0), None)):
        asked = []
        said = said_of(by_a_table(device=device, asked=asked))
        assert (said.device, said.stream, said.problems) == (device, stream, ())
        assert asked == [device] * (stream is not None)


def test_a_table_without_the_streams_function_leaves_it_open():
    said = said_of(by_a_table(functions={"stream": 0}))
    assert said.stream == "unsaid"
    assert said.problems == ("current_work_stream: got NULL; allowed: a function",)


def test_a_tensor_that_a_table_exports_is_deleted_before_more_is_asked():
    class Asked(list[int]):
        """How often the tensor was deleted by the time that the stream is asked for."""

        def append(self, _):
            super().append(tensor.deleted)

    tensor, asked = HandMade(PTR), Asked()
    describe(tables.speaker(table_of(lambda _: tensor, asked=asked))())
    assert asked == [1]
    assert tensor.deleted == 1


CUT = "'" + "x" * 56 + "..."


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        *(({"typestr": "x" * length}, CUT) for length in (59, 99)),
        ({"typestr": "x" * 58}, repr("x" * 58)),
        ({"data": (1,) * 8}, repr((1,) * 8)),
        ({"data": (1,) * 9}, "tuple"),
    ],
)
def test_up_to_60_characters_and_up_to_8_items_are_shown_whole(changes, shown):
    (problem,) = in_a_dict(**changes).problems
    assert problem.partition(": got ")[2].partition("; allowed")[0] == shown
    assert len(CUT) == 60


def test_strides_of_two_rows_are_compared_and_those_of_one_are_not():
    (one,) = differences(Three(entries(strides=(64, 4))))
    assert (one.field, one.left, one.right) == ("strides", (64, 4), (12, 4))
    same = Three(entries(shape=(1, 3), strides=(64, 4)), shape=(1, 3))
    assert_equivalent(same)


@pytest.mark.parametrize("strides", [(12,), (12, 4, 1)])
def test_strides_of_another_number_than_the_dimensions_differ_from_right_ones(strides):
    wrong, right = entries(strides=strides), entries()
    for pair in ((wrong, right), (right, wrong)):
        fields = [one.field for one in differences(*pair)]
        assert fields == ["malformed", "strides"]
    # They are wrong in the same way.
    assert [one.field for one in differences(wrong, wrong)] == ["malformed", "malformed"]
    other = entries(strides=(*strides[:-1], 99))
    assert [one.field for one in differences(wrong, other)][2:] == ["strides"]


def test_a_type_left_open_differs_once_from_what_all_the_others_say():
    table = table_of(lambda _: HandMade(PTR, shape=(2, 3), dtype=(2, 16, 1)))
    kind = tables.speaker(table, Three)
    (one,) = differences(kind(entries(typestr="<V2"), dtype=(2, 16, 1)))
    assert (one.field, one.left, one.right) == ("dtype", "<V2", "float16")
    assert (one.left_door, one.right_door) == ("CAI", "exchange API")


@pytest.mark.parametrize("device", [(2, 0), (2, 1), (1, 0)])
def test_a_stream_left_open_is_a_difference_where_the_method_orders_the_consumers(device):
    x = Three(entries(version=2), device=device)
    if device[0] == 1:
        assert_equivalent(x)
    else:
        (one,) = differences(x)
        assert (one.field, one.left, one.right) == ("stream", "unsaid", "orders the consumer's")
