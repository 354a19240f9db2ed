"""Make an array of a pointer that you have: a dict, with the object that keeps its memory alive.

The CUDA Array Interface has no slot for an owner, so a plain dict needs one: the view, and every
consumer that it is handed to, keeps `owner` until it is done.
"""

from __future__ import annotations

import weakref
from typing import Any

from cai_bridge import from_cai
from cai_bridge.testing import simulated_cuda


class Pool:
    """Whatever owns the memory: here, an array of the simulated device."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory


def main() -> None:
    """Describe the second half of a pool's memory as a 2 x 2 array, and let the pool go."""
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
        assert alive() is None, "nobody keeps it any longer"


if __name__ == "__main__":
    main()
