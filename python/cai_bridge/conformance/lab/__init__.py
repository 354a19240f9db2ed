"""Where requirements are judged: memory, streams and held-back work of the kit's own.

Two labs say the same in two ways: on a GPU a delay kernel holds a write back and the values tell;
on the simulated device every pair of accesses that nothing orders is reported.
"""

from .array import CaiArray
from .base import Hold, Lab, LabStream, Reading, flat
from .dlpack_array import DLPackArray
from .find import open_lab

__all__ = [
    "CaiArray",
    "DLPackArray",
    "Hold",
    "Lab",
    "LabStream",
    "Reading",
    "flat",
    "open_lab",
]
