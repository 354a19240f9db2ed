"""`trace`: what goes over the bridge, on the lanes where it happens, and each once."""

import ctypes
import gc
import threading

import capsules
import copies
import pytest
import tables
from capsules import HandMade
from fakes import only_cai, without_warning
from scenes import collected, with_block

from cai_bridge import DriverError, convert, from_cai, to_cai

MAIN = "host threads / MainThread"


def on(stream, device=0):
    return f"cuda:{device} streams / {stream.name} {stream.handle:#x}"


LEGACY = "cuda:0 streams / legacy default stream (1)"


def test_an_order_is_one_arrow_from_the_producers_stream_to_the_consumers(traced, cuda):
    p, c = cuda.stream("p"), cuda.stream("c")
    x = cuda.array(shape=4, stream=p, speaks="cai3")
    with traced():
        to_cai(x, stream=c).release()
    seen = traced.read()
    assert seen.arrows == [(on(p), on(c)), (on(c), on(p))]
    assert [(e["name"], e["args"]["way"], e["args"]["door"]) for e in seen.slices("order")] == [
        *(("record", "hand over", "to_cai"), ("wait", "hand over", "to_cai")),
        *(("record", "give back", "release"), ("wait", "give back", "release")),
    ]
    assert seen.marks("order") == []
    first = seen.slices("order")[0]["args"]
    assert first["producer"] == f"{p.name} {p.handle:#x}"
    assert first["consumer"] == f"{c.name} {c.handle:#x}"
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
    assert {seen.lane(e) for e in seen.slices("exchange")} == {f"host threads / {n}" for n in "ab"}


@pytest.mark.parametrize(
    ("theirs", "stream", "lane", "why"),
    [
        ("own", "own", "own", "same stream"),
        ("own", None, "own", "the consumer is told the producer's stream"),
        ("own", -1, "own", "no order asked for"),
        (None, 1, 1, "same stream"),
        (None, None, 1, "the consumer is told the producer's stream"),
        ("trusted", 1, 1, "nothing pending"),
        ("trusted", None, None, "nothing pending"),
    ],
)
def test_an_order_that_is_not_made_is_a_mark_with_the_reason(
    theirs, stream, lane, why, traced, cuda
):
    streams = {"own": cuda.stream(), "blocking": cuda.stream(blocking=True)}
    theirs, stream = (getattr(streams.get(s), "handle", s) for s in (theirs, stream))
    x = cuda.array(shape=4, speaks="cai3")
    x = x if theirs == "trusted" else only_cai(x, stream=theirs)
    with traced():
        view = to_cai(x, stream=stream)
    seen = traced.read()
    (mark,) = seen.marks("order")
    assert (mark["name"], mark["args"]["why"], seen.arrows) == (f"no wait: {why}", why, [])
    assert seen.lane(mark) == {None: MAIN, 1: LEGACY}.get(lane) or on(streams[lane])
    assert view.ptr
    # Before the streams, which nothing else keeps.
    del view


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


@pytest.mark.parametrize(
    ("make", "by"),
    [
        (lambda cuda: cuda.array(shape=4, speaks="exchange"), "exchange API"),
        (lambda cuda: cuda.array(shape=4, speaks="dlpack"), "__dlpack__"),
        (lambda cuda: HandMade((kept := cuda.array(shape=4)).ptr, owner=kept).capsule(), "capsule"),
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
    said = {
        "dtype": "float32",
        "typestr": "<f4",
        "shape": "(4,)",
        "strides": "(4,)",
        "ptr": hex(view.ptr),
        "nbytes": 16,
        "memory": "cuda:0",
        "readonly": False,
        "stream": "legacy default stream (1)",
    }
    assert {name: taken["args"][name] for name in said} == said


def test_every_version_of_the_dict_and_every_door_out_is_a_slice(traced, cuda):
    x = cuda.array(shape=4)
    cai, dlpack = to_cai(x), from_cai(to_cai(x))
    with traced():
        for version in range(4):
            from_cai(only_cai(x, version=version), stream=-1)
        assert cai.__cuda_array_interface__
        dlpack.__dlpack__()
        dlpack.__dlpack__(max_version=(1, 3))
        tables.managed(dlpack).delete()
        tables.borrowed(dlpack)
        tables.to_object(type(dlpack), HandMade(x.ptr))
    assert traced.read().exchanges() == [
        *(("from_cai", f"CAI v{version}") for version in range(4)),
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
    interrupted = Interrupted(cuda.stream("c"), KeyboardInterrupt)
    interrupted.now = True
    with traced():
        for call in (
            lambda: to_cai(cuda.array(shape=4), stream=interrupted),
            lambda: to_cai(3),
            lambda: from_cai(3),
            lambda: convert(3, "cai"),
            lambda: convert(cuda.array(shape=4), "no such library"),
            lambda: convert([cuda.array(shape=4), released[0]], "tvm_ffi"),
            lambda: to_cai(cuda.array(shape=4), stream=0),
            lambda: released[0].__cuda_array_interface__,
            released[1].__dlpack__,
            lambda: tables.managed(released[1]),
            lambda: tables.borrowed(readonly),
            lambda: to_cai(cuda.array(shape=4), readonly="yes"),
            lambda: from_cai(only_cai(cuda.array(shape=4)), readonly="yes"),
            lambda: convert(cuda.array(shape=4), "cai", readonly="yes"),
            lambda: readonly.__dlpack__(copy="yes"),
        ):
            errors = TypeError, ValueError, BufferError, AttributeError, KeyboardInterrupt
            with pytest.raises(errors):
                call()
    seen = [(e["name"], e["args"]["error"]) for e in traced.read().slices("exchange")]
    assert [(name, error.split(":")[0]) for name, error in seen] == [
        *(("to_cai", "KeyboardInterrupt"), ("to_cai", "TypeError"), ("from_cai", "TypeError")),
        *(("convert", error) for error in ("TypeError", "TypeError", "BufferError")),
        *(("to_cai", "ValueError"), ("__cuda_array_interface__", "BufferError")),
        *(("__dlpack__", "BufferError"), *[("exchange API", "BufferError")] * 2),
        *((door, "TypeError") for door in ("to_cai", "from_cai", "convert", "__dlpack__")),
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
    # For the collector the orders are made before it takes anything apart, and again by the end.
    times = 2 if end == "garbage collector" else 1
    assert seen.arrows == ([(on(c), LEGACY)] * times if ordered else [])
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
    said = [(e["name"], e["args"]["outcome"]) for e in ends]
    assert said == [("release()", "put off"), ("release()", "done later")]


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
    dropped = ("last reference", "dropped without an order")
    assert seen.releases() == [("release()", "failed"), dropped]
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
    assert release["args"]["what"] == "copy"
    assert (release["args"]["outcome"], release["args"]["ptr"]) == ("done", hex(ptr))


INTERRUPTS = [KeyboardInterrupt, SystemExit, MemoryError]


class Interrupted:
    """A stream object that is interrupted while it is asked for its stream."""

    def __init__(self, stream, error):
        self.stream, self.error, self.now = stream, error, False

    def __cuda_stream__(self):
        if self.now:
            raise self.error
        return (0, self.stream.handle)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("error", INTERRUPTS)
def test_an_interrupted_end_of_a_copy_is_put_off_and_done_later(error, traced, cuda):
    stream = Interrupted(cuda.stream("c"), error)
    copy = copies.taken(from_cai(cuda.array([1.0], speaks="cai", memory="pool")), stream=stream)
    with traced():
        stream.now = True
        copy.delete()
        stream.now = False
        # A call ends a few of all that is kept, which may be more here: what other tests have left.
        for _ in range(50):
            to_cai(cuda.array([1.0]))
    ends = [e["args"] for e in traced.read().slices("release") if e["args"]["what"] == "copy"]
    assert [end["outcome"] for end in ends] == ["put off", "done later"]


@pytest.mark.parametrize("device", [0, 1])
def test_a_copy_is_an_arrow_to_the_memorys_own_stream_and_one_to_the_declared(device, traced, cuda):
    p, d, c = cuda.stream("p"), cuda.stream("d"), cuda.stream("c", device=device)
    x = cuda.array([1.0], stream=p, speaks="cai3")
    d.wait(p.record())
    view = from_cai(to_cai(x), stream=d)
    with traced():
        copy = view.__dlpack__(stream=c, dl_device=(2, device), copy=True)
    consumer = on(c, device)
    assert traced.read().arrows == [(on(d), consumer), (consumer, on(p)), (consumer, on(d))]
    cuda.synchronize()
    assert copy


def test_an_empty_copy_is_no_copy_and_its_end_waits_for_nothing(traced, cuda):
    view = from_cai(cuda.array(shape=0, speaks="cai3"))
    with traced():
        copies.taken(view, stream=-1).delete()
    seen = traced.read()
    assert seen.slices("copy") == seen.marks("copy") == []
    ends = [e["args"] for e in seen.slices("release") if e["args"]["what"] == "copy"]
    assert [(end["ptr"], end["outcome"]) for end in ends] == [("0x0", "done")]
