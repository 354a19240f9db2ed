"""The simulated device: streams, events, work, reports, faults and captures."""

import threading
from pathlib import Path

import pytest
from found import kinds

from cai_bridge import DriverError, to_cai
from cai_bridge.testing import RaceError, SimulatedError

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


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda cuda: cuda.fail("cuFree"), "cuEventRecord"),
        (lambda cuda: cuda.fail("cuEventRecord", nth=0), "nth"),
        (lambda cuda: cuda.fail("cuEventRecord", error="CUDA_SUCCESS"), "CUDA_ERROR_UNKNOWN"),
        (lambda cuda: cuda.fail("cuEventRecord", error=0), "code"),
        (lambda cuda: cuda.suppress("cuPointerGetAttributes"), "cuStreamWaitEvent"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(cuda, fault, message):
    with pytest.raises(ValueError, match=message):
        fault(cuda)


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
