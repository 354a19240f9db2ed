"""Choose where the programs of this folder run: a GPU per process, else a simulated device.

Both make arrays of several libraries as real programs do: work is queued on a stream of the
library, and has not run yet when the array is handed out.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import late

from cai_bridge import convert, to_cai
from cai_bridge.testing import SimulatedCuda, simulated_cuda

# The protocols of each library's arrays. Simulated arrays stand in for them.
SPEAKS = {"torch": "exchange", "jax": "dlpack-strict", "cupy": "cai3", "numba": "cai3"}


class Gpu:
    """One GPU of this machine, and the installed libraries."""

    count = 1 << 20

    def __init__(self, rank: int, cupy: Any) -> None:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        self.cupy = cupy
        gpus = cupy.cuda.runtime.getDeviceCount()
        self.gpu = cupy.cuda.Device(rank % gpus)
        self.device = self.gpu.id
        name = cupy.cuda.runtime.getDeviceProperties(self.device)["name"].decode()
        self.name = f"{name}, GPU {self.device} of {gpus}"
        self.gpu.use()
        self.streams = [self.stream().use()]
        self.libraries = [library for library in SPEAKS if importlib.util.find_spec(library)]
        if "torch" in self.libraries:
            import torch

            torch.cuda.set_device(self.device)
            torch.cuda.set_stream(torch.cuda.Stream())
        if "jax" in self.libraries:
            import jax

            jax.config.update("jax_default_device", jax.local_devices()[self.device])
        if "numba" in self.libraries:
            from numba import cuda

            cuda.select_device(self.device)

    def stream(self) -> Any:
        """Make a stream that is ordered with no other stream."""
        with self.gpu:
            return self.cupy.cuda.Stream(non_blocking=True)

    def working(self) -> contextlib.AbstractContextManager[object]:
        """Work on the libraries' current streams."""
        return contextlib.nullcontext()

    def late(self, library: str, value: float) -> Any:
        """Make an array of a library that will be full of `value`."""
        self.gpu.use()  # a library may have made another GPU current
        return getattr(late, library)(value, self.count)

    def put(self, array: Any, values: Any) -> None:
        """Queue a write of values from the host to an array of any library."""
        with self.gpu:
            convert(array, "cupy")[...] = self.cupy.asarray(values)

    def writable(self, library: str, array: Any) -> Any:
        """Return the array, or a copy on the GPU if its library forbids writes."""
        return convert(array, "cupy", copy=True) if library == "jax" else array

    def to(self, library: str, array: Any) -> Any:
        """Convert an array to a library, ready on the library's current stream."""
        return convert(array, library)


class Simulated:
    """A simulated device, whose arrays speak the protocols of the libraries."""

    name, count, libraries = "simulated device", 8, list(SPEAKS)

    def __init__(self, cuda: SimulatedCuda) -> None:
        self.cuda = cuda
        self.streams = {library: cuda.stream(f"{library}'s") for library in SPEAKS}

    def stream(self) -> Any:
        """Make a stream that is ordered with no other stream."""
        return self.cuda.stream("ours")

    def working(self) -> contextlib.AbstractContextManager[object]:
        """Make torch's stream this thread's current stream."""
        return self.cuda.current_stream(self.streams["torch"])

    def late(self, library: str, value: float) -> Any:
        """Make an array that will be full of `value`. Queued work runs late."""
        array = self.cuda.array(fill=0.0, shape=self.count, speaks=SPEAKS[library], name=library)
        self.streams[library].fill(array, value)
        return array

    def put(self, array: Any, values: Any) -> None:
        """Queue a write of values from the host to an array."""
        array.stream.fill(array, values.tolist())

    def writable(self, library: str, array: Any) -> Any:
        """Return the array, or a copy on the device if its library forbids writes."""
        return convert(array, "cai", copy=True) if library == "jax" else array

    def to(self, library: str, array: Any) -> Any:
        """Make a view that is ready on the library's stream."""
        return to_cai(array, stream=self.streams[library])

    def all_reduce(self, x: Any) -> None:
        """Queue a sum over all processes on a stream, as NCCL does. MPI stands in for NCCL."""
        from mpi4py import MPI

        stream = self.stream()
        with to_cai(x, stream=stream) as view:
            memory = [MPI.memory.fromaddress(view.ptr, view.nbytes), MPI.FLOAT]
            stream.launch(
                lambda: MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, memory),
                reads=[view],
                writes=[view],
                name="all-reduce",
            )


@contextlib.contextmanager
def place(rank: int) -> Iterator[Gpu | Simulated]:
    """Choose the device of a process: a GPU with CuPy if there is one, else a simulated device."""
    if cupy := cupy_with_gpu():
        yield Gpu(rank, cupy)
        return
    with simulated_cuda() as cuda:  # a race is an error at the end
        simulated = Simulated(cuda)
        with simulated.working():
            yield simulated


def cupy_with_gpu() -> Any:
    """Return CuPy if it is installed and there is a GPU; else None."""
    try:
        import cupy
    except ImportError:
        return None
    return cupy if cupy.cuda.is_available() else None


# --- workers of Dask ------------------------------------------------------------------------------


@functools.cache
def simulated_device() -> SimulatedCuda:
    """Install a simulated device for the life of the process."""
    return simulated_cuda().__enter__()


def dask_setup(_worker: object) -> None:
    """Make a device before a view arrives. Dask calls this in a worker that preloads the module."""
    if cupy_with_gpu() is None:
        simulated_device()


@functools.cache
def of_worker(number: int) -> Gpu | Simulated:
    """Choose the device of a worker, in the thread of its tasks."""
    cupy = cupy_with_gpu()
    return Gpu(number, cupy) if cupy else Simulated(simulated_device())
