"""Every call of the driver, on every way through the bridge, made to fail once.

Each case first runs whole, to learn the calls that it makes; then once for each of them, with that
very call failing. What comes of it is a `DriverError` that names the call and CUDA's error, or,
where nothing can be raised (the end of a view, of a capsule, of a tensor; what is put off until
later), nothing. Either way nothing is lost: the caller's device is current, nothing is
reported, the same call right after works, and in the end the producer and its exports are gone.
"""

import gc
import re
import threading
from pathlib import Path

import numpy as np
import pytest
from failing import ERROR, HIT, STREAMS, look, prove

from cai_bridge import DriverError, convert, from_cai, to_cai
from cai_bridge.testing import simulated_cuda


def working(scene, act):
    """The act with the producer's stream current, as where an exchange API is asked."""

    def call():
        with scene.cuda.current_stream(scene.producer):
            return act()

    return call


def capsule(scene, **version):
    return scene.array("dlpack").__dlpack__(stream=1, **version)


SPEAKS = ("exchange", "dlpack", "dlpack-legacy", "dlpack-strict", "dlpack-bare")
SOURCES = {
    **{
        speaks: lambda scene, speaks=speaks: scene.array(speaks)
        for speaks in (*SPEAKS, "cai0", "cai1", "cai2", "cai3")
    },
    "pinned": lambda scene: scene.array("exchange", "pinned"),
    "managed": lambda scene: scene.array("dlpack", "managed"),
    "versioned capsule": lambda scene: capsule(scene, max_version=(1, 3)),
    "legacy capsule": capsule,
    "DLPackView": lambda scene: from_cai(scene.array("cai3")),
    "CaiView": lambda scene: to_cai(scene.array("cai3")),
}
# These refuse -1 for whatever reason, and are asked for 1 then.
ASKED_AGAIN = {*SPEAKS[1:], "managed"}


def argument(scene, given):
    return -1 if given == "-1" else given and scene.stream(given)


@pytest.mark.some(3)
@pytest.mark.parametrize("given", [None, "-1", *STREAMS])
@pytest.mark.parametrize("produced_on", STREAMS)
@pytest.mark.parametrize("source", SOURCES)
def test_to_cai(source, produced_on, given):
    def case(scene):
        x, stream = SOURCES[source](scene), argument(scene, given)
        return working(scene, lambda: to_cai(x, stream=stream))

    again = given == "-1" and source in ASKED_AGAIN
    order = frozenset({"cuEventCreate", "cuEventRecord", "cuStreamWaitEvent"})
    prove(produced_on, case, borne=order if again else frozenset())


def of(speaks, memory="device", **arguments):
    def case(scene):
        x = scene.array(speaks, memory)
        return lambda: from_cai(x, **arguments)

    return case


def declared(kind):
    def case(scene):
        x, stream = scene.array("cai3"), scene.stream(kind)
        return lambda: from_cai(x, stream=stream)

    return case


def a_dict(scene):
    x = scene.array("cai3")
    return lambda: from_cai(x.__cuda_array_interface__, owner=x)


def a_view(scene):
    view = to_cai(scene.array("cai3"))
    return lambda: from_cai(view)


NOTHING = {"shape": (0,), "typestr": "|u1", "data": (0, False), "version": 3}
FROM_CAI = {
    **{speaks: of(speaks) for speaks in ("cai0", "cai1", "cai2", "cai3")},
    "exchange and cai2": of(("exchange", "cai2")),
    "a dict": a_dict,
    "pinned": of("cai3", "pinned"),
    "managed": of("cai3", "managed"),
    "managed as plain memory": of("cai3", "managed", device=(2, 1)),
    "nothing pending": of("cai2", stream=-1),
    "a view": a_view,
    **{f"declared {kind}": declared(kind) for kind in STREAMS},
    "no elements": lambda scene: lambda: from_cai(NOTHING, owner=scene),
}


@pytest.mark.parametrize("produced_on", STREAMS)
@pytest.mark.parametrize("door", FROM_CAI)
def test_from_cai(door, produced_on):
    prove(produced_on, lambda scene: working(scene, FROM_CAI[door](scene)))


VIEWS = {
    "of a dict": lambda scene: from_cai(scene.array("cai3")),
    "of pinned memory": lambda scene: from_cai(scene.array("cai3", "pinned")),
    "declared": lambda scene: from_cai(scene.array("cai2"), stream=scene.producer),
    "of a tensor": lambda scene: from_cai(consumed(scene, "exchange", scene.produced_on)),
}


@pytest.mark.some(3)
@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("given", [None, "-1", *STREAMS])
@pytest.mark.parametrize("produced_on", STREAMS)
@pytest.mark.parametrize("view", VIEWS)
def test_a_capsule(view, produced_on, given, versioned):
    def case(scene):
        made, stream = VIEWS[view](scene), argument(scene, given)
        version = {"max_version": (1, 3)} if versioned else {}
        return lambda: made.__dlpack__(stream=stream, **version)

    prove(produced_on, case)


@pytest.mark.parametrize("how", ["dlpack-exchange", "dlpack-borrowed", "wait"])
@pytest.mark.parametrize("produced_on", STREAMS)
@pytest.mark.parametrize("view", VIEWS)
def test_the_exchange_api_and_a_wait_of_the_host(view, produced_on, how):
    def case(scene):
        made = VIEWS[view](scene)
        if how == "wait":
            return made.wait
        consumer = scene.cuda.consumer(how, scene.stream("legacy"))
        return lambda: consumer.read(made)

    prove(produced_on, case)


# Shape and strides in items: one call copies runs, rows with a pitch, or planes of rows.
LAYOUTS = {
    "runs": ((2, 3), (3, 1)),
    "rows": ((2, 3), (4, 1)),
    "planes": ((2, 2, 3), (16, 4, 1)),
    "reversed": ((3,), (-1,)),
}
PLACES = {"its own GPU": None, "another GPU": (2, 0), "the CPU": (1, 0)}


def copied(scene, layout, place):
    """A view, and how a copy of it is asked for."""
    shape, strides = LAYOUTS[layout]
    x = scene.cuda.array(
        fill=1.0,
        shape=shape,
        strides=[4 * stride for stride in strides],
        speaks="cai3",
        stream=scene.producer,
    )
    scene.arrays.append(x)
    return from_cai(x), {"copy": True, "max_version": (1, 3), "dl_device": PLACES[place]}


@pytest.mark.parametrize("given", [None, "-1", "non-blocking"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_copy(layout, place, given):
    def case(scene):
        view, wishes = copied(scene, layout, place)
        stream = argument(scene, given)
        return lambda: view.__dlpack__(stream=stream, **wishes)

    prove("non-blocking", case)


@pytest.mark.parametrize("given", [None, "-1", "non-blocking", "handle"])
@pytest.mark.parametrize("place", PLACES)
def test_the_end_of_a_copy_raises_nothing_and_loses_no_producer(place, given):
    def case(scene):
        view, wishes = copied(scene, "runs", place)
        stream = scene.stream("non-blocking").handle if given == "handle" else None
        stream = stream or argument(scene, given)
        holder = [view.__dlpack__(stream=stream, **wishes)]
        return holder.clear

    prove("non-blocking", case, borne=True)


@pytest.mark.parametrize("what", ["the copy", "its end"])
@pytest.mark.parametrize("place", ["its own GPU", "another GPU"])
def test_a_copy_on_a_device_without_memory_pools(place, what):
    def case(scene):
        view, wishes = copied(scene, "runs", place)
        stream = scene.stream("non-blocking")

        def copy():
            scene.cuda.fail("cuMemAllocAsync", error="CUDA_ERROR_NOT_SUPPORTED")
            try:
                return view.__dlpack__(stream=stream, **wishes)
            finally:
                scene.cuda.clear_faults()

        return copy if what == "the copy" else [copy()].clear

    prove("non-blocking", case, borne=what == "its end" or frozenset({"cuMemAllocAsync"}))


# A home that is known, and one that is not.
HOMES = {"known": "exchange", "unknown": "dlpack"}


def consumed(scene, speaks, given):
    """A view that a consumer reads by, on the stream that it was made for."""
    x = scene.array(speaks)
    stream = None if given is None else scene.stream(given)
    with scene.cuda.current_stream(scene.producer):
        view = to_cai(x, stream=stream)
    scene.cuda.consumer("cai-waits", stream or scene.producer).read(view)
    return view


# Asked when the rest is done, and again later: where the producer's stream is unknown.
PUT_OFF = frozenset(
    {
        *("cuEventRecord", "cuEventCreate", "cuEventQuery", "cuStreamIsCapturing"),
        *("cuCtxGetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent", "cuDevicePrimaryCtxRetain"),
    }
)


@pytest.mark.some(3)
@pytest.mark.parametrize("also", [None, "the end of a block", *STREAMS])
@pytest.mark.parametrize("given", STREAMS)
@pytest.mark.parametrize("produced_on", STREAMS)
@pytest.mark.parametrize("home", HOMES)
def test_a_release(home, produced_on, given, also):
    def case(scene):
        view = consumed(scene, HOMES[home], given)
        if also == "the end of a block":
            return lambda: view.__exit__(None, None, None)
        stream = also and scene.stream(also)
        return lambda: view.release(stream)

    prove(produced_on, case, borne=PUT_OFF if home == "unknown" else frozenset())


def elsewhere(holder):
    thread = threading.Thread(target=holder.clear)
    thread.start()
    thread.join()


def collected(holder):
    box = [holder.pop()]
    box.append(box)
    del box
    gc.collect()


ENDS = {"dropped": list.clear, "in another thread": elsewhere, "collected": collected}


@pytest.mark.some(3)
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("given", STREAMS)
@pytest.mark.parametrize("produced_on", STREAMS)
@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("what", ["view", "capsule", "tensor"])
def test_an_end_raises_nothing_and_loses_nothing(what, home, produced_on, given, how):
    def case(scene):
        holder = [consumed(scene, HOMES[home], given)]
        if what != "view":
            view = from_cai(holder.pop())
            holder.append(view.__dlpack__(stream=scene.stream(given), max_version=(1, 3)))
        if what == "tensor":
            # The consumer's tensor, by a view that speaks the other protocol.
            holder.append(to_cai(holder.pop(), stream=scene.stream(given)))
        return lambda: ENDS[how](holder)

    prove(produced_on, case, borne=True)


class NamesNone:
    """An exporter of a type that nobody knows, whose dict comes to name no stream."""

    def __init__(self, array):
        self.array, self.named = array, {}

    @property
    def __cuda_array_interface__(self):
        return {**self.array.__cuda_array_interface__, **self.named}


@pytest.mark.parametrize("given", STREAMS)
@pytest.mark.parametrize("produced_on", STREAMS)
def test_the_end_of_what_an_exporter_names_no_stream_for_any_more(produced_on, given):
    def case(scene):
        exporter = NamesNone(scene.array("cai3"))
        view = to_cai(exporter, stream=scene.stream(given))
        scene.cuda.consumer("cai-waits", scene.stream(given)).read(view)
        exporter.named["stream"] = None
        return view.release

    prove(produced_on, case)


def test_what_was_put_off_is_done_at_a_later_call_whatever_failed_meanwhile():
    def case(scene):
        consumed(scene, "dlpack", "non-blocking").release()
        return look

    prove("non-blocking", case, borne=True)


@pytest.mark.parametrize("given", STREAMS)
@pytest.mark.parametrize("to", ["cai", "dlpack"])
def test_a_copy_of_an_array_on_the_host(given, to):
    def case(scene):
        stream = scene.stream(given)
        return lambda: convert(np.ones(4), to, copy=True, stream=stream)

    prove(given, case)


def a_cai_view(scene, x, stream):
    return lambda: to_cai(x, stream=stream)


def a_capsule(scene, x, stream):
    view = from_cai(x)
    return lambda: view.__dlpack__(stream=stream)


def a_release(scene, x, stream):
    def call():
        view = to_cai(x, stream=stream)
        try:
            view.release()
        except DriverError:
            view.release()
            raise

    return call


@pytest.mark.parametrize("member", ["producer", "consumer"])
@pytest.mark.parametrize("door", [a_cai_view, a_capsule, a_release])
def test_inside_a_capture(door, member):
    """The capture is of one stream, `member` says whose, and ends after the act."""

    def case(scene):
        consumer = scene.stream("non-blocking")
        captured = scene.producer if member == "producer" else consumer
        inner = door(scene, scene.array("cai3"), consumer)

        def call():
            with scene.cuda.capture(captured, "relaxed"):
                made = inner()
                if member == "producer":
                    captured.wait(consumer.record())
            return made

        return call

    prove("non-blocking", case)


@pytest.mark.parametrize("first", ["cuEventRecord", "cuStreamWaitEvent", "cuStreamIsCapturing"])
def test_a_context_that_cannot_be_popped_after_a_failure_is_popped_at_the_second_try(first):
    with simulated_cuda(devices=2) as cuda:
        producer, consumer = (cuda.stream(device=1) for _ in range(2))
        view = from_cai(cuda.array([1.0], speaks="cai3", stream=producer))
        cuda.fail(first, error=ERROR)
        cuda.fail("cuCtxPopCurrent", error="CUDA_ERROR_UNKNOWN")
        with pytest.raises(DriverError, match=first):
            view.__dlpack__(stream=consumer)
        assert (cuda.current_device, cuda.clear_faults()) == (0, 0)
        cuda.synchronize()


def test_a_context_that_cannot_be_popped_at_all_is_told():
    with simulated_cuda(devices=2) as cuda:
        view = from_cai(cuda.array([1.0], speaks="cai3", stream=cuda.stream(device=1)))
        for nth in (1, 2, 3):
            cuda.fail("cuCtxPopCurrent", nth, error=ERROR)
        with pytest.raises(DriverError, match="cuCtxPopCurrent"):
            view.__dlpack__(stream=cuda.stream(device=1))
        assert cuda.current_device == 1, "nobody can say otherwise"
        cuda.set_device(0)
        cuda.synchronize()


# The simulated device's own, which the bridge never calls: a program's wait on the host.
NOT_THE_BRIDGES = {"cuCtxSynchronize"}
# Those of `share`, over two processes: test_share.py lets each of them fail.
SHARES = {
    *("cuDeviceGetUuid", "cuEventDestroy", "cuStreamCreate", "cuMemAllocFromPoolAsync"),
    *("cuIpcGetMemHandle", "cuIpcOpenMemHandle", "cuIpcCloseMemHandle", "cuIpcGetEventHandle"),
    *("cuIpcOpenEventHandle", "cuMemPoolCreate", "cuMemPoolExportToShareableHandle"),
    *("cuMemPoolImportFromShareableHandle", "cuMemPoolExportPointer", "cuMemPoolImportPointer"),
}
# Always allowed and without effect on a device, so the simulated one does not log it: it only sets
# the thread's mode for the query of an event.
REAL_ONLY = {"cuThreadExchangeStreamCaptureMode"}


def entry_points():
    """The driver's calls that the traits `Driver` and `Copies` name, in their texts."""
    found = set()
    for name in ("mod.rs", "copies.rs"):
        source = (Path(__file__).parents[2] / "src" / "driver" / name).read_text()
        start = source.index("pub trait ")
        found |= set(re.findall(r"`(cu[A-Z]\w+)`", source[start : source.index("\n}\n", start)]))
    return found


@pytest.mark.last
def test_no_entry_point_was_left_out():
    with simulated_cuda() as cuda, pytest.raises(ValueError, match="allowed: ") as raised:
        cuda.fail("none")
    simulated = set(re.findall(r"\bcu[A-Z]\w+", str(raised.value).partition("allowed: ")[2]))
    assert entry_points() - REAL_ONLY - simulated == set()
    assert simulated - NOT_THE_BRIDGES - SHARES - set(HIT) == set()
