"""The steps of a program over libraries."""

from __future__ import annotations

from ..soak.program import Program, listing
from .bridging import Collect, Cycle, Drop, Export, FromCai, Release, Take, ToCai
from .calling import Call
from .step import LIBRARIES, Step
from .work import Enter, Leave, Make, Meet, NewStream, Read, Reuse, Sync, Write

__all__ = [
    "LIBRARIES",
    "MANNERS",
    "Call",
    "Collect",
    "Cycle",
    "Drop",
    "Enter",
    "Export",
    "FromCai",
    "Leave",
    "Make",
    "Meet",
    "NewStream",
    "Program",
    "Read",
    "Release",
    "Reuse",
    "Step",
    "Sync",
    "Take",
    "ToCai",
    "Write",
    "listing",
]

MANNERS = ("told", "handles", "unsaid")
