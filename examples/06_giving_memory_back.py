"""Give memory back while a consumer still reads: what goes wrong, and what the bridge does then.

Caching allocators hand a block out again as soon as its array is dropped, in the order of their
own stream. A consumer's queued work on another stream is none of that. On the simulated device, so
that each run shows it; on a GPU PyTorch and CuPy do the same (100 of 100 runs, H200).
"""

from __future__ import annotations

from typing import Any

from cai_bridge import from_cai, to_cai
from cai_bridge.testing import simulated_cuda


def next_tenant(cuda: Any, stream: Any) -> None:
    """The producer allocates as much again, which is the same block, and writes to it."""
    tenant = cuda.array(shape=4, memory="pool", stream=stream, speaks=(), name="the next tenant")
    stream.fill(tenant, -1.0, name="the next tenant's write")


def by_themselves() -> None:
    """Producer and consumer without the bridge: nobody waits for the consumer's read."""
    with simulated_cuda(check=False) as cuda:
        theirs, mine = cuda.stream("producer's"), cuda.stream("consumer's")
        x = cuda.array([7.0] * 4, memory="pool", stream=theirs, speaks="cai3", name="x")
        seen = cuda.consumer("cai-waits", mine).read(x, name="the read")
        seen.release()
        del x
        next_tenant(cuda, theirs)
        cuda.synchronize()
        print("by themselves:", seen.value)
        print(" ", cuda.reports[0])
        assert seen.value != [7.0] * 4


def with_nothing_said() -> None:
    """The same by a view: the streams that libraries read its dict on are waited for."""
    with simulated_cuda() as cuda:  # a report would be raised at the end
        theirs, mine = cuda.stream("producer's"), cuda.stream("consumer's")
        x = cuda.array([7.0] * 4, memory="pool", stream=theirs, speaks="cai3", name="x")
        seen = cuda.consumer("cai-waits", mine).read(to_cai(x), name="the read")
        seen.release()
        del x
        next_tenant(cuda, theirs)
        cuda.synchronize()
        print("nothing was said:", seen.value)
        assert seen.value == [7.0] * 4


def with_the_consumers_stream() -> None:
    """The same with `stream=`: no other stream is waited for."""
    with simulated_cuda() as cuda:
        theirs, mine = cuda.stream("producer's"), cuda.stream("consumer's")
        x = cuda.array([7.0] * 4, memory="pool", stream=theirs, speaks="cai3", name="x")
        seen = cuda.consumer("cai-waits", mine).read(to_cai(x, stream=mine), name="the read")
        seen.release()
        del x
        next_tenant(cuda, theirs)
        cuda.synchronize()
        print("the consumer's stream was named:", seen.value)
        assert seen.value == [7.0] * 4


def by_dlpack() -> None:
    """DLPack consumers name their stream when they ask for a capsule; its deleter does the rest."""
    with simulated_cuda() as cuda:
        theirs, mine = cuda.stream("producer's"), cuda.stream("consumer's")
        x = cuda.array([7.0] * 4, memory="pool", stream=theirs, speaks="cai3", name="x")
        seen = cuda.consumer("dlpack", mine).read(from_cai(x), name="the read")
        seen.release()
        del x
        next_tenant(cuda, theirs)
        cuda.synchronize()
        print("the capsule was asked for with it:", seen.value)
        assert seen.value == [7.0] * 4


def by_hand() -> None:
    """`release` says it where nothing else did, and the array may be written again at once."""
    with simulated_cuda() as cuda:
        theirs, mine = cuda.stream("producer's"), cuda.stream("consumer's")
        x = cuda.array([7.0] * 4, stream=theirs, speaks="cai3", name="x")
        view = to_cai(x)
        seen = cuda.consumer("cai-waits", mine).read(view, name="the read")
        view.release(mine)
        theirs.fill(x, -1.0, name="the producer's next write")
        cuda.synchronize()
        print("release was told:", seen.value)
        assert seen.value == [7.0] * 4


if __name__ == "__main__":
    by_themselves()
    with_nothing_said()
    with_the_consumers_stream()
    by_dlpack()
    by_hand()
