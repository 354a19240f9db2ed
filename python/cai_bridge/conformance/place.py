"""Chooses the lab for a library: the lab's device, or the CPU if its arrays are there."""

from __future__ import annotations

import contextlib
from typing import Any

from .lab import DLPackArray, HostLab, Lab
from .places import place_of_items
from .producer.arrays import on_cpu
from .requirement import NotApplicableError, Requirement, needs


def judged_on(role: str, adapter: Any, lab: Lab) -> Lab:
    """Return the lab for a library: `lab` itself, or a lab of CPU memory."""
    with contextlib.suppress(Exception, SystemExit):
        if role == "producer":
            x = adapter.make((2,), (*adapter.dtypes, "float32")[0])
            if on_cpu(x) and lab.device_of(place_of_items(x)) is None:
                return HostLab(lab)
        elif "dlpack" in adapter.doors and not _takes(adapter, lab):
            host = HostLab(lab)
            if _takes(adapter, host):
                return host
    return lab


def _takes(adapter: Any, lab: Lab) -> bool:
    try:
        with lab.fresh():
            x = DLPackArray(lab)
            return x.holds(adapter.values(adapter.copy(adapter.take(x))))
    except (Exception, SystemExit):
        return False


def expect_judged(requirement: Requirement, lab: Lab) -> None:
    """Skip a requirement about CUDA on the CPU.

    Raises
    ------
    NotApplicableError
        The requirement is about CUDA, and the lab is the CPU.
    """
    if isinstance(lab, HostLab):
        needs(requirement.door != "cai", "the CUDA Array Interface is of memory that CUDA knows")
        if requirement.of_cuda:
            raise NotApplicableError("arrays in memory of the CPU have no streams")
