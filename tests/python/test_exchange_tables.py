"""DLPack's exchange API as producers have it: versions, chains, entries, and what fails."""

import ctypes

import pytest
import tables
from capsules import HandMade
from fakes import DLPackPair

from cai_bridge import to_cai


def both(table, x, **more):
    """An object with a table and `__dlpack__`, which notes by which it was taken."""
    producer = tables.speaker(table, DLPackPair, **more)
    return producer(lambda **_: HandMade(x.ptr, shape=(2, 2)).capsule())


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


@pytest.mark.parametrize("entry", ["from_object", "stream"])
def test_a_table_without_a_function_that_it_has_to_have_is_an_error(entry, cuda):
    x = cuda.array(shape=4)
    made = HandMade(x.ptr)
    table = tables.table(lambda _: made, **{entry: 0})
    with pytest.raises(ValueError, match=r"__dlpack_c_exchange_api__: got NULL for \w+; allowed"):
        to_cai(tables.speaker(table)())
    assert made.deleted == made.handed_out


def test_a_stream_that_the_table_cannot_tell_is_an_error_and_the_tensor_is_deleted(cuda):
    made = HandMade((kept := cuda.array(shape=4)).ptr, owner=kept)
    table = tables.table(lambda _: made, work_on=None)
    with pytest.raises(ValueError, match="got a failure without an exception; allowed"):
        to_cai(tables.speaker(table)())
    assert made.deleted == 1
