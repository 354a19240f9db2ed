"""The labs that requirements are judged in: their memory, streams and held-back work.

On a GPU a delay kernel holds a write back, and the values show a missing wait. The simulated device
reports every pair of accesses that nothing orders.
"""

from cai_bridge.testing._values import flat

from .array import CaiArray
from .base import Lab
from .dlpack_array import DLPackArray
from .find import open_lab
from .host import HostLab
from .objects import Hold, LabStream, Late, Reading, handle_of

__all__ = [
    "CaiArray",
    "DLPackArray",
    "Hold",
    "HostLab",
    "Lab",
    "LabStream",
    "Late",
    "Reading",
    "flat",
    "handle_of",
    "open_lab",
]
