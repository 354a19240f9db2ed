"""Runs a program on the simulated device, and tells what went wrong.

Nothing may be reported, every read must see what the model says, and nothing may be left.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from cai_bridge import DriverError
from cai_bridge.testing import simulated_cuda

from .. import steps as s
from .bridge import Bridge
from .foreign import Registered
from .machine import Failure, Machine, Wrong

__all__ = ["Failure", "reported", "run"]


def run(
    program: s.Steps,
    model: Bridge,
    watch: Callable[[Any, int], None] | None = None,
) -> Failure | None:
    """Run a program; tell what went wrong, if anything. `watch` looks before each step."""
    failure = None
    try:
        with simulated_cuda(devices=2, check=False) as cuda:
            machine = Machine(cuda, model)
            try:
                with Registered(machine):
                    failure = _carried_out(program, machine, watch)
            finally:
                # Before the device goes, with which everything ends that can.
                cuda.clear_faults()
                machine.objects.clear()
                machine.pendings.clear()
    except DriverError:
        # What failed may have left a capture open, and the end of the block waits for the device.
        if failure is None:
            raise
    return failure


def _carried_out(
    program: s.Steps, machine: Machine, watch: Callable[[Any, int], None] | None
) -> Failure | None:
    cuda = machine.cuda
    try:
        for number, step in enumerate(program):
            if watch is not None:
                watch(cuda, number)
            machine.model.take(step)
            machine.run(step)
            if cuda._session.reports():
                break
        else:
            if watch is not None:
                watch(cuda, len(program))
            machine.finish()
        return reported(cuda)
    except Wrong as wrong:
        # A wrong value is the race's; the report says more.
        return reported(cuda) or wrong.failure
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        call = getattr(error, "call", "")
        return Failure(f"exception: {type(error).__name__} {call}".strip(), text)


def reported(cuda: Any) -> Failure | None:
    """Tell the first thing that the simulated device reports."""
    if not cuda._session.reports():
        return None
    report = cuda.reports[0]
    return Failure(f"report: {report.kind}", str(report))
