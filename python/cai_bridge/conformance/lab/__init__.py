"""Where requirements are judged: memory, streams and held-back work of the kit's own.

Two labs say the same in two ways: on a GPU a delay kernel holds a write back and the values tell;
on the simulated device every pair of accesses that nothing orders is reported.
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
