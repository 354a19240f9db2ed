"""Sum arrays of several libraries over all processes with NCCL, through cupyx and nccl4py.

    mpirun -n 2 python -m mpi4py examples/distributed/with_nccl.py

NCCL works on a stream, so the host does not wait. That stream waits for the work queued on the
array. When the view or the CuPy array ends, the array's own stream waits for the sum. The array
then holds the sum, whatever its library.

Start it with mpi4py, which sends NCCL's identifier to all processes.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any

from mpi4py import MPI
from places import Simulated, place

from cai_bridge import convert, to_dlpack

COMM = MPI.COMM_WORLD
AllReduce = Callable[[Any], None]


def by_cupyx() -> AllReduce:
    """Sum with `cupyx.distributed`, which takes CuPy arrays."""
    from cupyx.distributed import NCCLBackend

    backend = NCCLBackend(COMM.size, COMM.rank, use_mpi=True)

    def all_reduce(x: Any) -> None:
        array = convert(x, "cupy")
        backend.all_reduce(array, array)  # on CuPy's current stream, where `array` is ready

    return all_reduce


def by_nccl4py(stream: Any) -> AllReduce:
    """Sum with nccl4py, which takes DLPack views: it asks them for their device."""
    from nccl import core as nccl

    unique = COMM.bcast(nccl.get_unique_id() if COMM.rank == 0 else None)
    communicator = nccl.Communicator.init(COMM.size, COMM.rank, unique)

    def all_reduce(x: Any) -> None:
        with to_dlpack(x, stream=stream) as view:
            communicator.allreduce(view, view, nccl.SUM, stream=stream)

    return all_reduce


def main() -> int:
    """Sum 1, 2, ... of each process in place. Return how many sums are wrong in all processes."""
    wrong, expected = 0, sum(range(1, COMM.size + 1))
    with place(COMM.rank) as here:
        ways: dict[str, AllReduce] = {}
        if isinstance(here, Simulated):
            ways["MPI"] = here.all_reduce
        else:
            ways["cupyx"] = by_cupyx()
            if importlib.util.find_spec("nccl"):
                ways["nccl4py"] = by_nccl4py(here.stream())
        for way, all_reduce in ways.items():
            for library in here.libraries:
                x = here.writable(library, here.late(library, COMM.rank + 1.0))
                all_reduce(x)
                seen = convert(here.to(library, x), "numpy")
                wrong += not (seen == expected).all()
                if COMM.rank == 0:
                    print(f"{here.name}: {library} by {way}: {seen[0]:g}, right: {expected}")
    return int(COMM.allreduce(wrong))


if __name__ == "__main__":
    sys.exit(main())
