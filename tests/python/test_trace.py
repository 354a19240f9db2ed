"""`trace`: what goes over the bridge, on the lanes where it happens, and each once."""

import ctypes
import gc
import json
import logging
import os
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import capsules
import pytest
import tables
from capsules import HandMade
from children import DEVICE, assert_quiet
from fakes import only_cai, without_warning
from traces import Trace

from cai_bridge import DriverError, from_cai, to_cai, trace

MAIN = "host threads / MainThread"


@pytest.fixture
def traced(tmp_path):
    """A trace to open, and what it then has written."""

    class Traced:
        path = tmp_path / "trace.json"

        def __call__(self, **options):
            # What is garbage by now ends now.
            gc.collect()
            return trace(self.path, **options)

        def read(self):
            return Trace(self.path)

    return Traced()


def on(stream, device=0):
    return f"cuda:{device} streams / stream {stream.handle:#x}"


LEGACY = "cuda:0 streams / legacy default stream (1)"

# --- orders ---------------------------------------------------------------------------------------


def test_an_order_is_one_arrow_from_the_producers_stream_to_the_consumers(traced, cuda):
    p, c = cuda.stream("p"), cuda.stream("c")
    x = cuda.array(shape=4, stream=p, speaks="cai3")
    with traced():
        cuda.clear_calls()
        view = to_cai(x, stream=c)
        calls = [call.call for call in cuda.calls if call.call == "cuStreamWaitEvent"]
        back = [view.release()]
    seen = traced.read()
    assert (len(calls), len(back)) == (1, 1)
    assert seen.arrows == [(on(p), on(c)), (on(c), on(p))]
    assert [(e["name"], e["args"]["way"], e["args"]["door"]) for e in seen.slices("order")] == [
        ("record", "hand over", "to_cai"),
        ("wait", "hand over", "to_cai"),
        ("record", "give back", "release"),
        ("wait", "give back", "release"),
    ]
    assert seen.marks("order") == []
    first = seen.slices("order")[0]["args"]
    assert first["producer"] == f"stream {p.handle:#x}"
    assert first["consumer"] == f"stream {c.handle:#x}"
    assert first["thread"] == "MainThread"


def test_every_order_that_the_driver_made_is_an_arrow_and_no_other(traced, cuda):
    streams = [cuda.stream() for _ in range(3)]
    x = cuda.array(shape=4, stream=streams[0], speaks="cai3")
    with traced():
        cuda.clear_calls()
        views = [to_cai(x, stream=s) for s in (*streams, 1, 2)]
        views += [from_cai(view) for view in views]
        kept = [view.__dlpack__(stream=1, max_version=(1, 3)) for view in views[5:]]
        tables.borrowed(views[5])
        views.clear()
        kept.clear()
        gc.collect()
        waits = [call.call for call in cuda.calls].count("cuStreamWaitEvent")
    assert waits > 8
    assert len(traced.read().arrows) == waits


def test_an_order_across_devices_is_an_arrow_between_the_devices_lanes(traced, cuda):
    p, c = cuda.stream("p"), cuda.stream("c", device=1)
    x = cuda.array([1.0], stream=p, speaks="cai3")
    view = from_cai(x)
    with traced():
        copy = view.__dlpack__(stream=c, dl_device=(2, 1))
    assert traced.read().arrows == [(on(p), on(c, 1)), (on(c, 1), on(p))]
    cuda.synchronize()
    assert copy


def test_a_per_thread_default_stream_is_a_lane_for_each_thread(traced, cuda):
    x = only_cai(cuda.array(shape=4), stream=1)
    with traced():
        threads = [threading.Thread(target=lambda: to_cai(x, stream=2), name=name) for name in "ab"]
        for thread in threads:
            thread.start()
            thread.join()
    seen = traced.read()
    lanes = [f"cuda:0 streams / per-thread default stream (2) of {name}" for name in "ab"]
    handed = [(LEGACY, lane) for lane in lanes]
    assert [arrow for arrow in seen.arrows if arrow in handed] == handed
    assert {seen.lane(e) for e in seen.slices("exchange")} == {
        "host threads / a",
        "host threads / b",
    }


@pytest.mark.parametrize(
    ("theirs", "stream", "lane", "why"),
    [
        ("own", "own", "own", "same stream"),
        ("own", None, "own", "the consumer is told the producer's stream"),
        ("own", -1, "own", "no order asked for"),
        (None, 1, 1, "nothing pending"),
        (None, None, None, "nothing pending"),
        ("blocking", 1, 1, "the legacy default stream's own order"),
    ],
)
def test_an_order_that_is_not_made_is_a_mark_with_the_reason(
    theirs, stream, lane, why, traced, cuda
):
    streams = {"own": cuda.stream(), "blocking": cuda.stream(blocking=True)}
    theirs, stream = (getattr(streams.get(s), "handle", s) for s in (theirs, stream))
    x = only_cai(cuda.array(shape=4), stream=theirs)
    with traced():
        view = to_cai(x, stream=stream)
    seen = traced.read()
    (mark,) = seen.marks("order")
    assert (mark["name"], mark["args"]["why"], seen.arrows) == (f"no wait: {why}", why, [])
    assert seen.lane(mark) == {None: MAIN, 1: LEGACY}.get(lane) or on(streams[lane])
    assert view.ptr


def test_an_order_that_failed_is_a_mark_and_no_arrow(traced, cuda):
    p, c = cuda.stream("p"), cuda.stream("c")
    x = cuda.array(shape=4, stream=p, speaks="cai3")
    cuda.fail("cuEventRecord")
    with traced(), pytest.raises(DriverError):
        to_cai(x, stream=c)
    seen = traced.read()
    (mark,) = [e for e in seen.marks("order") if e["name"] == "order failed"]
    assert (seen.lane(mark), mark["args"]["door"], seen.arrows) == (on(c), "to_cai", [])
    (refused,) = seen.slices("exchange")
    assert "cuEventRecord" in refused["args"]["error"]


def test_streams_have_the_names_that_are_given_for_them(traced, cuda):
    p, c = cuda.stream("p"), cuda.stream("c")
    x = cuda.array(shape=4, stream=p, speaks="cai3")
    with traced(streams={p.handle: "writes", c.handle: "reads"}):
        view = to_cai(x, stream=c)
    arrow = f"cuda:0 streams / writes {p.handle:#x}", f"cuda:0 streams / reads {c.handle:#x}"
    assert traced.read().arrows == [arrow]
    assert view.ptr


# --- exchanges ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "by"),
    [
        (lambda cuda: cuda.array(shape=4, speaks="exchange"), "exchange API"),
        (lambda cuda: cuda.array(shape=4, speaks="dlpack"), "__dlpack__"),
        (lambda cuda: HandMade(cuda.array(shape=4).ptr).capsule(), "capsule"),
        (lambda cuda: cuda.array(shape=4, speaks="cai3"), "CAI v3"),
        (lambda cuda: to_cai(cuda.array(shape=4)), "view"),
        (lambda cuda: from_cai(only_cai(cuda.array(shape=4))), "view"),
    ],
)
def test_every_door_in_is_a_slice_on_the_threads_lane(make, by, traced, cuda):
    x = make(cuda)
    with traced():
        view = to_cai(x, stream=1)
    seen = traced.read()
    (taken,) = seen.slices("exchange")
    assert (taken["name"], taken["args"]["by"], seen.lane(taken)) == ("to_cai", by, MAIN)
    assert taken["dur"] > 0
    assert {name: taken["args"][name] for name in ("dtype", "typestr", "shape", "strides")} == {
        "dtype": "float32",
        "typestr": "<f4",
        "shape": "(4,)",
        "strides": "(4,)",
    }
    assert (taken["args"]["ptr"], taken["args"]["nbytes"]) == (hex(view.ptr), 16)
    assert (taken["args"]["memory"], taken["args"]["readonly"]) == ("cuda:0", False)
    assert taken["args"]["stream"] == "legacy default stream (1)"


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_dict_taken_in_says_its_version(version, traced, cuda):
    x = cuda.array(shape=4)
    with traced():
        from_cai(only_cai(x, version=version), stream=-1)
    assert traced.read().exchanges() == [("from_cai", f"CAI v{version}")]


def test_every_door_out_is_a_slice(traced, cuda):
    x = cuda.array(shape=4)
    cai, dlpack = to_cai(x), from_cai(to_cai(x))
    with traced():
        assert cai.__cuda_array_interface__
        dlpack.__dlpack__()
        dlpack.__dlpack__(max_version=(1, 3))
        tables.managed(dlpack).delete()
        tables.borrowed(dlpack)
        tables.to_object(type(dlpack), HandMade(x.ptr))
    assert traced.read().exchanges() == [
        ("__cuda_array_interface__", "CAI v3"),
        ("__dlpack__", "dltensor"),
        ("__dlpack__", "dltensor_versioned"),
        ("exchange API", "managed tensor"),
        ("exchange API", "borrowed tensor"),
        ("exchange API", "tensor taken over"),
    ]


def test_what_is_refused_is_a_slice_with_the_error(traced, cuda):
    released = to_cai(cuda.array(shape=4)), from_cai(only_cai(cuda.array(shape=4)))
    for view in released:
        view.release()
    readonly = from_cai(only_cai(cuda.array(shape=4)), readonly=True)
    with traced():
        for call in (
            lambda: to_cai(3),
            lambda: from_cai(3),
            lambda: to_cai(cuda.array(shape=4), stream=0),
            lambda: released[0].__cuda_array_interface__,
            released[1].__dlpack__,
            lambda: tables.managed(released[1]),
            lambda: tables.borrowed(readonly),
        ):
            with pytest.raises((TypeError, ValueError, BufferError)):
                call()
    seen = [(e["name"], e["args"]["error"]) for e in traced.read().slices("exchange")]
    assert [(name, error.split(":")[0]) for name, error in seen] == [
        ("to_cai", "TypeError"),
        ("from_cai", "TypeError"),
        ("to_cai", "ValueError"),
        ("__cuda_array_interface__", "BufferError"),
        ("__dlpack__", "BufferError"),
        ("exchange API", "BufferError"),
        ("exchange API", "BufferError"),
    ]


def test_a_wait_of_the_host_and_a_copy_are_slices_and_the_copy_a_mark_on_its_stream(traced, cuda):
    p, c = cuda.stream("p"), cuda.stream("c")
    x = cuda.array([1.0, 2.0], stream=p, speaks="cai3")
    with traced():
        without_warning(only_cai(x, version=2))
        view = from_cai(x)
        kept = [view.__dlpack__(stream=c, copy=True), view.__dlpack__(dl_device=(1, 0))]
    seen = traced.read()
    (wait,) = seen.slices("host wait")
    assert (seen.lane(wait), wait["args"]["why"]) == (MAIN, "host wait")
    assert [(seen.lane(e), e["args"]["host"]) for e in seen.slices("copy")] == [
        (MAIN, "the host did not wait"),
        (MAIN, "the host waited for it"),
    ]
    marks = [(seen.lane(e), e["name"]) for e in seen.marks("copy")]
    assert marks == [(on(c), "copy of 8 bytes"), (on(p), "copy of 8 bytes")]
    assert kept


# --- releases -------------------------------------------------------------------------------------


def collected(view):
    class Cycle:
        pass

    cycle = Cycle()
    cycle.self, cycle.view = cycle, view.pop()
    del cycle
    gc.collect()


def with_block(view):
    with view[0]:
        pass


ENDS = {
    "release()": lambda view: view[0].release(),
    "with": with_block,
    "last reference": lambda view: view.clear(),
    "garbage collector": collected,
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("ordered", [False, True])
def test_every_end_of_a_view_is_one_slice_that_says_how(end, ordered, traced, cuda):
    p, c = cuda.stream("p"), cuda.stream("c")
    # The stream object is held, as an exporter has to: the collector does not ask it any more.
    view = [to_cai(only_cai(cuda.array(shape=4), stream=1), stream=c if ordered else 1)]
    ptr = view[0].ptr
    with traced():
        ENDS[end](view)
        view.clear()
    seen = traced.read()
    assert seen.releases() == [(end, "done")]
    (release,) = seen.slices("release")
    assert (release["args"]["ptr"], seen.lane(release)) == (hex(ptr), MAIN)
    assert seen.arrows == ([(on(c), LEGACY)] if ordered else [])
    assert p.handle


@pytest.mark.parametrize("form", [None, (1, 3), "exchange"])
def test_a_deleter_in_a_native_thread_is_a_slice_on_that_threads_lane(form, traced, cuda):
    p, c = cuda.stream("p"), cuda.stream("c")
    view = from_cai(cuda.array(shape=4, stream=p, speaks="cai3"))
    if form == "exchange":
        taken, c = tables.managed(view), cuda.legacy
    else:
        taken = capsules.take(view.__dlpack__(stream=c, max_version=form))
    library, thread = ctypes.CDLL(None), ctypes.c_ulong()
    with traced():
        address = ctypes.byref(taken.struct)
        deleter = ctypes.c_void_p(taken.struct.deleter)
        assert library.pthread_create(ctypes.byref(thread), None, deleter, address) == 0
        assert library.pthread_join(thread, None) == 0
    seen = traced.read()
    assert seen.releases() == [("deleter", "done")]
    (release,) = seen.slices("release")
    assert seen.lane(release).startswith("host threads / native thread ")
    assert seen.arrows == [(LEGACY if form == "exchange" else on(c), on(p))]
    assert release["args"]["ptr"] == hex(view.ptr)
    taken.struct.deleter = None


def test_an_end_that_is_put_off_is_told_and_told_again_once_it_is_done(traced, cuda):
    c = cuda.stream("c")
    x = cuda.array([1.0] * 4, speaks="dlpack")
    view = to_cai(x, stream=c)
    c.read(view)
    with traced():
        view.release()
        to_cai(cuda.array(shape=4)).release()
        cuda.synchronize()
        to_cai(cuda.array(shape=4)).release()
    ends = [end for end in traced.read().slices("release") if end["args"]["ptr"] == hex(x.ptr)]
    assert [(e["name"], e["args"]["outcome"]) for e in ends] == [
        ("release()", "put off"),
        ("release()", "done later"),
    ]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_end_that_fails_is_told_and_one_that_is_hopeless_lets_go(traced, cuda):
    p, c = cuda.stream("p"), cuda.stream("c")
    view = to_cai(cuda.array(shape=4, stream=p, speaks="cai3"), stream=c)
    with traced():
        cuda.fail("cuEventRecord")
        with pytest.raises(DriverError):
            view.release()
        cuda.fail("cuEventRecord", error="CUDA_ERROR_CONTEXT_IS_DESTROYED")
        del view
    seen = traced.read()
    assert seen.releases() == [
        ("release()", "failed"),
        ("last reference", "let go without an order"),
    ]
    (trouble,) = seen.marks("trouble")
    assert trouble["name"] == "the memory could not be given back in order"
    assert trouble["args"]["producer"] == "let go"


@pytest.mark.parametrize("stream", ["object", -1])
def test_the_end_of_a_copy_is_a_slice_of_its_own(stream, traced, cuda):
    c = cuda.stream("c")
    view = from_cai(cuda.array([1.0], speaks="cai3"))
    taken = capsules.take(view.__dlpack__(stream=c if stream == "object" else -1, copy=True))
    ptr = taken.fields.ptr
    with traced():
        taken.delete()
    (release,) = traced.read().slices("release")
    waited = "done" if stream == "object" else "done, after the host had waited"
    assert release["args"]["what"] == "copy"
    assert (release["args"]["outcome"], release["args"]["ptr"]) == (waited, hex(ptr))


# --- the file -------------------------------------------------------------------------------------


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
    use(cuda)
    with traced():
        pass
    size = traced.path.stat().st_size
    use(cuda)
    assert traced.path.stat().st_size == size
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


def test_the_file_is_empty_until_it_is_whole(traced, cuda):
    traced.path.write_text("from before")
    with traced():
        use(cuda)
        assert traced.path.read_text() == ""
    assert traced.read().timed


@pytest.mark.parametrize("path", ["missing/trace.json", "."])
def test_a_bad_path_fails_at_once_and_leaves_nothing_open(path, tmp_path, traced, cuda):
    with pytest.raises(OSError, match=r"missing|directory"):
        with trace(tmp_path / path):
            pytest.fail("the block is not entered")
    with traced():
        use(cuda)
    assert traced.read().timed


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device")
def test_a_full_disk_is_an_error_and_leaves_nothing_open(traced, cuda):
    with pytest.raises(OSError, match="No space"):
        with trace("/dev/full"):
            use(cuda)
    with traced():
        use(cuda)
    assert traced.read().timed


def test_a_second_trace_is_refused_and_the_first_goes_on(traced, tmp_path, cuda):
    with traced():
        for path in (tmp_path / "other.json", traced.path):
            with pytest.raises(RuntimeError, match=r"trace: got a second one .*; allowed: one at"):
                with trace(path):
                    pytest.fail("the block is not entered")
        use(cuda)
    assert len(traced.read().slices("exchange")) == 3
    assert not (tmp_path / "other.json").exists()


@pytest.mark.parametrize("limit", [1, 3])
def test_what_is_beyond_the_limit_is_left_out_and_counted(limit, traced, cuda):
    with traced(limit=limit):
        for _ in range(5):
            to_cai(cuda.array(shape=4)).release()
    seen = traced.read()
    # Of each round: an order elided, the exchange, the end's order, the release.
    assert seen.about["left_out"] == 20 - limit
    (mark,) = seen.marks("trace")
    assert mark["s"] == "g"
    assert mark["name"] == f"{20 - limit} events are left out: the limit was reached"
    assert len(seen.timed) == limit + 1


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit, traced):
    with pytest.raises(ValueError, match=f"limit: got {limit}; allowed: 1 and above"):
        with traced(limit=limit):
            pass


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
    import cai_bridge

    with traced():
        pass
    about = traced.read().about
    assert about["cai_bridge"] == cai_bridge.__version__
    assert about["left_out"] == 0
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
    from cai_bridge._trace_format import write

    with path.open("w") as file:
        write(file, Recording(*kept), {})
    return Trace(path)


def order(at, name="hand over", thread=7, **streams):
    fields = {"door": "to_cai", "device": 0, "order": "made", "trace.recorded_on": 0, **streams}
    return name, at, thread, fields


def test_orders_at_one_moment_do_not_overlap_on_their_lanes(tmp_path):
    there, back = {"producer": 16, "consumer": 32}, {"producer": 16, "consumer": 32}
    seen = written(
        tmp_path / "trace.json",
        order(2_000, **there),
        order(2_010, "give back", **back),
        order(2_010, thread=9, producer=16, consumer=48),
        order(2_150, producer=48, consumer=16),
        order(2_160, producer=64, consumer=16),
    )
    lanes = [f"cuda:0 streams / stream {handle:#x}" for handle in (16, 32, 48, 64)]
    assert seen.arrows == [
        (lanes[0], lanes[1]),
        (lanes[1], lanes[0]),
        (lanes[0], lanes[2]),
        (lanes[2], lanes[0]),
        (lanes[3], lanes[0]),
    ]
    late = [e["ts"] * 1000 + 1_000 for e in seen.slices("order")[::2]]
    assert all(
        0 <= shown - at <= 400
        for shown, at in zip(late, (2_000, 2_010, 2_010, 2_150, 2_160), strict=True)
    )


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


# --- processes ------------------------------------------------------------------------------------


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
    if is_whole:
        assert Trace(path).exchanges()
    else:
        assert path.read_text() == ""


def test_its_docs_example_holds_and_they_name_every_argument():
    import doctest
    import inspect

    example = doctest.DocTestParser().get_doctest(trace.__doc__, {}, "trace", None, None)
    assert doctest.DocTestRunner().run(example) == (0, len(example.examples))
    assert re.findall(r"^    (\w+) : ", trace.__doc__, re.MULTILINE) == list(
        inspect.signature(trace).parameters
    )


def test_importing_the_package_imports_no_json():
    program = """
        import sys, cai_bridge
        assert not {"json", "cai_bridge._trace_format"} & set(sys.modules)
    """
    command = [sys.executable, "-S", "-c", textwrap.dedent(program)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)


def test_the_checker_sees_what_is_wrong(traced, cuda, tmp_path):
    p, c = cuda.stream("p"), cuda.stream("c")
    with traced():
        to_cai(cuda.array(shape=4, stream=p, speaks="cai3"), stream=c)
    file = json.loads(traced.path.read_text())
    assert traced.read()
    for kind in ("s", "f", "M"):
        broken = [e for e in file["traceEvents"] if e["ph"] != kind]
        bad = tmp_path / "bad.json"
        bad.write_text(json.dumps({**file, "traceEvents": broken}))
        with pytest.raises(AssertionError):
            Trace(bad)
