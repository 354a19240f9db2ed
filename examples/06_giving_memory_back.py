"""Give memory back while a consumer still reads: what goes wrong, and how the bridge prevents it.

A caching allocator reuses a block as soon as its array is dropped, in the order of its own stream.
It knows nothing of a consumer's work on another stream. The simulated device shows the fault in
each run. On a GPU PyTorch and CuPy behave the same (100 of 100 runs, H200).
"""

from __future__ import annotations

from typing import Any

from cai_bridge import from_cai, to_cai
from cai_bridge.testing import simulated_cuda


def next_tenant(cuda: Any, stream: Any) -> None:
    """Let the producer allocate the same block again, and write to it."""
    tenant = cuda.array(shape=4, memory="pool", stream=stream, speaks=(), name="the next tenant")
    stream.fill(tenant, -1.0, name="the next tenant's write")


def by_themselves() -> None:
    """Work without the bridge: nothing waits for the consumer's read."""
    with simulated_cuda(check=False) as cuda:
        theirs, mine = cuda.stream("producer's"), cuda.stream("consumer's")
        x = cuda.array([7.0] * 4, memory="pool", stream=theirs, speaks="cai3", name="x")
        seen = cuda.consumer("cai-waits", mine).read(x, name="the read")
        seen.release()
        del x
        next_tenant(cuda, theirs)
        cuda.synchronize()
        print("without the bridge:", seen.value)
        print(" ", cuda.reports[0])
        assert seen.value != [7.0] * 4


def with_nothing_said() -> None:
    """Use a view without `stream=`: the producer waits for each stream that read the dict."""
    with simulated_cuda() as cuda:  # raises an error at the end if there is a report
        theirs, mine = cuda.stream("producer's"), cuda.stream("consumer's")
        x = cuda.array([7.0] * 4, memory="pool", stream=theirs, speaks="cai3", name="x")
        seen = cuda.consumer("cai-waits", mine).read(to_cai(x), name="the read")
        seen.release()
        del x
        next_tenant(cuda, theirs)
        cuda.synchronize()
        print("a view, no stream named:", seen.value)
        assert seen.value == [7.0] * 4


def with_the_consumers_stream() -> None:
    """Use a view with `stream=`: the producer waits for this stream only."""
    with simulated_cuda() as cuda:
        theirs, mine = cuda.stream("producer's"), cuda.stream("consumer's")
        x = cuda.array([7.0] * 4, memory="pool", stream=theirs, speaks="cai3", name="x")
        seen = cuda.consumer("cai-waits", mine).read(to_cai(x, stream=mine), name="the read")
        seen.release()
        del x
        next_tenant(cuda, theirs)
        cuda.synchronize()
        print("a view with stream=:", seen.value)
        assert seen.value == [7.0] * 4


def by_dlpack() -> None:
    """Use DLPack: the consumer names its stream, and the capsule's deleter makes the wait."""
    with simulated_cuda() as cuda:
        theirs, mine = cuda.stream("producer's"), cuda.stream("consumer's")
        x = cuda.array([7.0] * 4, memory="pool", stream=theirs, speaks="cai3", name="x")
        seen = cuda.consumer("dlpack", mine).read(from_cai(x), name="the read")
        seen.release()
        del x
        next_tenant(cuda, theirs)
        cuda.synchronize()
        print("a DLPack capsule:", seen.value)
        assert seen.value == [7.0] * 4


def by_hand() -> None:
    """Name the stream in `release`: the array may then be written again at once."""
    with simulated_cuda() as cuda:
        theirs, mine = cuda.stream("producer's"), cuda.stream("consumer's")
        x = cuda.array([7.0] * 4, stream=theirs, speaks="cai3", name="x")
        view = to_cai(x)
        seen = cuda.consumer("cai-waits", mine).read(view, name="the read")
        view.release(mine)
        theirs.fill(x, -1.0, name="the producer's next write")
        cuda.synchronize()
        print("release with a stream:", seen.value)
        assert seen.value == [7.0] * 4


if __name__ == "__main__":
    by_themselves()
    with_nothing_said()
    with_the_consumers_stream()
    by_dlpack()
    by_hand()
