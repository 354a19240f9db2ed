"""Pass arrays of several libraries around with ucxx.

    torchrun --nproc-per-node 2 examples/distributed/with_ucxx.py

ucxx speaks only the CUDA Array Interface. Like MPI it waits for no stream, so the host waits for
the work queued on both arrays before it calls UCX.

torch passes on the addresses. Without a GPU, start it with `mpirun`: MPI stands in for UCX.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from places import Simulated, place

from cai_bridge import convert, to_cai

Pass = Callable[[Any, Any], Awaitable[object]]


async def by_ucxx() -> tuple[int, int, Pass]:
    """Join torchrun's processes. Return their number, this rank, and a function that passes."""
    import ucxx
    from torch import distributed

    distributed.init_process_group("gloo")
    size, rank = distributed.get_world_size(), distributed.get_rank()
    addresses = [b""] * size
    distributed.all_gather_object(addresses, bytes(ucxx.get_worker_address()))
    right = ucxx.get_ucx_address_from_buffer(addresses[(rank + 1) % size])
    endpoint = await ucxx.create_endpoint_from_worker_address(right)

    async def both(x: Any, y: Any) -> None:
        await asyncio.gather(endpoint.send(x, tag=1, force_tag=True), ucxx.recv(y, tag=1))

    return size, rank, both


async def by_mpi() -> tuple[int, int, Pass]:
    """Join mpirun's processes, as `by_ucxx` does."""
    from mpi4py.MPI import COMM_WORLD as COMM

    left, right = (COMM.rank - 1) % COMM.size, (COMM.rank + 1) % COMM.size

    async def both(x: Any, y: Any) -> None:
        COMM.Sendrecv(x, right, recvbuf=y, source=left)

    return COMM.size, COMM.rank, both


async def main() -> int:
    """Pass 1, 2, ... to the right. Return how many arrays are wrong in this process."""
    wrong = 0
    with place(int(os.environ.get("LOCAL_RANK", "0"))) as here:
        join, way = (by_mpi, "MPI") if isinstance(here, Simulated) else (by_ucxx, "ucxx")
        size, rank, both = await join()
        expected = (rank - 1) % size + 1
        for library in here.libraries:
            x = here.late(library, rank + 1.0)
            # JAX's arrays must not be written: UCX writes to a CuPy array that JAX takes.
            y = here.late("cupy" if library == "jax" else library, -1.0)
            with to_cai(x) as send, to_cai(y) as receive:
                send.wait()
                receive.wait()
                await both(send, receive)
            seen = convert(here.to(library, y), "numpy")
            wrong += not (seen == expected).all()
            if rank == 0:
                print(f"{here.name}: {library} by {way}: {seen[0]:g}, right: {expected}")
    return wrong


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
