"""Pass arrays of several libraries from one worker of a Dask cluster to another.

    python examples/distributed/with_dask.py

A task returns a view of an array that is still being written. A task of another worker takes it.
Dask copies the array through the host, and waits only until it is written. With dask-cuda and UCX
the same tasks pass it from GPU to GPU.
"""

from __future__ import annotations

import sys
from typing import Any

import dask
from dask.distributed import Client, LocalCluster, get_worker
from places import of_worker

import cai_bridge.dask  # noqa: F401 - this process passes views on, too
from cai_bridge import convert, to_dlpack


def load(library: str, value: float) -> Any:
    """Make an array, and return a view of it. This thread knows the library's current stream."""
    here = of_worker(get_worker().name)
    with here.working():
        return to_dlpack(here.late(library, value))


def total(library: str, view: Any) -> tuple[str, float]:
    """Convert the view, now in this worker's memory, to an array of the library."""
    here = of_worker(get_worker().name)
    x = here.to(library, view)
    return here.name, float(convert(x, "numpy").mean())


def main() -> int:
    """Pass 1, 2, ... from worker to worker. Return how many results are wrong."""
    wrong = 0
    dask.config.set({"distributed.worker.preload": ["places"]})  # makes a device if there is no GPU
    with LocalCluster(n_workers=2, threads_per_worker=1) as cluster, Client(cluster) as client:
        workers = list(client.scheduler_info()["workers"])
        libraries = client.submit(libraries_here, workers=workers[:1])
        for right, library in enumerate(libraries.result(timeout=60), 1):
            view = client.submit(load, library, right, workers=workers[:1])
            seen = client.submit(total, library, view, workers=workers[1:])
            name, value = seen.result(timeout=60)
            wrong += value != right
            print(f"{name}: {library} by Dask: {value:g}, right: {right}", flush=True)
    return wrong


def libraries_here() -> list[str]:
    """List the libraries of a worker."""
    return list(of_worker(get_worker().name).libraries)


if __name__ == "__main__":
    sys.exit(main())
