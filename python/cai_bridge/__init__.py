"""Zero-copy translation between DLPack and the CUDA Array Interface.

`convert` turns an array of any library into one of another library, and `adapt` lets a function for
one library's arrays take any library's. Below these, `to_cai` and `to_dlpack` return views that
each speak one protocol, and `from_cai` takes details that a CUDA Array Interface dict leaves out.

Nothing is copied unless you ask for it, and the producer is kept alive. The consumer's stream waits
for the producer's at hand-over, and the producer's for the consumer's at the end.
"""

import os as _os

from cai_bridge._adapt import adapt
from cai_bridge._core import (
    CaiView,
    DLPackView,
    DriverError,
    HostSyncWarning,
    __version__,
    convert,
    from_cai,
    to_cai,
    to_dlpack,
)
from cai_bridge._include import get_include
from cai_bridge._libraries import Library, register
from cai_bridge._trace import trace

from . import _at_exit as _at_exit
from . import _events as _events
from . import _in_dask as _in_dask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cai_bridge._protocols import (
        SupportsCudaArrayInterface,
        SupportsCudaStream,
        SupportsDLPack,
    )
    from cai_bridge._share import Share, cancel, open_shared, share, shares
del TYPE_CHECKING

__all__ = [
    "CaiView",
    "DLPackView",
    "DriverError",
    "HostSyncWarning",
    "Library",
    "Share",
    "SupportsCudaArrayInterface",
    "SupportsCudaStream",
    "SupportsDLPack",
    "__version__",
    "adapt",
    "cancel",
    "convert",
    "from_cai",
    "get_include",
    "open_shared",
    "register",
    "share",
    "shares",
    "to_cai",
    "to_dlpack",
    "trace",
]


_in_dask.announce()


def __getattr__(name: str) -> object:
    """Import names that take longer to import than the bridge: protocols, and sockets."""
    if name in {"Share", "cancel", "open_shared", "share", "shares"}:
        from cai_bridge import _share  # noqa: PLC0415

        return getattr(_share, name)
    if name.startswith("Supports") and name in __all__:
        from cai_bridge import _protocols  # noqa: PLC0415

        return getattr(_protocols, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if _os.environ.get("CAI_BRIDGE_PERTURB_CHECKPOINTS"):
    # `cai-bridge perturb --compare checkpoints` compares the arrays that are handed over.
    from .testing import _checkpoints

    _functions = (convert, from_cai, to_cai, to_dlpack)
    globals().update({one.__name__: _checkpoints.watched(one) for one in _functions})
    globals()["adapt"] = _checkpoints.watched_adapt(adapt)
