"""Zero-copy translation between DLPack and the CUDA Array Interface.

`to_cai` takes an array that speaks DLPack and returns a view that speaks the CUDA Array Interface;
`from_cai` goes the other way. Nothing is copied, the producer is kept alive, and the consumer's
stream waits for the producer's where the two protocols' stream rules ask for it.
"""

from cai_bridge._adapt import adapt
from cai_bridge._convert import convert
from cai_bridge._core import (
    CaiView,
    DLPackView,
    DriverError,
    HostSyncWarning,
    __version__,
    from_cai,
    to_cai,
    to_dlpack,
)
from cai_bridge._libraries import Library, register
from cai_bridge._protocols import (
    SupportsCudaArrayInterface,
    SupportsCudaStream,
    SupportsDLPack,
)
from cai_bridge._trace import trace

from . import _ending as _ending
from . import _events as _events

__all__ = [
    "CaiView",
    "DLPackView",
    "DriverError",
    "HostSyncWarning",
    "Library",
    "SupportsCudaArrayInterface",
    "SupportsCudaStream",
    "SupportsDLPack",
    "__version__",
    "adapt",
    "convert",
    "from_cai",
    "register",
    "to_cai",
    "to_dlpack",
    "trace",
]
