"""Finds a lab: an active simulated device, a GPU, or a new simulated device."""

from __future__ import annotations

from typing import Literal

from cai_bridge.testing._cuda import SimulatedCuda, simulated_cuda

from .base import Lab
from .cuda import why_no_gpu
from .gpu import GpuLab
from .simulated import SimulatedLab


def open_lab(where: Literal["simulated", "gpu"] | None = None) -> Lab:
    """Open a lab.

    Parameters
    ----------
    where : str, optional
        ``"simulated"`` or ``"gpu"``; by default an active simulated device, else a GPU, else a new
        simulated device.

    Returns
    -------
    Lab
        A context manager.

    Raises
    ------
    RaceError
        The active simulated device already has reports.
    RuntimeError
        A GPU was requested, and there is none.
    """
    if where not in (None, "simulated", "gpu"):
        raise ValueError(f"where: got {where!r}; allowed: None, 'simulated' or 'gpu'")
    here = SimulatedCuda.current()
    if here is not None and where != "gpu":
        # A lab forgets reports of its own checks, but must not forget earlier ones.
        here.check()
        return SimulatedLab(here, own=False)
    if where != "simulated":
        reason = why_no_gpu()
        if reason is None:
            return GpuLab()
        if where == "gpu":
            raise RuntimeError(f"where: got 'gpu', but there is {reason}; allowed: 'simulated'")
    return SimulatedLab(simulated_cuda(devices=2, check=False).__enter__(), own=True)
