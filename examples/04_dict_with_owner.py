"""Make an array of a bare pointer: pass a dict, and the object that keeps its memory alive.

A CUDA Array Interface dict has no entry for an owner, so `from_cai` takes `owner`. The view keeps
`owner` alive, and so does each consumer of the view until it is done.
"""

from __future__ import annotations

import weakref
from typing import Any

from cai_bridge import from_cai
from cai_bridge.testing import simulated_cuda


class Pool:
    """The owner of the memory; here it holds an array of the simulated device."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory


def main() -> None:
    """Describe the second half of a pool's memory as a 2 x 2 array, and drop the pool."""
    with simulated_cuda() as cuda:
        pool = Pool(cuda.array([float(i) for i in range(8)], dtype="float32", name="pool"))
        interface = {
            "shape": (2, 2),
            "typestr": "<f4",
            "data": (pool.memory.ptr + 16, False),
            "version": 3,
            "stream": None,  # nothing is pending
        }
        view = from_cai(interface, owner=pool)
        print(view)
        alive = weakref.ref(pool)
        del pool
        assert alive() is not None, "the view keeps its owner"

        seen = cuda.consumer("dlpack", stream=cuda.stream("consumer")).read(view)
        cuda.synchronize()
        print(seen.value)
        assert seen.value == [[4.0, 5.0], [6.0, 7.0]]
        del seen
        view.release()
        assert alive() is None, "nothing keeps the pool any more"


if __name__ == "__main__":
    main()
