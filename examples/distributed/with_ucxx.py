"""Pass arrays of several libraries around by ucxx.

    torchrun --nproc-per-node 2 examples/distributed/with_ucxx.py

ucxx speaks the CUDA Array Interface alone, and waits for no stream, as MPI does: the host waits for
what is queued on both arrays before UCX is called.

torch tells the addresses. Without a GPU, start it by `mpirun`: MPI is in the place of UCX.
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
    """Join the processes that torchrun has started: their number, this one's, and how to pass."""
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
    """Join the processes that mpirun has started."""
    from mpi4py.MPI import COMM_WORLD as COMM

    left, right = (COMM.rank - 1) % COMM.size, (COMM.rank + 1) % COMM.size

    async def both(x: Any, y: Any) -> None:
        COMM.Sendrecv(x, right, recvbuf=y, source=left)

    return COMM.size, COMM.rank, both


async def main() -> int:
    """Pass 1, 2, ... on to the right; return how many arrays are wrong here."""
    wrong = 0
    with place(int(os.environ.get("LOCAL_RANK", "0"))) as here:
        join, way = (by_mpi, "MPI") if isinstance(here, Simulated) else (by_ucxx, "ucxx")
        size, rank, both = await join()
        expected = (rank - 1) % size + 1
        for library in here.libraries:
            x = here.late(library, rank + 1.0)
            # JAX's arrays are never written: UCX writes to one of CuPy's, which JAX takes over.
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
