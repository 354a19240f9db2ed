"""NumPy: a copy in memory of the host, made in order; the host waits for it."""

from __future__ import annotations

from typing import Any

from ._library import DLPackView, Library


class Numpy(Library):
    name = "numpy"
    arrays = ("numpy:ndarray",)
    view = DLPackView
    writes = False

    def make(self, view: Any, stream: Any) -> Any:
        import numpy

        return numpy.from_dlpack(view, device="cpu")


NUMPY = Numpy()
