"""Pass arrays of several libraries around by ucxx.

    mpirun -n 2 python -m mpi4py examples/distributed/with_ucxx.py

ucxx speaks the CUDA Array Interface alone, and waits for no stream, as MPI does: one stream waits
for what is queued on both arrays, and the host waits for that stream before UCX is called.

mpi4py tells the processes each other's address. Without a GPU, MPI is in the place of UCX.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from mpi4py import MPI
from places import Simulated, place

from cai_bridge import convert, to_cai

COMM = MPI.COMM_WORLD
LEFT, RIGHT = (COMM.rank - 1) % COMM.size, (COMM.rank + 1) % COMM.size
TAG = 15
Pass = Callable[[Any, Any], Awaitable[object]]


async def by_ucxx() -> Pass:
    """Connect to the process on the right."""
    import ucxx

    addresses = COMM.allgather(bytes(ucxx.get_worker_address()))
    right = ucxx.get_ucx_address_from_buffer(addresses[RIGHT])
    endpoint = await ucxx.create_endpoint_from_worker_address(right)

    def both(send: Any, receive: Any) -> Awaitable[object]:
        sending = endpoint.send(send, tag=TAG, force_tag=True)
        return asyncio.gather(sending, ucxx.recv(receive, tag=TAG))

    return both


async def by_mpi() -> Pass:
    """Let MPI do it, on the simulated device's memory, which is the host's."""

    async def both(send: Any, receive: Any) -> None:
        COMM.Sendrecv(send, RIGHT, recvbuf=receive, source=LEFT)

    return both


async def main() -> int:
    """Pass 1, 2, ... on to the right; return how many arrays are wrong anywhere."""
    wrong = 0
    with place(COMM.rank) as here:
        both = await (by_mpi() if isinstance(here, Simulated) else by_ucxx())
        for library in here.libraries:
            x = here.late(library, COMM.rank + 1.0)
            # JAX's arrays are never written: UCX writes to one of CuPy's, which JAX takes over.
            y = here.late("cupy" if library == "jax" else library, -1.0)
            ready = here.stream()
            with to_cai(x, stream=ready) as send, to_cai(y, stream=ready) as receive:
                ready.synchronize()
                await both(send, receive)
            seen = convert(here.to(library, y), "numpy")
            wrong += not (seen == LEFT + 1).all()
            if COMM.rank == 0:
                print(f"{here.name}: {library}: {seen[0]:g}, right: {LEFT + 1}", flush=True)
    return int(COMM.allreduce(wrong))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
