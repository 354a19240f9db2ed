"""Numba over a caching allocator, CuPy's pool, with PyTorch reading, in a process of its own.

    python numba_pool_child.py RUNS NATIVE_RUNS

Prints the numbers of wrong runs as JSON in its last line. Numba's own allocator waits for the
device at every free; with a pool, as RAPIDS programs have it, it does not.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

if not hasattr(np, "row_stack"):
    np.row_stack = np.vstack  # type: ignore[attr-defined]

import cupy
from numba import cuda
from tests.gpu import driver as cuda_driver
from tests.gpu.converting import Numba, Place, Torch
from tests.gpu.test_give_back import WORDS, by_capsule, freed_while_read, written_again


def pointer_type() -> Any:
    """What this release of Numba has for a device pointer."""
    try:
        from cuda.bindings.driver import CUdeviceptr
    except ImportError:
        return ctypes.c_uint64
    return CUdeviceptr


class FromCupy(cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
    """Device memory out of CuPy's pool, given back to it when Numba's array goes."""

    kept: dict[int, Any]

    def initialize(self) -> None:
        super().initialize()
        self.kept = {}

    def memalloc(self, size: int) -> Any:
        block = cupy.cuda.alloc(size)
        self.kept[block.ptr] = block
        address, kept = block.ptr, self.kept
        del block
        return cuda.MemoryPointer(
            self.context,
            pointer_type()(address),
            size,
            finalizer=lambda: kept.pop(address, None),
        )

    def get_memory_info(self) -> Any:
        free, total = cupy.cuda.runtime.memGetInfo()
        return cuda.MemoryInfo(free=free, total=total)

    def get_ipc_handle(self, memory: Any) -> Any:
        raise NotImplementedError

    @property
    def interface_version(self) -> int:
        return 1


def native(source: Any, sink: Any, array: Any) -> Any:
    return None, lambda: sink.torch.as_tensor(array, device="cuda")


def main() -> None:
    runs, native_runs = (int(text) for text in sys.argv[1:3])
    cuda.set_memory_manager(FromCupy)
    place = Place(cuda_driver.load(), None, None)
    source, sink = Numba(place, WORDS), Torch(place, WORDS)
    freed_while_read(place, source, sink, by_capsule, 3)
    freed, reused = freed_while_read(place, source, sink, by_capsule, runs)
    said = {
        "freed": freed,
        "reused": reused,
        "written": written_again(place, source, sink, by_capsule, runs),
        "freed without": freed_while_read(place, source, sink, native, native_runs)[0],
        "written without": written_again(place, source, sink, native, native_runs),
    }
    print(json.dumps(said))


main()
