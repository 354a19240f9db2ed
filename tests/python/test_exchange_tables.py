"""DLPack's exchange API as producers have it: versions, chains, entries, and what fails."""

import ctypes

import capsules
import pytest
import tables
from capsules import HandMade
from fakes import DLPackPair

from cai_bridge import to_cai


def both(table, x, **more):
    """An object with a table and `__dlpack__`, which notes by which it was taken."""
    producer = tables.speaker(table, DLPackPair, **more)
    return producer(lambda **_: HandMade(x.ptr, shape=(2, 2)).capsule())


def test_the_table_comes_before_the_method(cuda):
    x = cuda.array(shape=4)
    producer = both(tables.table(lambda _: HandMade(x.ptr)), x)
    assert to_cai(producer).shape == (4,)
    assert producer.asked == []


@pytest.mark.parametrize("majors", [[2], [2, 3, 4], [2] * 15])
def test_an_older_table_behind_newer_ones_is_found(majors, cuda):
    x = cuda.array(shape=4)
    chain = tables.table(lambda _: HandMade(x.ptr))
    for major in majors:
        chain = tables.table(None, version=(major, 0), prev=chain)
    assert to_cai(both(chain, x)).shape == (4,)


@pytest.mark.parametrize("version", [(2, 0), (0, 9)])
def test_a_type_whose_tables_are_all_of_other_versions_is_asked_by_its_method(version, cuda):
    x = cuda.array(shape=4)
    chain = tables.table(None, version=version, prev=tables.table(None, version=(3, 0)))
    producer = both(chain, x)
    assert to_cai(producer).shape == (2, 2)
    assert producer.asked == [{"stream": 1, "max_version": (1, 3)}]


def test_a_chain_of_tables_that_goes_in_a_circle_ends(cuda):
    first = tables.table(None, version=(2, 0))
    second = tables.table(None, version=(3, 0), prev=first)
    first.prev_api = ctypes.addressof(second)
    assert to_cai(both(second, cuda.array(shape=4))).shape == (2, 2)


@pytest.mark.parametrize("attribute", [4096, None, object(), "capsule"])
def test_an_attribute_of_an_older_draft_is_passed_over(attribute, cuda):
    x = cuda.array(shape=4)
    producer = both(tables.table(None), x, __dlpack_c_exchange_api__=attribute)
    assert to_cai(producer).shape == (2, 2)


def test_a_capsule_of_another_name_is_no_table(cuda):
    other = capsules.capsule_of(4096, "something else")
    producer = both(tables.table(None), cuda.array(shape=4), __dlpack_c_exchange_api__=other)
    assert to_cai(producer).shape == (2, 2)


@pytest.mark.parametrize("entry", ["from_object", "stream"])
def test_a_table_without_a_function_that_it_has_to_have_is_an_error(entry, cuda):
    x = cuda.array(shape=4)
    made = HandMade(x.ptr)
    table = tables.table(lambda _: made, **{entry: 0})
    with pytest.raises(ValueError, match=r"__dlpack_c_exchange_api__: got NULL for \w+; allowed"):
        to_cai(tables.speaker(table)())
    assert made.deleted == made.handed_out


@pytest.mark.parametrize("entry", ["allocate", "to_object", "borrow"])
def test_functions_that_are_not_used_may_be_null(entry, cuda):
    x = cuda.array(shape=4)
    table = tables.table(lambda _: HandMade(x.ptr), **{entry: 0})
    assert to_cai(tables.speaker(table)()).ptr == x.ptr


def test_a_table_that_fails_without_an_exception_is_an_error():
    with pytest.raises(ValueError, match="got a failure without an exception; allowed"):
        to_cai(tables.speaker(tables.table(None))())


def test_a_table_that_returns_null_is_an_error():
    with pytest.raises(ValueError, match="got a NULL tensor; allowed"):
        to_cai(tables.speaker(tables.table(lambda _: 0))())


def test_a_stream_that_the_table_cannot_tell_is_an_error_and_the_tensor_is_deleted(cuda):
    made = HandMade((kept := cuda.array(shape=4)).ptr, owner=kept)
    table = tables.table(lambda _: made, work_on=None)
    with pytest.raises(ValueError, match="got a failure without an exception; allowed"):
        to_cai(tables.speaker(table)())
    assert made.deleted == 1


@pytest.mark.parametrize(
    ("device", "asked"), [((2, 1), (2, 1)), ((2, 0), (2, 0)), ((3, 0), (2, 0)), ((13, 0), (2, 0))]
)
@pytest.mark.parametrize(("theirs", "says"), [(0, 1), (1, 1), (2, 2), ("own", "own")])
def test_the_table_is_asked_for_the_stream_of_the_tensors_device(theirs, says, device, asked, cuda):
    memory = {2: "device", 3: "pinned", 13: "managed"}[device[0]]
    x, seen = cuda.array(shape=4, device=asked[1], memory=memory), []
    own = cuda.stream(device=asked[1])
    theirs, says = (own.handle, own.handle) if theirs == "own" else (theirs, says)
    fields = {"device_type": device[0], "device_id": device[1]}
    table = tables.table(lambda _: HandMade(x.ptr, **fields), work_on=theirs, asked=seen)
    # The library's own current stream is kept; a handle that nobody keeps would be replaced.
    with cuda.current_stream(own):
        assert to_cai(tables.speaker(table)()).stream == says
    assert seen == [asked]


def test_a_table_without_a_managed_tensors_deleter_is_taken(cuda):
    x = cuda.array(shape=4)
    made = [HandMade(x.ptr, null=["deleter"], form=form) for form in ("versioned", "legacy")]
    for tensor in made:
        view = to_cai(tensor.capsule())
        assert view.ptr == x.ptr
    assert [tensor.deleted for tensor in made] == [0, 0]
