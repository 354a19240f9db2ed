"""The systems that the specifications name, by stand-ins that do what their sources do.

In each direction: the values, the order at hand-over and at the end, and who keeps what. What is
not minded by a system is told it by `to_cai(x, stream=s)` or `from_cai(x, stream=s)`. Unsaid there
is a race into a system that ignores the dict's stream, unless the bridge knows that it works on
default streams; out of one, the host waits.
"""

import gc
import sys
import types
import weakref

import pytest
from contract import rows
from scenes import done
from specification import BLOCKS, called, taken_on
from systems import (
    TAKING,
    Compute,
    CuTile,
    CvCuda,
    Holoscan,
    Mpi4py,
    PyCuda,
    Pylibcudf,
    Raft,
    Xgboost,
)
from systems_out import MAKING, CudfColumn, PyArrowBuffer, floats

from cai_bridge import HostSyncWarning, convert, from_cai, to_cai
from cai_bridge._core import _habits, _settle

SEEN = [7.0] * 8
each_taking = pytest.mark.parametrize("system", TAKING, ids=lambda system: system.name)
each_making = pytest.mark.parametrize("system", MAKING, ids=lambda system: system.name)
WITHOUT_DICTS = sorted({row[0] for row in _habits() if row[1] == "IgnoresDicts"})
ANSWERS = "ignore::cai_bridge.HostSyncWarning"


def works_on(cuda, system):
    """The stream that a system works on."""
    streams = {"legacy": cuda.legacy, "per-thread": cuda.default_stream(0, per_thread=True)}
    return streams.get(system.on) or cuda.stream(system.name)


class Hand:
    """An array of a library with DLPack's exchange API, written to on its stream, and handed on."""

    def __init__(self, cuda, system):
        self.cuda, self.system = cuda, system
        self.producer, self.theirs = cuda.stream("producer's"), works_on(cuda, system)
        own = {"speaks": "exchange", "memory": "pool", "stream": self.producer}
        self.x = cuda.array([0.0] * 8, name="x", **own)
        self.producer.fill(self.x, 7.0, name="the producer's write")

    def view(self, **how):
        with self.cuda.current_stream(self.producer):
            return to_cai(self.x, **how)

    def taken(self, view):
        return self.system(self.cuda, view, self.theirs)

    def write_next(self):
        self.producer.fill(self.x, 9.0, name="the producer's next write")


def test_every_stand_in_is_of_a_system_in_the_table():
    table = " ".join(system["name"] for system in rows("systems", "system"))
    assert [one.name for one in (*TAKING, *MAKING) if one.name not in table] == []
    cited = [system for system in rows("systems", "system") if "test_systems.py" in str(system)]
    stood_in = {one.name for one in (*TAKING, *MAKING)}
    for system in cited:
        real = "gpu/test_systems.py" in str(system) and "python/test_systems.py" not in str(system)
        assert real or any(name in system["name"] for name in stood_in), system["name"]


@each_taking
def test_it_reads_what_was_written_late(cuda, system):
    hand = Hand(cuda, system)
    view = hand.view(stream=hand.theirs)
    taken = hand.taken(view)
    assert taken.region.ptr == hand.x.ptr
    seen = taken.read()
    assert done(seen) == SEEN


@each_taking
@pytest.mark.unchecked
def test_unsaid_it_is_right_where_the_system_minds_the_dict_and_else_a_race(cuda, system):
    hand = Hand(cuda, system)
    view = hand.view()
    seen = hand.taken(view).read()
    cuda.synchronize()
    right = (seen.value, cuda.reports) == (SEEN, [])
    # The legacy default stream waits for no other stream of these.
    assert right == bool(system.minds), cuda.reports
    assert view.stream == hand.producer.handle


@pytest.mark.parametrize("on", ["legacy", "per-thread", "blocking"])
@pytest.mark.parametrize("module", WITHOUT_DICTS)
def test_unsaid_it_is_right_where_a_system_is_imported_that_works_on_default_streams(
    cuda, module, on, monkeypatch
):
    monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
    hand = Hand(cuda, Pylibcudf)
    theirs = {"per-thread": cuda.default_stream(0, per_thread=True), "legacy": cuda.legacy}
    hand.theirs = theirs.get(on) or cuda.stream("blocking", blocking=True)
    view = hand.view()
    taken = hand.taken(view)
    seen = taken.read()
    assert taken.cai["stream"] == hand.producer.handle
    del taken, view
    hand.write_next()
    assert done(seen) == SEEN


@pytest.mark.parametrize(
    ("module", "system"), [("pycuda", PyCuda), ("cvcuda", CvCuda), ("holoscan", Holoscan)]
)
def test_unsaid_a_system_that_works_on_the_legacy_default_stream_is_in_order(
    cuda, module, system, monkeypatch
):
    monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
    hand = Hand(cuda, system)
    with hand.view() as view:
        seen = hand.taken(view).read()
    hand.write_next()
    assert done(seen) == SEEN


def test_cv_cuda_takes_a_view_of_dlpack_whose_stream_it_passes_by_position(cuda):
    hand = Hand(cuda, CvCuda)
    taken = hand.taken(from_cai(hand.view()))
    seen = taken.read()
    del taken
    hand.write_next()
    assert done(seen) == SEEN


@pytest.mark.parametrize("captured", ["producer", "blocking", "another"])
def test_a_dict_is_read_in_a_capture_though_the_default_stream_cannot_wait_there(
    cuda, captured, monkeypatch
):
    monkeypatch.setitem(sys.modules, "pylibcudf", types.ModuleType("pylibcudf"))
    hand = Hand(cuda, Pylibcudf)
    others = {"blocking": cuda.stream("blocking", blocking=True), "another": cuda.stream("another")}
    view = hand.view()
    with cuda.capture(others.get(captured, hand.producer)):
        cuda.clear_calls()
        assert view.__cuda_array_interface__["stream"] == hand.producer.handle
        waits = [one for one in cuda.calls if one.call == "cuStreamWaitEvent"]
        assert len(waits) == (captured == "another")


def test_the_default_stream_waits_for_no_other_where_nobody_ignores_dicts(cuda, monkeypatch):
    hand = Hand(cuda, Pylibcudf)
    view = hand.view()
    cuda.clear_calls()
    assert view.__cuda_array_interface__["stream"] == hand.producer.handle
    assert called(cuda, "cuStreamWaitEvent") == []


@each_taking
def test_what_it_writes_is_what_the_producer_reads_next(cuda, system):
    hand = Hand(cuda, system)
    view = hand.view(stream=hand.theirs)
    hand.taken(view).write(8.0)
    view.release()
    seen = hand.producer.read(hand.x)
    assert done(seen) == [8.0] * 8


@each_taking
def test_the_producers_next_write_comes_after_its_read(cuda, system):
    hand = Hand(cuda, system)
    view = hand.view(stream=hand.theirs)
    taken = hand.taken(view)
    seen = taken.read()
    del taken, view
    hand.write_next()
    assert done(seen) == SEEN


@each_taking
@pytest.mark.unchecked
def test_with_the_ends_order_left_out_there_is_a_race(cuda, system):
    hand = Hand(cuda, system)
    view = hand.view(stream=hand.theirs)
    hand.taken(view).read()
    for nth in range(1, 4):
        cuda.suppress("cuStreamWaitEvent", nth)
    view.release()
    cuda.clear_faults()
    hand.write_next()
    assert {report.kind for report in cuda.reports} == {"race"}


@each_taking
def test_the_array_lives_as_long_as_what_the_system_made_of_it(cuda, system):
    hand = Hand(cuda, system)
    view = hand.view(stream=hand.theirs)
    taken = hand.taken(view)
    del view
    gc.collect()
    gone = weakref.ref(hand.x)
    ptr = hand.x.ptr
    hand.x = None
    assert (gone() is not None) == system.keeps
    if system.keeps:
        seen = taken.read()
        del taken
        gc.collect()
        assert gone() is None
        assert done(seen) == SEEN
    assert ptr


@pytest.mark.parametrize("system", [Raft, Compute, PyCuda, CuTile, Xgboost])
def test_what_keeps_no_owner_is_used_in_a_with_block(cuda, system):
    hand = Hand(cuda, system)
    assert not system.keeps
    with hand.view(stream=hand.theirs) as view:
        seen = hand.taken(view).read()
    hand.write_next()
    assert done(seen) == SEEN


def test_a_view_of_pylibcudfs_view_is_of_the_same_array(cuda):
    hand = Hand(cuda, Pylibcudf)
    taken = hand.taken(hand.view(stream=hand.theirs))
    assert taken.__cuda_array_interface__["stream"] == hand.theirs.handle
    # Its dict is the view's, so it is as ready as that was; a slice of it no longer says so.
    seen = taken_on(cuda, from_cai(taken))
    part = from_cai(taken.byte_slice(slice(4, 12)), stream=hand.theirs)
    some = taken_on(cuda, part)
    assert done(seen) == SEEN
    assert (part.shape, len(some.value), part.ptr) == ((8,), 8, hand.x.ptr + 4)


@pytest.mark.parametrize("door", ["to_cai", "from_cai"])
def test_mpi_sends_what_was_waited_for_by_either_protocol(cuda, door):
    hand = Hand(cuda, Mpi4py)
    with hand.view() as view:
        given = view if door == "to_cai" else from_cai(view)
        taken = Mpi4py(cuda, given, None)
        cuda.stream_of(view.stream).synchronize()
        seen = cuda.read(taken.region)  # MPI reads it before the call returns
    hand.write_next()
    assert seen == SEEN


def said(cuda, system):
    """A system's array, and a view of it that is told its stream where nothing names it."""
    theirs = works_on(cuda, system)
    made = system(cuda, theirs)
    return made, view_of(system, made, **({} if system.unsaid == "right" else {"stream": theirs}))


def view_of(system, made, **how):
    """A DLPack view of a system's array."""
    if hasattr(made.array, "__dlpack__") and system.unsaid != "host":
        return from_cai(to_cai(made.array), **how)
    return from_cai(made.array, **how)


@each_making
def test_a_consumer_reads_what_the_system_wrote_late(cuda, system):
    made, view = said(cuda, system)
    assert view.ptr == made.bytes.ptr
    seen = taken_on(cuda, view)
    assert called(cuda, *BLOCKS) == []
    cuda.synchronize()
    assert floats(seen.value, view) == SEEN


@each_making
@pytest.mark.filterwarnings(ANSWERS)
def test_unsaid_it_is_right_and_the_host_waits_where_nothing_names_the_stream(cuda, system):
    made = system(cuda, works_on(cuda, system))
    view = view_of(system, made)
    seen = taken_on(cuda, view)
    assert bool(called(cuda, *BLOCKS)) == (system.unsaid == "host")
    cuda.synchronize()
    assert floats(seen.value, view) == SEEN


@pytest.mark.parametrize(
    "system", [one for one in MAKING if one.name != "DALI"], ids=lambda system: system.name
)
def test_the_systems_next_write_comes_after_the_consumers_read(cuda, system):
    made, view = said(cuda, system)
    seen = taken_on(cuda, view)
    view.release()
    seen.release()
    made.write(9.0)
    cuda.synchronize()
    assert floats(seen.value, view) == SEEN


@each_making
@pytest.mark.filterwarnings(ANSWERS)
def test_of_a_stream_that_nobody_said_the_memory_is_kept_until_the_consumer_is_done(cuda, system):
    made = system(cuda, works_on(cuda, system))
    view = view_of(system, made)
    gone = weakref.ref(made.array)
    cuda.synchronize()  # what the system wrote is done: only the end is in question
    seen = taken_on(cuda, view)
    made.array = None
    view.release()
    seen.release()
    gc.collect()
    known = view.stream is not None and system.name != "DALI"
    assert (gone() is None) == known
    cuda.synchronize()
    _settle()
    gc.collect()
    assert gone() is None
    assert floats(seen.value, view) == SEEN


@each_making
def test_the_systems_array_lives_as_long_as_the_view(cuda, system):
    made, view = said(cuda, system)
    gone = weakref.ref(made.array)
    made.array = None
    gc.collect()
    assert gone() is not None
    seen = taken_on(cuda, view)
    view.release()
    seen.release()
    cuda.synchronize()
    _settle()
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("to", ["dlpack", "cai"])
@each_making
def test_convert_takes_a_view_of_it(cuda, system, to):
    mine, (_, view) = cuda.stream("consumer's"), said(cuda, system)
    view = convert(view, to, stream=mine)
    kind = "dlpack" if to == "dlpack" else "cai-waits"
    seen = cuda.consumer(kind, mine).read(view)
    cuda.synchronize()
    assert floats(seen.value, view) == SEEN


def test_an_array_that_keeps_no_owner_is_taken_with_one(cuda):
    stream = cuda.stream("PyArrow")
    made = PyArrowBuffer(cuda, stream)
    view = from_cai(made.array.__cuda_array_interface__, owner=made.bytes, stream=stream)
    gone = weakref.ref(made.bytes)
    made.bytes = made.array = None
    gc.collect()
    assert gone() is not None
    seen = taken_on(cuda, view)
    assert done(seen) == SEEN


def test_a_column_of_cudf_with_nulls_is_refused_for_dlpack_has_no_masks(cuda):
    stream = cuda.stream("cuDF")
    made = CudfColumn(cuda, stream)
    with pytest.raises(BufferError, match=r"^mask: got "):
        from_cai(made.with_nulls(), stream=stream)
    seen = taken_on(cuda, from_cai(made.array, stream=stream))
    assert done(seen) == SEEN


def test_the_hosts_wait_for_a_dict_of_version_0_says_how_to_avoid_it(cuda):
    (rmm,) = (one for one in MAKING if one.name == "RMM")
    made = rmm(cuda, cuda.stream("RMM"))
    made.array.__class__ = type("DeviceBuffer", (type(made.array),), {})
    with pytest.warns(HostSyncWarning, match=r"DeviceBuffer .*from_cai\(x, stream=\.\.\.\)"):
        from_cai(made.array)
