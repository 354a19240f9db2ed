"""For tests of code that hands arrays from one library to another.

`describe` tells what each protocol says of an array, `assert_equivalent` that it is the same, and
`check_producer` and `check_consumer` judge a library by all that the protocols require.

`checkpoint` writes an array down for ``cai-bridge perturb``, which runs a program with GPU work
delayed to show missing waits.

`simulated_cuda` puts a CUDA device that needs no GPU in place of the driver. Queued work runs late,
so that a missing wait shows in the values, and every access that nothing orders is reported,
whatever the timing. Arrays speak the protocols that they are told to, and stand-in consumers take
arrays in as the real libraries do.
"""

from typing import TYPE_CHECKING, Any

from ._array import SimulatedArray
from ._checkpoints import checkpoint
from ._consumer import Consumer
from ._cuda import SimulatedCuda, simulated_cuda
from ._errors import CallRecord, RaceError, Report, Side, SimulatedError
from ._graph import SimulatedGraph
from ._kit.description import Description, describe
from ._kit.equivalence import Difference, NotEquivalentError, assert_equivalent
from ._kit.said import Said
from ._pending import Pending
from ._stream import SimulatedEvent, SimulatedStream
from ._stream import _current_streams as _current_streams
from ._values import SimulatedDtype

# A traceback names them as they are imported.
for _kind in (RaceError, SimulatedError, NotEquivalentError):
    _kind.__module__ = __name__
del _kind

if TYPE_CHECKING:
    from cai_bridge.conformance.check import check_consumer, check_producer

__all__ = [
    "CallRecord",
    "Consumer",
    "Description",
    "Difference",
    "NotEquivalentError",
    "Pending",
    "RaceError",
    "Report",
    "Said",
    "Side",
    "SimulatedArray",
    "SimulatedCuda",
    "SimulatedDtype",
    "SimulatedError",
    "SimulatedEvent",
    "SimulatedGraph",
    "SimulatedStream",
    "assert_equivalent",
    "check_consumer",
    "check_producer",
    "checkpoint",
    "describe",
    "simulated_cuda",
]


def __getattr__(name: str) -> Any:
    """Import what is made of all the others when it is first asked for."""
    if name not in {"check_consumer", "check_producer"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cai_bridge.conformance import check  # noqa: PLC0415

    return globals().setdefault(name, getattr(check, name))
