"""Every call of the driver, on every way through the bridge, made to fail once.

Each case first runs whole, to learn the calls that it makes; then once for each of them, with that
very call failing. What comes of it is a `DriverError` that names the call and CUDA's error, or,
where nothing can be raised (the end of a view, of a capsule, of a tensor; what is put off until
later), nothing. Either way nothing is lost: the caller's device is current, nothing is
reported, the same call right after works, and in the end the producer and its exports are gone.
"""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from failing import ERROR, HIT, STREAMS, Act, Case, Scene, look, prove

from cai_bridge import DriverError, convert, from_cai, to_cai
from cai_bridge.testing import simulated_cuda

# --- to_cai ---------------------------------------------------------------------------------------


def working(scene: Scene, act: Act) -> Act:
    """The act with the producer's stream current, as where an exchange API is asked."""

    def call() -> Any:
        with scene.cuda.current_stream(scene.producer):
            return act()

    return call


def capsule(scene: Scene, **version: Any) -> Any:
    return scene.array("dlpack").__dlpack__(stream=1, **version)


SOURCES: dict[str, Callable[[Scene], Any]] = {
    **{
        speaks: lambda scene, speaks=speaks: scene.array(speaks)
        for speaks in (
            *("exchange", "dlpack", "dlpack-legacy", "dlpack-strict", "dlpack-bare"),
            *("cai0", "cai1", "cai2", "cai3"),
        )
    },
    "pinned": lambda scene: scene.array("exchange", "pinned"),
    "managed": lambda scene: scene.array("dlpack", "managed"),
    "versioned capsule": lambda scene: capsule(scene, max_version=(1, 3)),
    "legacy capsule": capsule,
    "DLPackView": lambda scene: from_cai(scene.array("cai3")),
    "CaiView": lambda scene: to_cai(scene.array("cai3")),
}
ONCE = {"versioned capsule", "legacy capsule"}
# These refuse -1 for whatever reason, and are asked for 1 then.
ASKED_AGAIN = {"dlpack", "dlpack-legacy", "dlpack-strict", "dlpack-bare", "managed"}


def argument(scene: Scene, given: str | None) -> Any:
    return -1 if given == "-1" else given and scene.stream(given)


@pytest.mark.some(3)
@pytest.mark.parametrize("given", [None, "-1", *STREAMS])
@pytest.mark.parametrize("produced_on", STREAMS)
@pytest.mark.parametrize("source", SOURCES)
def test_to_cai(source: str, produced_on: str, given: str | None) -> None:
    def case(scene: Scene) -> Act:
        x, stream = SOURCES[source](scene), argument(scene, given)
        return working(scene, lambda: to_cai(x, stream=stream))

    again = given == "-1" and source in ASKED_AGAIN
    order = frozenset({"cuEventCreate", "cuEventRecord", "cuStreamWaitEvent"})
    prove(produced_on, case, borne=order if again else frozenset())


# --- from_cai -------------------------------------------------------------------------------------


def a_dict(scene: Scene, **arguments: Any) -> Act:
    x = scene.array("cai3")
    return lambda: from_cai(x.__cuda_array_interface__, owner=x, **arguments)


def of(speaks: Any, memory: str = "device", **arguments: Any) -> Case:
    def case(scene: Scene) -> Act:
        x = scene.array(speaks, memory)
        return lambda: from_cai(x, **arguments)

    return case


def declared(kind: str) -> Case:
    def case(scene: Scene) -> Act:
        x, stream = scene.array("cai3"), scene.stream(kind)
        return lambda: from_cai(x, stream=stream)

    return case


def of_a_view(scene: Scene) -> Act:
    view = to_cai(scene.array("cai3"))
    return lambda: from_cai(view)


FROM_CAI: dict[str, Case] = {
    **{speaks: of(speaks) for speaks in ("cai0", "cai1", "cai2", "cai3")},
    "exchange and cai2": of(("exchange", "cai2")),
    "a dict": a_dict,
    "pinned": of("cai3", "pinned"),
    "managed": of("cai3", "managed"),
    "managed as plain memory": of("cai3", "managed", device=(2, 1)),
    "nothing pending": of("cai2", stream=-1),
    "a view": of_a_view,
    **{f"declared {kind}": declared(kind) for kind in STREAMS},
    "no elements": lambda scene: (
        lambda: from_cai(
            {"shape": (0,), "typestr": "|u1", "data": (0, False), "version": 3}, owner=scene
        )
    ),
}


@pytest.mark.parametrize("produced_on", STREAMS)
@pytest.mark.parametrize("door", FROM_CAI)
def test_from_cai(door: str, produced_on: str) -> None:
    prove(produced_on, lambda scene: working(scene, FROM_CAI[door](scene)))


# --- exports --------------------------------------------------------------------------------------

VIEWS: dict[str, Callable[[Scene], Any]] = {
    "of a dict": lambda scene: from_cai(scene.array("cai3")),
    "of pinned memory": lambda scene: from_cai(scene.array("cai3", "pinned")),
    "declared": lambda scene: from_cai(scene.array("cai2"), stream=scene.producer),
    "of a tensor": lambda scene: from_cai(to_cai(scene.array("exchange"), stream=scene.producer)),
}


@pytest.mark.some(3)
@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("given", [None, "-1", *STREAMS])
@pytest.mark.parametrize("produced_on", STREAMS)
@pytest.mark.parametrize("view", VIEWS)
def test_a_capsule(view: str, produced_on: str, given: str | None, versioned: bool) -> None:
    def case(scene: Scene) -> Act:
        made, stream = VIEWS[view](scene), argument(scene, given)
        version = {"max_version": (1, 3)} if versioned else {}
        return lambda: made.__dlpack__(stream=stream, **version)

    prove(produced_on, case)


@pytest.mark.parametrize("kind", ["dlpack-exchange", "dlpack-borrowed"])
@pytest.mark.parametrize("produced_on", STREAMS)
@pytest.mark.parametrize("view", VIEWS)
def test_the_exchange_api(view: str, produced_on: str, kind: str) -> None:
    def case(scene: Scene) -> Act:
        made, consumer = VIEWS[view](scene), scene.cuda.consumer(kind, scene.stream("legacy"))
        return lambda: consumer.read(made)

    prove(produced_on, case)


@pytest.mark.parametrize("produced_on", STREAMS)
@pytest.mark.parametrize("view", VIEWS)
def test_a_wait_of_the_host(view: str, produced_on: str) -> None:
    def case(scene: Scene) -> Act:
        return VIEWS[view](scene).wait

    prove(produced_on, case)


# --- copies ---------------------------------------------------------------------------------------

# Shape and strides in items: one call copies runs, rows with a pitch, or planes of rows.
LAYOUTS = {
    "runs": ((2, 3), (3, 1)),
    "rows": ((2, 3), (4, 1)),
    "planes": ((2, 2, 3), (16, 4, 1)),
    "reversed": ((3,), (-1,)),
}
PLACES = {"its own GPU": None, "another GPU": (2, 0), "the CPU": (1, 0)}


def copied(scene: Scene, layout: str, place: str) -> tuple[Any, dict[str, Any]]:
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
def test_a_copy(layout: str, place: str, given: str | None) -> None:
    def case(scene: Scene) -> Act:
        view, wishes = copied(scene, layout, place)
        stream = argument(scene, given)
        return lambda: view.__dlpack__(stream=stream, **wishes)

    prove("non-blocking", case)


@pytest.mark.parametrize("given", [None, "-1", "non-blocking", "handle"])
@pytest.mark.parametrize("place", PLACES)
def test_the_end_of_a_copy_raises_nothing_and_loses_no_producer(
    place: str, given: str | None
) -> None:
    def case(scene: Scene) -> Act:
        view, wishes = copied(scene, "runs", place)
        stream = scene.stream("non-blocking").handle if given == "handle" else None
        stream = stream or argument(scene, given)
        holder = [view.__dlpack__(stream=stream, **wishes)]
        return holder.clear

    prove("non-blocking", case, borne=True)


def without_pools(scene: Scene, act: Act) -> Act:
    """The act on a device that has no memory pools: it refuses to allocate from one."""

    def call() -> Any:
        scene.cuda.fail("cuMemAllocAsync", error="CUDA_ERROR_NOT_SUPPORTED")
        try:
            return act()
        finally:
            scene.cuda.clear_faults()

    return call


@pytest.mark.parametrize("place", ["its own GPU", "another GPU"])
def test_a_copy_without_memory_pools(place: str) -> None:
    def case(scene: Scene) -> Act:
        view, wishes = copied(scene, "runs", place)
        stream = scene.stream("non-blocking")
        return without_pools(scene, lambda: view.__dlpack__(stream=stream, **wishes))

    prove("non-blocking", case, borne=frozenset({"cuMemAllocAsync"}))


@pytest.mark.parametrize("place", ["its own GPU", "another GPU"])
def test_the_end_of_a_copy_without_memory_pools_raises_nothing(place: str) -> None:
    def case(scene: Scene) -> Act:
        view, wishes = copied(scene, "runs", place)
        stream = scene.stream("non-blocking")
        holder = [without_pools(scene, lambda: view.__dlpack__(stream=stream, **wishes))()]
        return holder.clear

    prove("non-blocking", case, borne=True)


# --- ends -----------------------------------------------------------------------------------------

# A home that is known, and one that is not.
HOMES = {"known": "exchange", "unknown": "dlpack"}


def consumed(scene: Scene, speaks: str, given: str | None) -> Any:
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
@pytest.mark.parametrize("also", [None, *STREAMS])
@pytest.mark.parametrize("given", STREAMS)
@pytest.mark.parametrize("produced_on", STREAMS)
@pytest.mark.parametrize("home", HOMES)
def test_a_release(home: str, produced_on: str, given: str, also: str | None) -> None:
    def case(scene: Scene) -> Act:
        view = consumed(scene, HOMES[home], given)
        stream = also and scene.stream(also)
        return lambda: view.release(stream)

    prove(produced_on, case, borne=PUT_OFF if home == "unknown" else frozenset())


@pytest.mark.parametrize("given", STREAMS)
@pytest.mark.parametrize("produced_on", STREAMS)
@pytest.mark.parametrize("home", HOMES)
def test_the_end_of_a_block(home: str, produced_on: str, given: str) -> None:
    def case(scene: Scene) -> Act:
        view = consumed(scene, HOMES[home], given)
        return lambda: view.__exit__(None, None, None)

    prove(produced_on, case, borne=PUT_OFF if home == "unknown" else frozenset())


def dropped(holder: list[Any]) -> None:
    holder.clear()


def dropped_elsewhere(holder: list[Any]) -> None:
    thread = threading.Thread(target=holder.clear)
    thread.start()
    thread.join()


ENDS = {"dropped": dropped, "in another thread": dropped_elsewhere}


@pytest.mark.some(3)
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("given", STREAMS)
@pytest.mark.parametrize("produced_on", STREAMS)
@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("what", ["view", "capsule", "tensor"])
def test_an_end_raises_nothing_and_loses_nothing(
    what: str, home: str, produced_on: str, given: str, how: str
) -> None:
    def case(scene: Scene) -> Act:
        holder = [consumed(scene, HOMES[home], given)]
        if what != "view":
            view = from_cai(holder.pop())
            holder.append(view.__dlpack__(stream=scene.stream(given), max_version=(1, 3)))
        if what == "tensor":
            # The consumer's tensor, by a view that speaks the other protocol.
            holder.append(to_cai(holder.pop(), stream=scene.stream(given)))
        return lambda: ENDS[how](holder)

    prove(produced_on, case, borne=True)


@pytest.mark.parametrize("given", STREAMS)
@pytest.mark.parametrize("home", HOMES)
def test_a_collected_cycle_raises_nothing_and_loses_nothing(home: str, given: str) -> None:
    def case(scene: Scene) -> Act:
        box = [consumed(scene, HOMES[home], given)]
        box.append(box)
        del box
        return gc.collect

    prove("non-blocking", case, borne=True)


def test_what_was_put_off_is_done_at_a_later_call_whatever_failed_meanwhile() -> None:
    def case(scene: Scene) -> Act:
        consumed(scene, "dlpack", "non-blocking").release()
        return look

    prove("non-blocking", case, borne=True)


# --- arrays on the host ---------------------------------------------------------------------------


@pytest.mark.parametrize("given", STREAMS)
@pytest.mark.parametrize("to", ["cai", "dlpack"])
def test_a_copy_of_an_array_on_the_host(given: str, to: str) -> None:
    def case(scene: Scene) -> Act:
        stream = scene.stream(given)
        return lambda: convert(np.ones(4), to, copy=True, stream=stream)

    prove(given, case)


# --- captures -------------------------------------------------------------------------------------


def in_a_capture(member: str, door: Callable[[Scene, Any, Any], Act]) -> Case:
    """Hand over inside a capture of one stream (`member` says whose), which ends after the act."""

    def case(scene: Scene) -> Act:
        consumer = scene.stream("non-blocking")
        captured = scene.producer if member == "producer" else consumer
        x = scene.array("cai3")
        inner = door(scene, x, consumer)

        def call() -> Any:
            graph = scene.cuda.capture(captured, "relaxed")
            with graph:
                made = inner()
                if member == "producer":
                    captured.wait(consumer.record())
            return made

        return call

    return case


def a_capsule(scene: Scene, x: Any, stream: Any) -> Act:
    view = from_cai(x)
    return lambda: view.__dlpack__(stream=stream)


CAPTURED: dict[str, Callable[[Scene, Any, Any], Act]] = {
    "to_cai": lambda scene, x, stream: lambda: to_cai(x, stream=stream),
    "__dlpack__": a_capsule,
}


@pytest.mark.parametrize("member", ["producer", "consumer"])
@pytest.mark.parametrize("door", CAPTURED)
def test_a_hand_over_inside_a_capture(door: str, member: str) -> None:
    def case(scene: Scene) -> Act:
        return in_a_capture(member, CAPTURED[door])(scene)

    prove("non-blocking", case)


def test_a_release_inside_a_capture() -> None:
    def case(scene: Scene) -> Act:
        consumer, x = scene.stream("non-blocking"), scene.array("cai3")

        def call() -> None:
            with scene.cuda.capture(scene.producer, "relaxed"):
                view = to_cai(x, stream=consumer)
                try:
                    view.release()
                except DriverError:
                    view.release()
                    raise

        return call

    prove("non-blocking", case)


# --- contexts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["cuEventRecord", "cuStreamWaitEvent", "cuStreamIsCapturing"])
def test_a_context_that_cannot_be_popped_after_a_failure_is_popped_at_the_second_try(
    first: str,
) -> None:
    with simulated_cuda(devices=2) as cuda:
        producer, consumer = (cuda.stream(device=1) for _ in range(2))
        view = from_cai(cuda.array([1.0], speaks="cai3", stream=producer))
        cuda.fail(first, error=ERROR)
        cuda.fail("cuCtxPopCurrent", error="CUDA_ERROR_UNKNOWN")
        with pytest.raises(DriverError, match=first):
            view.__dlpack__(stream=consumer)
        assert (cuda.current_device, cuda.clear_faults()) == (0, 0)
        cuda.synchronize()


def test_a_context_that_cannot_be_popped_at_all_is_told() -> None:
    with simulated_cuda(devices=2) as cuda:
        view = from_cai(cuda.array([1.0], speaks="cai3", stream=cuda.stream(device=1)))
        for nth in (1, 2, 3):
            cuda.fail("cuCtxPopCurrent", nth, error=ERROR)
        with pytest.raises(DriverError, match="cuCtxPopCurrent"):
            view.__dlpack__(stream=cuda.stream(device=1))
        assert cuda.current_device == 1, "nobody can say otherwise"
        cuda.set_device(0)
        cuda.synchronize()


# --- all of them ----------------------------------------------------------------------------------

# The simulated device's own, which the bridge never calls: a program's wait on the host.
NOT_THE_BRIDGES = {"cuCtxSynchronize"}
# Those of `share`, over two processes: test_share.py lets each of them fail.
SHARES = {"cuDeviceGetUuid", "cuEventDestroy", "cuStreamCreate", "cuMemAllocFromPoolAsync"}
SHARES |= {"cuIpcGetMemHandle", "cuIpcOpenMemHandle", "cuIpcCloseMemHandle"}
SHARES |= {"cuIpcGetEventHandle", "cuIpcOpenEventHandle", "cuMemPoolCreate"}
SHARES |= {"cuMemPoolExportToShareableHandle", "cuMemPoolImportFromShareableHandle"}
SHARES |= {"cuMemPoolExportPointer", "cuMemPoolImportPointer"}
# Always allowed and without effect on a device, so the simulated one does not log it: it only sets
# the thread's mode for the query of an event.
REAL_ONLY = {"cuThreadExchangeStreamCaptureMode"}


def entry_points() -> set[str]:
    """The driver's calls that the traits `Driver` and `Copies` name, in their texts."""
    found: set[str] = set()
    for name in ("mod.rs", "copies.rs"):
        source = (Path(__file__).parents[2] / "src" / "driver" / name).read_text()
        start = source.index("pub trait ")
        found |= set(re.findall(r"`(cu[A-Z]\w+)`", source[start : source.index("\n}\n", start)]))
    return found


@pytest.mark.last
def test_no_entry_point_was_left_out() -> None:
    with simulated_cuda() as cuda, pytest.raises(ValueError, match="allowed: ") as raised:
        cuda.fail("none")
    simulated = set(re.findall(r"\bcu[A-Z]\w+", str(raised.value).partition("allowed: ")[2]))
    assert entry_points() - REAL_ONLY - simulated == set()
    assert simulated - NOT_THE_BRIDGES - SHARES - set(HIT) == set()
