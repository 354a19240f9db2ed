"""Hand-overs one after another: an order that the driver makes itself is not lost at the next."""

import pytest
import tables
from fakes import OnlyDLPack, only_cai

from cai_bridge import DLPackView, from_cai, to_cai

# Where the values are written, what is said in between, and where they are read.
STREAMS = ["legacy", "per-thread", "blocking", "non-blocking"]


@pytest.fixture
def stream(cuda):
    """A maker of streams by kind, which are kept."""
    kept = []

    def make(kind):
        named = {"legacy": cuda.legacy, "per-thread": cuda.per_thread}
        kept.append(named.get(kind) or cuda.stream(kind, blocking=kind == "blocking"))
        return kept[-1]

    return make


@pytest.fixture
def handed_on(cuda, stream):
    """Write on one stream, hand on by a chain of doors, read on another: the values are seen."""

    def run(written, read, chain):
        x, consumer = cuda.array(shape=4, speaks="cai"), stream(read)
        stream(written).fill(x, 7.0)
        view = chain(x, consumer)
        seen = consumer.read(x)
        cuda.synchronize()
        assert cuda.reports == []
        assert seen.value == [7.0] * 4
        assert view is not None

    return run


WRITTEN = pytest.mark.parametrize("written", STREAMS)
READ = pytest.mark.parametrize("read", STREAMS)


class Bare:
    """Exposes a ``__dlpack__`` that takes nothing."""

    def __init__(self, view):
        self._view = view

    def __dlpack__(self):
        return self._view.__dlpack__()


LEGACY = {
    "a capsule": lambda view: view.__dlpack__(stream=1),
    "a capsule for nobody": lambda view: view.__dlpack__(),
    "a method without arguments": Bare,
    "a method": lambda view: OnlyDLPack(view.__dlpack__),
}


@WRITTEN
@READ
@pytest.mark.parametrize("door", LEGACY)
def test_an_array_that_was_made_ready_on_the_legacy_stream_is_so(door, read, written, handed_on):
    handed_on(written, read, lambda x, mine: to_cai(LEGACY[door](from_cai(x)), stream=mine))


@WRITTEN
@READ
def test_an_array_that_went_through_the_table_is_ready_on_its_work_stream(read, written, handed_on):
    def chain(x, mine):
        taken = tables.managed(from_cai(x))
        view = tables.to_object(DLPackView, taken)
        view.__dlpack__(stream=mine)
        return view

    handed_on(written, read, chain)


@WRITTEN
@READ
@pytest.mark.parametrize("between", STREAMS)
def test_an_array_that_was_made_ready_on_a_stream_is_so(between, read, written, handed_on, stream):
    def chain(x, mine):
        there = to_cai(x, stream=stream(between))
        # Read as another library's, whose dict is all that is known.
        back = from_cai(only_cai(x, **there.__cuda_array_interface__))
        back.__dlpack__(stream=mine)
        return back

    handed_on(written, read, chain)


@WRITTEN
@READ
def test_an_array_that_is_handed_on_twice_is_ordered_for_the_last(read, written, handed_on):
    def chain(x, mine):
        return to_cai(from_cai(to_cai(from_cai(x))), stream=mine)

    handed_on(written, read, chain)
