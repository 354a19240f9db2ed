"""The simulated device: streams, events, work, reports, faults and captures, and its block."""

import copy
import gc
import pickle
import threading
import traceback
import weakref
from pathlib import Path

import pytest
from found import kinds

from cai_bridge import DriverError, to_cai
from cai_bridge.testing import RaceError, SimulatedError, simulated_cuda

pytestmark = pytest.mark.unchecked


# What each does after `p` was told to write 7 over 0 in `x`, in order or not, and what it reads.
def another_stream(cuda, p, x, ordered):
    c = cuda.stream("c")
    if ordered:
        c.wait(p.record())
    return c.read(x)


def a_copy(cuda, p, x, ordered):
    c, y = cuda.stream("c"), cuda.array([0.0])
    if ordered:
        c.wait(p.record())
    c.copy(y, x)
    cuda.synchronize()
    return y


def the_host(cuda, p, x, ordered):
    if ordered:
        p.synchronize()
    return x.tolist()


def a_wait_left_out(cuda, p, x, ordered):
    if not ordered:
        cuda.suppress("cuStreamWaitEvent")
    read = another_stream(cuda, p, x, ordered=True)
    assert ordered or cuda.calls[-1].outcome == "suppressed"
    return read


def the_legacy_default_stream(cuda, p, x, ordered):
    stream = cuda.stream("blocking", blocking=ordered)
    stream.wait(p.record())
    stream.fill(x, 7.0)
    return cuda.legacy.read(x)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(
    "read", [another_stream, a_copy, the_host, a_wait_left_out, the_legacy_default_stream]
)
def test_who_reads_races_until_it_is_ordered(cuda, read, ordered):
    """The legacy default stream waits for blocking streams only."""
    p, x = cuda.stream("p"), cuda.array([0.0], name="x")
    p.fill(x, 7.0)
    seen = read(cuda, p, x, ordered)
    cuda.synchronize()
    seen = getattr(seen, "value", None) or getattr(seen, "tolist", lambda: seen)()
    assert seen == ([7.0] if ordered else [0.0])
    assert kinds(cuda) == ([] if ordered else ["race"])


@pytest.mark.parametrize("ordered", [False, True])
def test_a_host_write_races_until_the_host_waits(cuda, ordered):
    p, x = cuda.stream("p"), cuda.array([1.0])
    seen = p.read(x)
    assert not seen.done
    with pytest.raises(SimulatedError, match="has not run"):
        _ = seen.value
    if ordered:
        p.synchronize()
    x.assign([2.0])
    cuda.synchronize()
    assert seen.value == ([1.0] if ordered else [2.0])
    assert kinds(cuda) == ([] if ordered else ["race"])


def test_time_that_passes_orders_nothing(cuda):
    p, x = cuda.stream("p"), cuda.array([0.0])
    p.fill(x, 7.0)
    cuda.run()
    assert x.tolist() == [7.0]
    assert kinds(cuda) == ["race"]


def test_work_past_the_end_of_memory_is_reported(cuda):
    x = cuda.array([1.0], name="x")
    cuda.launch(cuda.legacy, reads=[(x.ptr, 8)])
    assert kinds(cuda) == ["out of bounds"]


def test_each_thread_has_a_default_stream_of_its_own(cuda):
    x = cuda.array([0.0])
    cuda.per_thread.fill(x, 7.0)
    other = threading.Thread(target=cuda.per_thread.fill, args=(x, 8.0))
    other.start()
    other.join()
    assert kinds(cuda) == ["race"]
    assert all(thread in str(cuda.reports[0]) for thread in ("thread#1", "thread#2"))


def test_an_event_tells_the_host_when_it_is_reached(cuda):
    p, x = cuda.stream("p"), cuda.array([0.0])
    p.fill(x, 7.0)
    event = p.record()
    assert not event.done
    event.synchronize()
    assert (event.done, x.tolist(), kinds(cuda)) == (True, [7.0], [])


def test_a_report_names_both_sides(cuda):
    p, c = cuda.stream("p"), cuda.stream("c")
    x = cuda.array([0.0, 0.0], name="x")
    p.fill(x, 7.0, name="produce")
    c.read(x, name="consume")
    (report,) = cuda.reports
    assert (report.first.operation, report.first.access) == ("produce", "write")
    assert (report.second.operation, report.second.access) == ("consume", "read")
    assert (report.second.allocation, report.second.start, report.second.stop) == ("x", 0, 8)
    assert "stream 'p'" in report.first.place
    message, *lines = str(report).splitlines()
    assert message == report.message
    assert [one.strip().partition(" ")[2] for one in lines] == [
        f"{Path(__file__).name}:{side.line.number} in {side.line.function}: {source}"
        for side, source in (
            (report.first, 'p.fill(x, 7.0, name="produce")'),
            (report.second, 'c.read(x, name="consume")'),
        )
    ]
    cuda.clear_reports()
    assert cuda.reports == []


def test_queued_work_may_read_and_write_what_its_launch_declared(cuda):
    p = cuda.stream("p")
    x, y = cuda.array([1.0, 2.0]), cuda.array([0.0, 0.0])
    cuda.launch(p, lambda: y.assign([2 * v for v in x.tolist()]), reads=[x], writes=[y])
    assert y.stream is p
    cuda.synchronize()
    assert y.tolist() == [2.0, 4.0]
    assert kinds(cuda) == []


def test_a_destroyed_stream_is_reported(cuda):
    p = cuda.stream("p")
    p.destroy()
    with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_HANDLE"):
        p.record()
    assert kinds(cuda) == ["dead stream"]


@pytest.mark.parametrize("held", [True, False])
def test_a_stream_is_destroyed_with_its_object(cuda, held):
    p = cuda.stream("p")
    x = cuda.array([1.0], speaks="cai", stream=p if held else None)
    interface = dict(x.__cuda_array_interface__, stream=p.handle)
    stub = type("Stub", (), {"__cuda_array_interface__": interface})()
    waits = cuda.consumer("cai-waits", cuda.stream("c"))
    del p
    if held:
        waits.read(stub)
    else:
        with pytest.raises(DriverError):
            waits.read(stub)
    assert kinds(cuda) == ([] if held else ["dead stream"])


def test_the_current_device_is_the_threads(cuda):
    assert (cuda.devices, cuda.current_device) == (2, 0)
    cuda.set_device(1)
    assert (cuda.current_device, cuda.stream().device, cuda.legacy.device) == (1, 1, 1)
    assert cuda.array([1.0]).device == (2, 1)
    assert cuda.default_stream(0).device == 0
    with pytest.raises(ValueError, match=r"^device: got 2; allowed: 0 or 1$"):
        cuda.set_device(2)
    p = cuda.stream("p")
    assert (p.__cuda_stream__(), p.name) == ((0, p.handle), "p")
    assert (cuda.legacy.handle, cuda.per_thread.handle) == (1, 2)
    assert cuda.stream().name.startswith("stream#3 (device 1")


def test_a_driver_call_can_be_made_to_fail(cuda):
    p = cuda.stream("p")
    cuda.fail("cuEventRecord", nth=2)
    p.record()
    with pytest.raises(DriverError, match="CUDA_ERROR_OUT_OF_MEMORY") as raised:
        p.record()
    assert (raised.value.call, raised.value.code) == ("cuEventRecord", 2)
    cuda.fail("cuEventRecord", error=999)
    assert cuda.clear_faults() == 1
    p.record()
    outcomes = [call.outcome for call in cuda.calls if call.call == "cuEventRecord"]
    assert outcomes == ["done", "CUDA_ERROR_OUT_OF_MEMORY", "done"]
    assert cuda.calls[-1].stream == p.handle
    cuda.clear_calls()
    assert cuda.calls == []


def test_a_race_names_the_bridges_own_call_where_there_is_no_other(cuda):
    p, c = cuda.stream("p"), cuda.stream("c")
    x, z = (cuda.array([0.0, 0.0], speaks="exchange") for _ in range(2))
    with cuda.current_stream(p):
        p.fill(x, 7.0)
    # One line after the block another stream is current.
    c.read(to_cai(x, stream=c))
    with cuda.current_stream(p):
        p.fill(z, 7.0)
        c.read(to_cai(z, stream=-1))
    late, unordered = map(str, cuda.reports)
    assert "between them: c.read(to_cai(x, stream=c))\n" in late
    assert "name it: convert(from_cai(x, stream=side), library)" in late
    assert "between them: c.read(to_cai(z, stream=-1))\n" in unordered
    assert "stream=-1 asks for no order" in unordered
    cuda.clear_reports()


def test_a_race_names_the_call_between_its_lines_that_hands_the_array_over(cuda):
    class torch:
        @staticmethod
        def as_tensor(array):
            return array

    p, c = cuda.stream("p"), cuda.stream("c")
    x = cuda.array([0.0, 0.0], name="x")
    p.fill(x, 7.0)
    y = torch.as_tensor(x)
    c.read(y)
    (report,) = cuda.reports
    told = str(report)
    assert "between them: y = torch.as_tensor(x)\n" in told
    assert "handed over by CAI, and nobody waits: use cai_bridge.convert(x, library)" in told
    with pytest.raises(RaceError, match=r"(?s)in test_a_race.*: p\.fill\(x, 7\.0\).*between them"):
        cuda.check()
    cuda.clear_reports()


def test_a_device_inside_another_is_refused_and_the_outer_one_stays(cuda):
    with pytest.raises(SimulatedError, match="already in place"), simulated_cuda():
        pass
    assert cuda.array([1.0]).tolist() == [1.0]


def test_the_real_driver_comes_back_after_an_exception_and_a_device_is_entered_once():
    with pytest.raises(KeyError), simulated_cuda() as first:
        raise KeyError
    with pytest.raises(SimulatedError, match="only inside its with block"):
        first.array([1.0])
    cuda = simulated_cuda()
    with pytest.raises(SimulatedError, match="only inside its with block"):
        cuda.stream()
    with cuda:
        pass
    with pytest.raises(SimulatedError, match="entered once"), cuda:
        pass


def race(cuda):
    x = cuda.array([0.0], name="x")
    cuda.stream("p").fill(x, 7.0)
    cuda.stream("c").read(x)
    return x


def test_the_end_of_the_block_raises_what_was_found_unless_no_check_was_asked_for():
    with pytest.raises(RaceError, match=r"1 report:\n  1\. race: 'fill'") as raised:
        with simulated_cuda() as cuda:
            cuda.x = race(cuda)
    assert raised.value.reports[0].kind == "race"
    assert isinstance(raised.value, AssertionError)
    shown = "".join(traceback.format_exception_only(RaceError([])))
    assert shown.startswith("cai_bridge.testing.RaceError: ")
    with simulated_cuda(check=False) as cuda:
        race(cuda)
    with pytest.raises(RaceError):
        cuda.check()


@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_the_error_is_the_same_when_it_is_copied_or_crosses_to_another_process(again):
    with pytest.raises(RaceError) as raised, simulated_cuda() as cuda:
        cuda.x = race(cuda)
    error = RaceError(raised.value.reports, 3)
    error.add_note("a note")
    other = again(error)
    assert type(other) is RaceError
    assert (str(other), other.reports, other.left_out) == (str(error), error.reports, 3)
    assert other.__notes__ == ["a note"]


def test_the_end_of_the_block_runs_what_is_queued_and_nothing_after_an_exception():
    ran = []

    def race_and_stop(cuda):
        race(cuda)
        cuda.legacy.launch(lambda: ran.append(1))
        raise KeyError

    with pytest.raises(KeyError), simulated_cuda() as cuda:
        race_and_stop(cuda)
    assert ran == []
    with simulated_cuda() as cuda:
        x = cuda.array([0.0])
        cuda.stream("p").fill(x, 7.0)
    assert x.tolist() == [7.0]


def test_what_queued_work_raises_is_raised_at_the_sync_and_it_may_not_wait_itself(cuda):
    def fail():
        raise LookupError("in work")

    p = cuda.stream("p")
    p.launch(fail)
    p.launch(lambda: 1 / 0)
    assert cuda.pending == 2
    with pytest.raises(LookupError, match="in work") as raised:
        p.synchronize()
    assert "ZeroDivisionError" in raised.value.__notes__[0]
    cuda.legacy.launch(cuda.synchronize)
    with pytest.raises(DriverError, match="CUDA_ERROR_NOT_PERMITTED"):
        cuda.synchronize()


def test_what_queued_work_raises_at_the_end_comes_with_the_reports():
    def race_and_fail(cuda):
        race(cuda)
        cuda.legacy.launch(lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError) as raised, simulated_cuda() as cuda:
        race_and_fail(cuda)
    assert "race" in raised.value.__notes__[0]


def test_a_captured_graph_runs_at_each_launch(cuda):
    p = cuda.stream("p")
    x = cuda.array([1.0])
    with cuda.capture(p) as graph:
        cuda.launch(p, lambda: x.assign([2 * x.tolist()[0]]), reads=[x], writes=[x])
    cuda.synchronize()
    assert x.tolist() == [1.0]
    graph.launch(p)
    graph.launch(p)
    cuda.synchronize()
    assert x.tolist() == [4.0]
    assert kinds(cuda) == []


def test_a_capture_that_was_spoiled_fails_at_its_end(cuda):
    p = cuda.stream("p")
    event, graph = cuda.stream("c").record(), cuda.capture(p)
    with pytest.raises(DriverError, match="CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"), graph:
        with pytest.raises(DriverError, match="CUDA_ERROR_STREAM_CAPTURE_ISOLATION"):
            p.wait(event)
    with pytest.raises(SimulatedError, match="not become a graph"):
        graph.launch(p)
    with pytest.raises(KeyError), cuda.capture(p):
        raise KeyError
    with pytest.raises(ValueError, match="relaxed"), cuda.capture(p, mode="other"):
        pass


def stop_in_the_middle(cuda):
    """Leave work behind that refers to the device: queued, in a graph, and in an open capture."""
    p, q = cuda.stream("p"), cuda.stream("q")
    with cuda.capture(p):
        cuda.launch(p, lambda: cuda.devices)
    with cuda.capture(p):
        cuda.launch(p, lambda: cuda.devices)
        cuda.launch(q, lambda: cuda.devices)
        raise KeyError


def test_nothing_is_left_of_a_device_whose_work_refers_to_it():
    cuda = simulated_cuda()
    gone = weakref.ref(cuda._session)
    with pytest.raises(KeyError), cuda:
        stop_in_the_middle(cuda)
    del cuda
    gc.collect()
    assert gone() is None


def test_threads_that_wait_at_once_do_not_lock_each_other_out(cuda):
    streams = [cuda.stream(f"s{number}") for number in range(4)]
    ran = []
    for number in range(40):
        cuda.launch(streams[number % 4], lambda number=number: ran.append(number))
    threads = [threading.Thread(target=stream.synchronize) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(ran) == list(range(40))


def races(cuda, times, error):
    """So many races on named streams, and then an exception."""
    x, first, second = cuda.array([0.0]), cuda.stream("first"), cuda.stream("second")
    for number in range(times):
        first.fill(x, 1.0, name=f"write {number}")
        second.read(x, name=f"read {number}")
    second.synchronize()
    found = len(cuda.reports)
    error.args = (found,)
    raise error


@pytest.mark.parametrize("error", [AssertionError, KeyboardInterrupt])
def test_an_exception_that_leaves_the_block_has_the_reports_as_notes(error):
    with pytest.raises(error) as raised, simulated_cuda() as cuda:
        races(cuda, 1, error())
    (note,) = raised.value.__notes__
    assert all(part in note for part in ("race", "'first'", "'second'"))


def test_the_notes_are_ten_and_a_count_and_none_without_a_check():
    with pytest.raises(KeyError) as raised, simulated_cuda() as cuda:
        races(cuda, 12, KeyError())
    (found,) = raised.value.args
    assert found > 11
    assert len(raised.value.__notes__) == 11
    assert raised.value.__notes__[-1] == f"and {found - 10} more reports of the simulated device"
    with pytest.raises(KeyError) as raised, simulated_cuda(check=False) as cuda:
        races(cuda, 1, KeyError())
    assert not hasattr(raised.value, "__notes__")


def test_a_stream_in_a_with_block_is_the_current_one(cuda):
    x = cuda.array([0.0] * 4, speaks="exchange")
    outer, inner = cuda.stream("outer"), cuda.stream("inner")
    with outer as entered:
        assert entered is outer
        with inner:
            assert to_cai(x).stream == inner.handle
        assert to_cai(x).stream == outer.handle
    with pytest.raises(KeyError), inner:
        raise KeyError
    assert to_cai(cuda.array([0.0] * 4, speaks="exchange")).stream == 1


def test_log_records_name_streams_and_have_handles_in_hex(cuda, caplog):
    named, other = cuda.stream("torch's"), cuda.stream()
    x = cuda.array([0.0] * 4, speaks="exchange")
    with caplog.at_level("DEBUG", "cai_bridge"), named:
        named.fill(x, 7.0)
        to_cai(x, stream=other).release()
    event = other.record()
    shown = f"stream={other.handle:#x}, event={event.handle:#x}, context=None)"
    assert shown in repr(cuda.calls[-1])
    made, back = (record for record in caplog.records if record.order == "made")
    assert f'producer={named.handle:#x} "torch\'s" consumer={other.handle:#x} ' in made.getMessage()
    assert (made.producer, made.consumer) == (named.handle, other.handle)
    assert f'producer={named.handle:#x} "torch\'s"' in back.getMessage()


@pytest.mark.parametrize(
    "use",
    [
        lambda cuda, a, _: cuda.legacy.read(a),
        lambda cuda, a, _: cuda.legacy.fill(a, 1.0),
        lambda cuda, a, _: cuda.legacy.copy(cuda.array([1.0]), a),
        lambda cuda, a, _: cuda.launch(cuda.legacy, reads=[a]),
        lambda cuda, _, s: cuda.current_stream(s).__enter__(),
        lambda cuda, _, s: cuda.launch(s),
    ],
    ids=["read", "fill", "copy", "launch", "current stream", "stream"],
)
def test_what_is_of_a_block_that_has_ended_is_refused_in_the_next(use):
    with simulated_cuda() as before:
        a, s = before.array([1.0]), before.stream()
    with simulated_cuda() as cuda:
        with pytest.raises(SimulatedError, match=r"has ended|only inside its with block"):
            use(cuda, a, s)
        assert cuda.pending == 0
