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
import torch
from numba import cuda
from tests.gpu import driver as cuda_driver
from tests.gpu import streams
from tests.gpu.streams import handle_of

from cai_bridge import from_cai

WORDS = 1 << 18
SPIN_MS = 0.5


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


def main() -> None:
    runs, native_runs = (int(text) for text in sys.argv[1:3])
    cuda.set_memory_manager(FromCupy)
    driver = cuda_driver.load()
    fill, _ = streams.numba_kernels()
    mine, theirs = cuda.stream(), torch.cuda.Stream()
    out = torch.zeros(WORDS, device="cuda")
    values = streams.fresh_values()

    def make(value: float) -> Any:
        array = cuda.device_array(WORDS, dtype=np.float32, stream=mine)
        fill[(*streams.blocks_for(WORDS), mine)](array, value)
        return array

    def run(through: Any, *, freed: bool) -> tuple[bool, bool]:
        value = float(next(values))
        array = make(value)
        driver.synchronize()
        pointer = int(array.device_ctypes_pointer.value)
        view = through(array)
        with torch.cuda.stream(theirs):
            driver.spin(handle_of(theirs), SPIN_MS)
            taken = torch.from_dlpack(view) if through is from_cai else view
            out.copy_(taken)
        del view, taken
        if freed:
            del array
            late = make(-1.0)
            same = int(late.device_ctypes_pointer.value) == pointer
        else:
            fill[(*streams.blocks_for(WORDS), mine)](array, -1.0)
            same = True
        theirs.synchronize()
        right = bool((out == value).all())
        driver.synchronize()
        return not right, same

    def native(array: Any) -> Any:
        return torch.as_tensor(array, device="cuda")

    def count(through: Any, number: int, *, freed: bool) -> tuple[int, int]:
        results = [run(through, freed=freed) for _ in range(number)]
        return sum(wrong for wrong, _ in results), sum(same for _, same in results)

    count(from_cai, 3, freed=True)
    freed, reused = count(from_cai, runs, freed=True)
    written, _ = count(from_cai, runs, freed=False)
    said = {
        "freed": freed,
        "reused": reused,
        "written": written,
        "freed without": count(native, native_runs, freed=True)[0],
        "written without": count(native, native_runs, freed=False)[0],
    }
    print(json.dumps(said))


main()
