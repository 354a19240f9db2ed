"""For tests of code that hands arrays from one library to another.

`describe` shows what each protocol says about an array, `assert_equivalent` checks that the
protocols agree, and `check_producer` and `check_consumer` judge a library by everything that the
protocols require.

`checkpoint` records an array for ``cai-bridge perturb``, which runs a program with delayed GPU
work to show missing waits.

`simulated_cuda` replaces the driver by a CUDA device that needs no GPU. Queued work runs late, so
that a missing wait shows in the values. Every access that nothing orders is reported, whatever
the timing. An array speaks the protocols that you name, and stand-in consumers import arrays as
the real libraries do.
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

# So that a traceback names them as users import them.
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
    """Import names that need all the others, when they are first used."""
    if name not in {"check_consumer", "check_producer"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cai_bridge.conformance import check  # noqa: PLC0415

    return globals().setdefault(name, getattr(check, name))
