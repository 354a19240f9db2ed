"""Where programs run, and what is planted there."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType

# The room that knows each place: how programs are drawn there, judged and run.
ROOMS = {
    "device": f"{__package__}.device.room",
    "gpu": f"{__package__}.libraries.room",
    "dry": f"{__package__}.libraries.room",
    "simulated": f"{__package__}.libraries.room",
}

# Where the libraries get their memory: what each is told, for PyTorch and JAX before its import.
MEMORY: dict[str, dict[str, str]] = {
    "pools": {},
    "async": {
        "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync",
        "XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async",
    },
    "segments": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
}


@dataclass(frozen=True)
class World:
    """A place, and what is between the libraries there.

    Attributes
    ----------
    place : str
        ``"device"``: arrays of the simulated device, with a model of all that it has to do;
        ``"gpu"``: the libraries; ``"dry"``: stand-ins over NumPy work at once, and have a bridge of
        their own; or ``"simulated"``: stand-ins work on the simulated device, with the bridge
        between them.
    control : bool
        Whether arrays are handed over without a bridge; not on the simulated device.
    fault : str
        What is planted, one of the room's faults; empty for nothing.
    memory : str
        Where the libraries get memory from on a GPU: ``"pools"``, their own; ``"async"``, the
        driver's pool (`cuMemAllocAsync`), by PyTorch, CuPy and JAX; or ``"segments"``, PyTorch's
        expandable segments (`cuMemMap`).
    without : str
        The call of the driver of which each program leaves a needed one out; on the device alone.
    strangers : bool
        Whether the bridge knows no library; on the device alone.
    """

    place: str = "gpu"
    control: bool = False
    fault: str = ""
    memory: str = "pools"
    without: str = ""
    strangers: bool = False

    @property
    def room(self) -> ModuleType:
        """What knows the place: a module with the functions that `device` has."""
        return importlib.import_module(ROOMS[self.place])
