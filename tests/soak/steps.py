"""What a program consists of: small frozen records that print as the Python that they stand for.

Objects are named by a letter and a number: `x` arrays, `y` arrays that a library made of what it
was handed, `v` views, `k` capsules, `p` and `r` reads and writes, `g` graphs; streams as `step`
says. A room draws the steps that it has a method for, and the command says which it has not.
"""

from __future__ import annotations

from typing import Any

from .bridging import (
    Adopt,
    Attempt,
    Collect,
    Consume,
    Copy,
    Cycle,
    Drop,
    Export,
    FromCai,
    Look,
    Refusal,
    Relay,
    Release,
    Take,
    ToCai,
    ToHost,
)
from .calling import Call, CallLibrary, Tree
from .step import ITEMSIZE, LAYOUTS, LIBRARIES, Argument, Step, is_default, method_of, stream_of
from .work import (
    Begin,
    Change,
    Close,
    End,
    Enter,
    Fill,
    Leave,
    Lie,
    Make,
    Meet,
    NewArray,
    NewStream,
    Read,
    Replay,
    Reset,
    Reuse,
    Run,
    SetDevice,
    Sync,
    Wait,
    Works,
)

STEPS = frozenset(
    {
        *(Adopt, Attempt, Begin, Call, CallLibrary, Change, Close, Collect, Consume, Copy, Cycle),
        *(Drop, End, Enter, Export, Fill, FromCai, Leave, Lie, Look, Make, Meet, NewArray),
        *(NewStream, Read, Refusal, Relay, Release, Replay, Reset, Reuse, Run, SetDevice, Sync),
        *(Take, ToCai, ToHost, Tree, Wait, Works),
    }
)
__all__ = [
    "ITEMSIZE",
    "LAYOUTS",
    "LIBRARIES",
    "STEPS",
    "Argument",
    "Step",
    "Steps",
    "expressed",
    "is_default",
    "listing",
    "stream_of",
]
__all__ += [one.__name__ for one in STEPS]

Steps = tuple[Step, ...]


def expressed(*rooms: Any) -> frozenset[type[Step]]:
    """List the steps that all of these have a method for, of the step's name."""
    return frozenset(one for one in STEPS if all(hasattr(room, method_of(one)) for room in rooms))


def listing(program: Steps) -> str:
    """Write a program down, one step a line."""
    lines = []
    depth = 1
    for step in program:
        depth -= isinstance(step, End)
        lines.append("    " * depth + str(step))
        depth += isinstance(step, Begin)
    return "\n".join(["with simulated_cuda(devices=2) as cuda:", *lines])
