"""A consumer that nobody named a stream for: what is waited for on its behalf, at what cost."""

from __future__ import annotations

from typing import Any

import pytest
from scenes import ORDER, Scene, again, done, once_more

from another_thread import in_another_thread
from cai_bridge import from_cai, to_cai
from cai_bridge._core import _settle

KINDS = ("legacy", "per-thread", "blocking", "read on", "ends on")


def begun(cuda: Any, kind: str, speaks: str = "cai3") -> tuple[Scene, Any, Any]:
    """A scene, its view, and a read of the dict as the specification asks: on a stream of a kind,
    or on one where a library works as it reads, or as the view ends.
    """
    scene = Scene(cuda, speaks, "non-blocking", kind)
    with scene.current():
        view = to_cai(scene.array)
    if kind == "read on":
        return scene, view, cuda.consumer("cai-waits", scene.consumer).read(view, name="the read")
    assert view.__cuda_array_interface__["stream"] == scene.producer.handle
    scene.consumer.wait(scene.producer.record())
    return scene, view, scene.consumer.read(view, name="the read")


@pytest.mark.unchecked
@pytest.mark.parametrize("without", [None, *ORDER])
@pytest.mark.parametrize("next_use", [again, once_more])
@pytest.mark.parametrize("speaks", ["cai3", "exchange"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_producers_next_use_comes_after_its_read(kind, speaks, next_use, without, cuda):
    scene, view, seen = begun(cuda, kind, speaks)
    for nth in range(1, 4) if without else ():
        cuda.suppress(without, nth)
    with cuda.current_stream(scene.consumer if kind == "ends on" else scene.producer):
        view.release()
    seen.release()
    cuda.clear_faults()
    next_use(scene)
    assert (done(seen) == [1.0] * 8) is (without is None)
    assert {report.kind for report in cuda.reports} == ({"race"} if without else set())


def test_an_end_that_another_thread_tries_again_waits_for_the_same_streams(cuda):
    scene, view, seen = begun(cuda, "ends on")
    with cuda.current_stream(scene.consumer):
        cuda.fail("cuEventRecord")
        del view
    # Tried again where the reader's stream is no library's. A call of the bridge asks a few of the
    # ends that are not over, and those of other tests may come first; this asks all of them.
    in_another_thread(_settle)
    seen.release()
    again(scene)
    assert done(seen) == [1.0] * 8


def described(view: Any) -> None:
    assert view.shape, view.typestr
    assert view.stream, repr(view)


# What is done with the view, its end, and whether that is one of a consumer.
LOOKS: dict[str, tuple[Any, Any, Any, bool]] = {
    "nothing": (to_cai, described, None, False),
    "nothing, of from_cai": (from_cai, described, None, False),
    "where it is": (to_cai, lambda view: view.ptr, None, True),
    "the dict": (to_cai, lambda view: view.__cuda_array_interface__, None, True),
    "the dict, with stream=-1": (
        lambda x: to_cai(x, stream=-1),
        lambda view: view.__cuda_array_interface__,
        None,
        False,
    ),
    "the dict, and release(-1)": (to_cai, lambda view: view.__cuda_array_interface__, -1, False),
}


@pytest.mark.parametrize("look", LOOKS)
def test_who_asks_where_the_memory_is_is_a_consumer(look, cuda):
    producer, mine = cuda.stream(), cuda.stream()
    x = cuda.array([1.0], speaks="cai3", stream=producer)
    make, asks, end, is_one = LOOKS[look]
    view = make(x)
    with cuda.current_stream(mine):
        asks(view)
        cuda.clear_calls()
        view.release(end)
    recorded = {call.stream for call in cuda.calls if call.call == "cuEventRecord"}
    assert recorded == ({cuda.legacy.handle, mine.handle} if is_one else set())
    cuda.synchronize()


@pytest.mark.parametrize("captured", ["producer", "reader"])
def test_a_dict_that_is_read_during_a_capture_drags_nobody_into_it(captured, cuda):
    producer, mine = cuda.stream(), cuda.stream()
    x = cuda.array([0.0] * 4, speaks="cai3", stream=producer)
    cuda.synchronize()
    view = to_cai(x)
    with cuda.capture(producer if captured == "producer" else mine, "relaxed") as graph:
        consumer = cuda.consumer("cai-trusting", mine)
        if captured == "producer":
            consumer._taken(view)
        else:
            consumer.read(view).release()
    graph.launch(producer)
    cuda.synchronize()
