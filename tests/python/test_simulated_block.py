"""The block that a simulated device is in place for: entry, end, errors, captures, leftovers."""

import copy
import gc
import pickle
import threading
import traceback
import weakref

import pytest
from found import kinds

from cai_bridge import DriverError, to_cai
from cai_bridge.testing import RaceError, SimulatedError, simulated_cuda

pytestmark = pytest.mark.unchecked


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
