"""Sum arrays over all processes, and pass arrays around, with mpi4py.

    mpirun -n 2 python -m mpi4py examples/distributed/with_mpi4py.py

Add `device` to pass GPU memory to MPI, which takes a CUDA-aware MPI, or `host` to copy to the host
and back. With neither, the program asks MPI. Add `Allreduce` or `Sendrecv` to run only that call.

mpi4py waits for no stream. MPI reads and writes when it is called, and is done when the call
returns. So the host waits before the call: for the work queued on the memory that MPI reads or
writes, and for nothing else.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from places import Simulated, place

from cai_bridge import convert, to_cai

COMM = MPI.COMM_WORLD
LEFT, RIGHT = (COMM.rank - 1) % COMM.size, (COMM.rank + 1) % COMM.size
CALLS: dict[str, tuple[Callable[[Any, Any], None], float]] = {
    # The call, and its result if process 0 has ones, process 1 twos, ...
    "Allreduce": (COMM.Allreduce, sum(range(1, COMM.size + 1))),
    "Sendrecv": (lambda x, y: COMM.Sendrecv(x, RIGHT, recvbuf=y, source=LEFT), LEFT + 1),
}


def by_device(_here: Any, call: Callable[[Any, Any], None], x: Any, y: Any) -> None:
    """Let MPI read `x` and write `y` in GPU memory."""
    with to_cai(x) as send, to_cai(y) as receive:
        send.wait()
        receive.wait()
        call(send, receive)


def by_host(here: Any, call: Callable[[Any, Any], None], x: Any, y: Any) -> None:
    """Copy `x` to the host, which waits for it. Queue a copy of the result to `y`."""
    send = convert(x, "numpy")
    receive = np.empty_like(send)
    call(send, receive)
    here.put(y, receive)


def reaches_gpus(here: Any) -> bool:
    """Ask MPI whether it takes GPU memory. A simulated device's memory is on the host."""
    return isinstance(here, Simulated) or bool(ctypes.CDLL(MPI.__file__).MPIX_Query_cuda_support())


def main() -> int:
    """Run on arrays of all libraries. Return how many results are wrong in all processes."""
    wrong, told = 0, set(sys.argv[1:])
    with place(COMM.rank) as here:
        device = "device" in told or ("host" not in told and reaches_gpus(here))
        move = by_device if device else by_host
        for name in [name for name in CALLS if name in told] or CALLS:
            call, expected = CALLS[name]
            for library in here.libraries:
                x = here.late(library, COMM.rank + 1.0)
                # JAX's arrays must not be written: MPI writes to a CuPy array that JAX takes.
                y = here.late("cupy" if library == "jax" else library, -1.0)
                move(here, call, x, y)
                seen = convert(here.to(library, y), "numpy")
                wrong += not (seen == expected).all()
                if COMM.rank == 0:
                    line = f"{name} of {library}, {move.__name__}: {seen[0]:g}, right: {expected}"
                    print(f"{here.name}: {line}", flush=True)
    return int(COMM.allreduce(wrong))


if __name__ == "__main__":
    sys.exit(main())
