"""Find a race without a GPU: the simulated device names both sides.

The producer hands out a dict without a stream while its work is still queued, as torch and JAX do.
The consumer reads too early. Both its values and the report show it.
"""

from __future__ import annotations

from cai_bridge import from_cai, to_cai
from cai_bridge.testing import simulated_cuda


def the_race() -> None:
    """Pass a dict of version 2, which names no stream, to a consumer that does not wait."""
    with simulated_cuda(check=False) as cuda:
        side, own = cuda.stream("producer's"), cuda.stream("consumer's")
        x = cuda.array([0.0] * 4, dtype="float32", speaks=("exchange", "cai2"), name="x")
        side.fill(x, 7.0, name="the write")
        seen = cuda.consumer("cai-trusting", stream=own).read(x, name="the read")
        own.synchronize()
        print("read too early:", seen.value)
        for report in cuda.reports:
            print(" ", report)
        assert seen.value == [0.0] * 4
        assert len(cuda.reports) == 1


def with_the_bridge() -> None:
    """Give the same consumer a view that is ready on its stream."""
    with simulated_cuda() as cuda:  # raises an error at the end if there is a report
        side, own = cuda.stream("producer's"), cuda.stream("consumer's")
        x = cuda.array([0.0] * 4, dtype="float32", speaks=("exchange", "cai2"), name="x")
        side.fill(x, 7.0, name="the write")
        with cuda.current_stream(side):
            view = to_cai(x, stream=own)
        seen = cuda.consumer("cai-trusting", stream=own).read(view, name="the read")
        own.synchronize()
        print("through the bridge:", seen.value)
        assert seen.value == [7.0] * 4


def each_wait_is_needed() -> None:
    """Leave out one wait, and check that your test notices."""
    with simulated_cuda(check=False) as cuda:
        side, own = cuda.stream("producer's"), cuda.stream("consumer's")
        x = cuda.array([0.0] * 4, dtype="float32", speaks="cai3", name="x")
        side.fill(x, 7.0, name="the write")
        cuda.suppress("cuStreamWaitEvent", nth=1)
        seen = cuda.consumer("dlpack", stream=own).read(from_cai(x), name="the read")
        cuda.synchronize()
        print("with the wait left out:", seen.value, f"and {len(cuda.reports)} report")
        assert cuda.reports


if __name__ == "__main__":
    the_race()
    with_the_bridge()
    each_wait_is_needed()
