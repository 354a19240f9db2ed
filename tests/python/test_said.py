"""What `describe` and `assert_equivalent` say at the edges of what a protocol allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tables
from capsules import HandMade
from fakes import DLPackPair, OnlyCai

from cai_bridge.testing import Difference, NotEquivalentError, assert_equivalent, describe
from cai_bridge.testing._kit.dtypes import typestr_name
from cai_bridge.testing._kit.said import Said

PTR = 4096


def entries(**changes: Any) -> dict[str, Any]:
    made = {"shape": (2, 3), "typestr": "<f4", "data": (PTR, False), "version": 3}
    return {**made, **changes}


def said_of(x: Any) -> Said:
    (said,) = describe(x)
    return said


def in_a_dict(**changes: Any) -> Said:
    return said_of(entries(**changes))


def in_a_capsule(**fields: Any) -> Said:
    return said_of(HandMade(PTR, **fields).capsule())


def table_of(make: Callable[..., HandMade], **changes: Any) -> Any:
    """A table with every function that it has to have."""
    return tables.table(make, **{"allocate": PTR, "to_object": PTR, **changes})


def by_a_table(*, functions: dict[str, int] | None = None, asked: Any = None, **fields: Any) -> Any:
    table = table_of(lambda _: HandMade(PTR, **fields), asked=asked, **(functions or {}))
    return tables.speaker(table)()


def differences(*objects: object) -> list[Difference]:
    with pytest.raises(NotEquivalentError) as caught:
        assert_equivalent(*objects)
    return list(caught.value.differences)


class Three(OnlyCai, DLPackPair):
    """Speaks by a dict and by the method; a subclass of it by a table, too. Shape (2, 3)."""

    def __init__(self, interface: dict[str, Any], **fields: Any) -> None:
        tensor = {"shape": (2, 3), **fields}
        OnlyCai.__init__(self, interface)
        device = tensor.get("device", (2, 0))
        DLPackPair.__init__(self, lambda **_: HandMade(PTR, **tensor).capsule(), device)


# --- dicts ----------------------------------------------------------------------------------------


def test_every_version_from_0_is_one() -> None:
    for version in range(4):
        said = in_a_dict(version=version)
        assert (said.version, said.problems) == (str(version), ())
    assert in_a_dict(version=-1).problems == ("version: got -1; allowed: an integer from 0 to 3",)


def test_an_address_has_64_bits_and_is_not_0_where_there_are_items() -> None:
    for ptr in (1, 2**64 - 1):
        assert in_a_dict(data=(ptr, False)).problems == ()
    for ptr in (2**64, 2**65):
        (problem,) = in_a_dict(data=(ptr, False)).problems
        assert problem == f"data[0]: got {ptr}; allowed: an address of 64 bits"
    assert in_a_dict(data=(0, False)).problems == (
        "data[0]: got 0; allowed: the address of the first item",
    )


def test_a_streams_handle_has_64_bits_and_is_not_0() -> None:
    for stream in (1, 2, 2**64 - 1):
        said = in_a_dict(stream=stream)
        assert (said.stream, said.problems) == (stream, ())
    for stream in (0, 2**64, 2**65):
        said = in_a_dict(stream=stream)
        assert said.stream == stream
        assert said.problems == (
            f"stream: got {stream}; allowed: None, 1, 2 or the handle of a stream",
        )


def test_a_stream_that_a_dict_of_an_older_version_says_is_noted() -> None:
    for version in range(3):
        said = in_a_dict(version=version, stream=7)
        assert said.stream == "unsaid"
        assert said.notes == (f"stream: 7 is said, which version {version} has not",)
        assert in_a_dict(version=version).notes == ()


def test_64_dimensions_are_not_too_many() -> None:
    said = in_a_dict(shape=(1,) * 64, strides=(4,) * 64)
    assert (said.shape, said.strides, said.problems) == ((1,) * 64, (4,) * 64, ())
    assert in_a_dict(shape=()).strides == ()


class Untold(OnlyCai):
    """Its ``dtype`` cannot be read."""

    @property
    def dtype(self) -> object:
        raise RuntimeError("not today")


def test_a_dtype_that_cannot_be_read_is_noted_and_the_typestr_stays() -> None:
    said = said_of(Untold(entries(typestr="<V2")))
    assert (said.error, said.problems) == (None, ())
    assert (said.dtype, said.typestr, said.itemsize) == ("<V2", "<V2", 2)
    assert said.notes == ("dtype: RuntimeError: not today",)


class Key:
    """Is found where ``version`` is, and raises when it is compared."""

    def __hash__(self) -> int:
        return hash("version")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no key of anybody's")


def test_a_key_that_raises_is_an_error_of_the_dict() -> None:
    said = said_of({Key(): 3})
    assert (said.door, said.error) == ("CAI", "RuntimeError: no key of anybody's")


# --- element types --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typestr", "itemsize"),
    [("<U4", 16), ("|S4", 4), ("|O", 8), ("|O4", 4), ("<f4", 4), ("<M8[ns]", 8), ("|V3", 3)],
)
def test_the_size_of_an_item_is_its_typestrs(typestr: str, itemsize: int) -> None:
    said = in_a_dict(typestr=typestr)
    assert (said.itemsize, said.strides) == (itemsize, (3 * itemsize, itemsize))


def test_a_type_in_the_other_byte_order_or_with_a_unit_is_none_of_the_named() -> None:
    class Typed(OnlyCai):
        dtype = "bfloat16"

    for typestr, name in (("<V2", "bfloat16"), ("|V2", "bfloat16"), (">V2", ">V2")):
        assert said_of(Typed(entries(typestr=typestr))).dtype == name
    assert in_a_dict(typestr="<f4[s]").dtype == "<f4[s]"
    assert typestr_name("no typestr") == "no typestr"


# --- tensors --------------------------------------------------------------------------------------


def test_a_tensor_without_dimensions_has_one_item() -> None:
    said = in_a_capsule(shape=())
    assert (said.shape, said.strides, said.size, said.problems) == ((), (), 1, ())
    assert in_a_capsule(shape=(2, 3)).size == 6


def test_lanes_and_packed_items_are_noted() -> None:
    plain = in_a_capsule(shape=(3,)).notes
    assert in_a_capsule(shape=(3,), dtype=(2, 32, 4)).notes == (
        "lanes: 4, shown as the last dimension",
        *plain,
    )
    assert in_a_capsule(shape=(3,), dtype=(17, 4, 1)).notes == (
        "strides: (1,) items of 4 bits, packed",
        *plain,
    )


def test_a_type_that_there_is_not_and_one_of_no_lanes_are_malformed() -> None:
    for dtype in ((200, 8, 1), (2, 32, 0)):
        (problem,) = in_a_capsule(dtype=dtype).problems
        assert problem.startswith("dtype: got (code={}, bits={}, lanes={}); ".format(*dtype))


def test_a_table_is_asked_for_the_stream_of_every_device_but_the_cpu() -> None:
    for device, stream in (((2, 0), 1), ((2, 1), 1), ((1, 0), None)):
        asked: list[tuple[int, int]] = []
        said = said_of(by_a_table(device=device, asked=asked))
        assert (said.device, said.stream, said.problems) == (device, stream, ())
        assert asked == [device] * (stream is not None)


def test_a_table_without_the_streams_function_leaves_it_open() -> None:
    said = said_of(by_a_table(functions={"stream": 0}))
    assert said.stream == "unsaid"
    assert said.problems == ("current_work_stream: got NULL; allowed: a function",)


def test_a_tensor_that_a_table_exports_is_deleted_before_more_is_asked() -> None:
    class Asked(list[int]):
        """How often the tensor was deleted by the time that the stream is asked for."""

        def append(self, _: object) -> None:
            super().append(tensor.deleted)

    tensor, asked = HandMade(PTR), Asked()
    describe(tables.speaker(table_of(lambda _: tensor, asked=asked))())
    assert asked == [1]
    assert tensor.deleted == 1


# --- what is shown --------------------------------------------------------------------------------


def got(problem: str) -> str:
    return problem.partition(": got ")[2].partition("; allowed")[0]


def test_values_of_up_to_60_characters_are_shown_whole() -> None:
    for length, shown in ((58, repr("x" * 58)), (59, "'" + "x" * 56 + "..."), (99, None)):
        (problem,) = in_a_dict(typestr="x" * length).problems
        assert got(problem) == (shown or "'" + "x" * 56 + "...")
        assert len(got(problem)) == 60


def test_up_to_8_items_are_shown_and_of_more_the_type() -> None:
    for count, shown in ((8, repr((1,) * 8)), (9, "tuple")):
        (problem,) = in_a_dict(data=(1,) * count).problems
        assert got(problem) == shown


# --- equivalence ----------------------------------------------------------------------------------


def test_strides_of_two_rows_are_compared_and_those_of_one_are_not() -> None:
    (one,) = differences(Three(entries(strides=(64, 4))))
    assert (one.field, one.left, one.right) == ("strides", (64, 4), (12, 4))
    same = Three(entries(shape=(1, 3), strides=(64, 4)), shape=(1, 3))
    assert_equivalent(same)


@pytest.mark.parametrize("strides", [(12,), (12, 4, 1)])
def test_strides_of_another_number_than_the_dimensions_differ_from_right_ones(
    strides: tuple[int, ...],
) -> None:
    wrong, right = entries(strides=strides), entries()
    for pair in ((wrong, right), (right, wrong)):
        fields = [one.field for one in differences(*pair)]
        assert fields == ["malformed", "strides"]
    # They are wrong in the same way.
    assert [one.field for one in differences(wrong, wrong)] == ["malformed", "malformed"]
    other = entries(strides=(*strides[:-1], 99))
    assert [one.field for one in differences(wrong, other)][2:] == ["strides"]


def test_a_type_left_open_differs_once_from_what_all_the_others_say() -> None:
    table = table_of(lambda _: HandMade(PTR, shape=(2, 3), dtype=(2, 16, 1)))
    kind = tables.speaker(table, Three)
    (one,) = differences(kind(entries(typestr="<V2"), dtype=(2, 16, 1)))
    assert (one.field, one.left, one.right) == ("dtype", "<V2", "float16")
    assert (one.left_door, one.right_door) == ("CAI", "exchange API")


@pytest.mark.parametrize("device", [(2, 0), (2, 1), (1, 0)])
def test_a_stream_left_open_is_a_difference_where_the_method_orders_the_consumers(
    device: tuple[int, int],
) -> None:
    x = Three(entries(version=2), device=device)
    if device[0] == 1:
        assert_equivalent(x)
    else:
        (one,) = differences(x)
        assert (one.field, one.left, one.right) == ("stream", "unsaid", "orders the consumer's")
