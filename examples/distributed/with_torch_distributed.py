"""Sum arrays of several libraries over all processes with NCCL, through torch.distributed.

    torchrun --nproc-per-node 2 examples/distributed/with_torch_distributed.py

`convert` makes torch's current stream wait for the work queued on the array. torch makes NCCL's
stream wait for its current stream, and later the reverse. When the tensor ends, the array's own
stream waits for torch's current stream. The array then holds the sum. The host never waits.

Without a GPU, start it with `mpirun -n 2 python -m mpi4py`: MPI stands in for NCCL.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from places import Simulated, place

from cai_bridge import convert


def by_torch(here: Any) -> tuple[int, int, Callable[[Any], None]]:
    """Join torchrun's processes. Return their number, this rank, and a function that sums."""
    import torch
    from torch import distributed

    distributed.init_process_group("nccl", device_id=torch.device("cuda", here.device))
    return distributed.get_world_size(), distributed.get_rank(), distributed.all_reduce


def by_mpi(here: Simulated) -> tuple[int, int, Callable[[Any], None]]:
    """Join mpirun's processes, as `by_torch` does."""
    from mpi4py import MPI

    return MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank, here.all_reduce


def main() -> int:
    """Sum 1, 2, ... of each process in place. Return how many sums are wrong in this process."""
    wrong = 0
    with place(int(os.environ.get("LOCAL_RANK", "0"))) as here:
        simulated = isinstance(here, Simulated)
        join, way = (by_mpi, "MPI") if simulated else (by_torch, "torch.distributed")
        size, rank, all_reduce = join(here)
        expected = sum(range(1, size + 1))
        for library in here.libraries:
            x = here.writable(library, here.late(library, rank + 1.0))
            tensor = here.to("torch", x)
            all_reduce(tensor)
            del tensor  # the end: the array's stream waits for torch's stream
            seen = convert(here.to(library, x), "numpy")
            wrong += not (seen == expected).all()
            if rank == 0:
                print(f"{here.name}: {library} by {way}: {seen[0]:g}, right: {expected}")
        if not simulated:
            from torch import distributed

            distributed.destroy_process_group()
    return wrong


if __name__ == "__main__":
    sys.exit(main())
