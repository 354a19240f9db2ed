"""Scenes of memory that is given back: a producer with an array of its pool, a consumer's stream.

Memory comes from the pool of the producer's stream, as caching allocators have it, so that it is
handed out again at once when the producer frees it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from cai_bridge import convert, from_cai, to_cai
from cai_bridge.testing import SimulatedCuda

STREAMS = ("legacy", "per-thread", "blocking", "non-blocking")
ORDER = ("cuEventRecord", "cuStreamWaitEvent")


def done(seen: Any) -> Any:
    """What a read saw, once all work is done."""
    SimulatedCuda.current().synchronize()
    return seen.value


def stream_of(cuda: Any, kind: str, name: str = "own") -> Any:
    """A stream of one of the kinds; each that is no default one is new."""
    if kind == "legacy":
        return cuda.legacy
    if kind == "per-thread":
        return cuda.per_thread
    return cuda.stream(name, blocking=kind == "blocking")


class Scene:
    """A producer with an array from its pool, and a consumer's stream."""

    def __init__(self, cuda: Any, speaks: Any, produced_on: str, consumed_on: str) -> None:
        self.cuda = cuda
        self.producer = stream_of(cuda, produced_on, "producer")
        self.consumer = stream_of(cuda, consumed_on, "consumer")
        self.array: Any = cuda.array(
            [1.0] * 8, speaks=speaks, memory="pool", stream=self.producer, name="x"
        )

    @contextmanager
    def current(self) -> Any:
        """The producer's stream is its library's current one, where it has no other way to say."""
        with ExitStack() as stack:
            if self.producer.handle > 2:
                stack.enter_context(self.cuda.current_stream(self.producer))
            elif self.producer.handle == 2:
                stack.enter_context(
                    self.cuda.current_stream(self.cuda.default_stream(0, per_thread=True))
                )
            yield


def by_dict(scene: Scene, take: Callable[..., Any] = to_cai) -> tuple[Any, Any]:
    """DLPack producer, CAI consumer: the view is the consumer's hold on the memory."""
    with scene.current():
        view = take(scene.array, stream=scene.consumer)
    return scene.consumer.read(view), view


def by_capsule(scene: Scene, declared: bool = False) -> tuple[Any, Any]:
    """CAI producer, DLPack consumer: the capsule's managed tensor is."""
    view = from_cai(scene.array, stream=scene.producer if declared else None)
    seen = scene.cuda.consumer("dlpack", scene.consumer).read(view)
    view.release()
    return seen, seen


def converted(x: Any, stream: Any) -> Any:
    return convert([x], "cai", stream=stream)[0]


# What the producer speaks, and how the consumer comes by the array.
DOORS: dict[str, tuple[Any, Callable[[Scene], tuple[Any, Any]]]] = {
    "exchange to dict": ("exchange", by_dict),
    "cai3 to capsule": ("cai3", by_capsule),
    "cai2, declared, to capsule": ("cai2", partial(by_capsule, declared=True)),
    "cai3 to dict": ("cai3", by_dict),
    "both to dict": (("dlpack", "cai3"), by_dict),
    "both in a tree": (("dlpack", "cai3"), partial(by_dict, take=converted)),
}


def next_tenant(producer: Any, block: int, items: int) -> None:
    """Make the producer's next array, of a block that went back, and write to it."""
    new = SimulatedCuda.current().array(
        shape=items, memory="pool", stream=producer, speaks=(), name="the next tenant"
    )
    assert new.ptr == block, "the block was not handed out again: the case shows nothing"
    producer.fill(new, 2.0, name="the next tenant's write")


def again(scene: Scene) -> None:
    """The producer's allocator hands the block out again, and the producer writes to it."""
    old = scene.array.ptr
    scene.array = None
    gc.collect()
    next_tenant(scene.producer, old, 8)


def once_more(scene: Scene) -> None:
    """The producer writes to its own array again."""
    scene.producer.fill(scene.array, 2.0, name="the producer's next write")


def read_before(write: Callable[[Scene], None], scene: Scene, seen: Any) -> Any:
    """What was read before the producer's next write, which comes now."""
    write(scene)
    return done(seen)


def collected(views: list[Any]) -> None:
    """Have the garbage collector end the last view."""

    class Cycle:
        pass

    cycle = Cycle()
    cycle.self, cycle.view = cycle, views.pop()
    del cycle
    gc.collect()


def with_block(views: list[Any]) -> None:
    """End the first view by a `with` block."""
    with views[0]:
        pass
