"""`trace`: the file, when it is written, what bounds it, and what processes do to it."""

import asyncio
import inspect
import logging
import os
import re
import threading
from pathlib import Path

import pytest
from children import DEVICE, assert_quiet
from traces import Trace

import cai_bridge
from cai_bridge import from_cai, to_cai, trace
from cai_bridge._trace_format import write


def use(cuda):
    from_cai(to_cai(cuda.array(shape=4))).__dlpack__()


@pytest.mark.parametrize("level", [logging.DEBUG, logging.CRITICAL])
def test_what_is_logged_and_what_is_traced_have_nothing_to_do_with_each_other(
    level, traced, caplog, cuda
):
    caplog.set_level(level, logger="cai_bridge")
    use(cuda)
    logged = [(record.getMessage(), vars(record).keys()) for record in caplog.records]
    assert bool(logged) == (level == logging.DEBUG)
    caplog.clear()
    with traced():
        use(cuda)
    again = [(record.getMessage(), vars(record).keys()) for record in caplog.records]
    assert again == logged
    assert not any("trace" in message for message, _ in logged)
    seen = traced.read()
    assert (len(seen.slices("exchange")), len(seen.slices("release"))) == (3, 3)


def test_nothing_is_kept_before_or_after(traced, cuda):
    traced.path.write_text("from before")
    use(cuda)
    with traced():
        assert traced.path.read_text() == "", "the file is empty until it is whole"
    whole = traced.path.read_text()
    use(cuda)
    assert traced.path.read_text() == whole
    assert traced.read().timed == []
    with traced():
        use(cuda)
    assert len(traced.read().slices("exchange")) == 3


def test_an_exception_passes_and_the_file_is_written(traced, cuda):
    def fail():
        with traced():
            use(cuda)
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        fail()
    assert len(traced.read().slices("exchange")) == 3


@pytest.mark.parametrize(
    ("path", "said"),
    [("missing/trace.json", "missing"), (".", "directory"), ("/dev/full", "No space")],
)
def test_a_bad_path_or_a_full_disk_is_an_error_and_leaves_nothing_open(
    path, said, tmp_path, traced, cuda
):
    if path.startswith("/") and not Path(path).exists():
        pytest.skip("no such device")
    entered = []

    def block():
        with trace(tmp_path / path):
            entered.append(use(cuda))

    with pytest.raises(OSError, match=said):
        block()
    assert len(entered) == (path == "/dev/full"), "a bad path fails at once"
    with traced():
        use(cuda)
    assert traced.read().timed


def test_a_second_trace_is_refused_and_the_first_goes_on(traced, tmp_path, cuda):
    with traced():
        for path in (tmp_path / "other.json", traced.path):
            with pytest.raises(RuntimeError, match=r"^trace: got a second trace"):
                with trace(path):
                    pytest.fail("the block is not entered")
        use(cuda)
    assert len(traced.read().slices("exchange")) == 3
    assert not (tmp_path / "other.json").exists()


@pytest.mark.parametrize("limit", [1, 3, 2**100])
def test_what_is_beyond_the_limit_is_left_out_and_counted(limit, traced, cuda):
    with traced(limit=limit):
        for _ in range(5):
            to_cai(cuda.array(shape=4)).release()
    seen = traced.read()
    # Of each round: an order elided, the exchange, the end's order, the release.
    out = max(0, 20 - limit)
    marks = [(mark["s"], mark["name"]) for mark in seen.marks("trace")]
    assert seen.about["left_out"] == out
    assert marks == [("g", f"{out} events are left out: the limit was reached")] * (out > 0)
    assert len(seen.timed) == 20 - out + len(marks)


def test_a_trace_is_for_one_block_and_as_a_decorator_for_one_call(tmp_path, cuda):
    path = tmp_path / "trace.json"
    used = trace(path)
    with used:
        pass
    before = path.read_text()
    with pytest.raises(RuntimeError, match=r"^trace: got one that was used; allowed: a new one f"):
        with used:
            pytest.fail("the block is not entered")
    assert path.read_text() == before
    work = trace(path)(lambda: use(cuda))
    for _ in range(2):
        path.unlink()
        work()
        assert "exchange" in path.read_text()


def test_as_a_decorator_it_traces_what_a_coroutine_does_and_takes_no_generator(tmp_path, cuda):
    path = tmp_path / "trace.json"

    @trace(path)
    async def work(x):
        await asyncio.sleep(0)
        return to_cai(x)

    view = asyncio.run(work(cuda.array([1.0])))
    assert type(view).__name__ == "CaiView"
    assert "exchange" in path.read_text()

    def steps():
        yield use(cuda)

    async def later():
        yield use(cuda)

    for one in (steps, later):
        with pytest.raises(TypeError, match=r"^function: got a generator function; allowed: "):
            trace(path)(one)


def test_more_events_than_are_written_at_once_are_all_there_in_order(traced, cuda):
    x = cuda.array(shape=4)
    with traced():
        view = to_cai(x)
        for _ in range(2500):
            assert view.__cuda_array_interface__
    times = [e["ts"] for e in traced.read().slices("exchange")]
    assert (len(times), times) == (2501, sorted(times))


def test_threads_that_convert_at_once_make_a_good_file(traced, cuda):
    x = cuda.array(shape=4, stream=cuda.stream(), speaks="cai3")
    streams = [cuda.stream() for _ in range(2)]

    def convert(stream):
        for _ in range(50):
            from_cai(to_cai(x, stream=stream)).__dlpack__(stream=1)

    with traced():
        threads = [threading.Thread(target=convert, args=(streams[n % 2],)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(traced.read().slices("exchange")) == 4 * 50 * 3


def test_what_the_file_says_of_itself(traced):
    with traced():
        pass
    about = traced.read().about
    assert (about["cai_bridge"], about["left_out"]) == (cai_bridge.__version__, 0)
    assert "host" in about["times"]


class Recording:
    """What a trace kept, made up: nanoseconds on a clock that began before the trace did."""

    left_out = 0
    times = (1_000, 9_000)
    threads = ((7, "MainThread"), (9, ""))

    def __init__(self, *kept):
        self._kept = list(kept)

    def take(self, most):
        taken, self._kept = self._kept[:most], self._kept[most:]
        return taken


def written(path, *kept):
    with path.open("w") as file:
        write(file, Recording(*kept), {})
    return Trace(path)


def order(at, name="hand over", thread=7, **streams):
    fields = {"door": "to_cai", "device": 0, "order": "made", "trace.recorded_on": 0, **streams}
    return name, at, thread, fields


def test_orders_at_one_moment_do_not_overlap_on_their_lanes(tmp_path):
    times = (2_000, 2_010, 2_010, 2_150, 2_160)
    there = {"producer": 16, "consumer": 32}
    seen = written(
        tmp_path / "trace.json",
        order(times[0], **there),
        order(times[1], "give back", **there),
        order(times[2], thread=9, producer=16, consumer=48),
        order(times[3], producer=48, consumer=16),
        order(times[4], producer=64, consumer=16),
    )
    lanes = [f"cuda:0 streams / stream {handle:#x}" for handle in (16, 32, 48, 64)]
    between = [(0, 1), (1, 0), (0, 2), (2, 0), (3, 0)]
    assert seen.arrows == [(lanes[first], lanes[then]) for first, then in between]
    shown = [e["ts"] * 1000 + 1_000 for e in seen.slices("order")[::2]]
    assert all(0 <= late - at <= 400 for late, at in zip(shown, times, strict=True))


def test_a_slice_is_as_long_as_the_call_and_not_as_its_event(tmp_path):
    fields = {"door": "to_cai", "trace.began": 1_500, "trace.ended": 2_750}
    inner = {"by": "deleter", "outcome": "done", "trace.began": 1_500, "trace.ended": 2_000}
    seen = written(
        tmp_path / "trace.json",
        ("release", 2_600, 7, inner),
        ("exchange", 5_000, 7, fields),
        ("host wait", 6_000, 9, {"device": 0, "why": "host wait"}),
    )
    spans = [(e["name"], e["ts"], e["dur"]) for e in seen.timed]
    assert spans == [("deleter", 0.5, 0.5), ("to_cai", 0.5, 1.25), ("host wait", 5.0, 0.0)]
    assert seen.lane(seen.timed[-1]) == "host threads / thread 9"
    assert "trace.began" not in seen.timed[0]["args"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_writes_nothing_and_opens_no_trace_beside_the_parents(tmp_path):
    path = tmp_path / "trace.json"
    assert_quiet(
        DEVICE,
        f"""
        from cai_bridge import trace
        path, given = {str(path)!r}, from_cai(x)
        with trace(path):
            to_cai(x)
            if not (pid := os.fork()):
                with given:
                    pass
                try:
                    with trace(path):
                        sys.exit(1)
                except RuntimeError as error:
                    assert "fork" in str(error)
                sys.exit()
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert os.path.getsize(path) == 0
        with trace(path + ".after"):
            to_cai(x)
        """,
    )
    assert Trace(path).exchanges() == [("to_cai", "exchange API")]
    assert Trace(tmp_path / "trace.json.after").exchanges() == [("to_cai", "exchange API")]


@pytest.mark.parametrize(
    ("how", "is_whole"),
    [
        ("sys.exit()", True),
        ("os._exit(0)", False),
        ("threading.Thread(target=forever(stack.pop_all()), daemon=True).start()", False),
    ],
)
def test_a_process_that_ends_meanwhile_leaves_a_whole_file_or_none(how, is_whole, tmp_path):
    path = tmp_path / "trace.json"
    assert_quiet(
        DEVICE,
        f"""
        import contextlib
        def forever(stack):
            return lambda: threading.Event().wait() or stack
        from cai_bridge import trace
        with contextlib.ExitStack() as stack:
            stack.enter_context(trace({str(path)!r}))
            sys.view = from_cai(x)
            sys.capsule = sys.view.__dlpack__()
            {how}
        """,
    )
    assert Trace(path).exchanges() if is_whole else path.read_text() == ""


def test_its_docs_name_every_argument():
    named = re.findall(r"^ *(\w+) : ", trace.__doc__, re.MULTILINE)
    assert named == list(inspect.signature(trace).parameters)
