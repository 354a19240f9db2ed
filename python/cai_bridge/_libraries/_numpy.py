"""NumPy: a copy in an array that owns its memory, made in order; the host waits for it."""

from __future__ import annotations

from cai_bridge._core import _to_numpy

from ._library import Any, DLPackView, Library


class Numpy(Library):
    name = "numpy"
    arrays = ("numpy:ndarray",)
    _from_host = "numpy:asarray"
    _host_alone = True
    _words = "numpy"
    view = DLPackView
    writes = False

    def make(self, view: Any, stream: Any) -> Any:
        return _to_numpy(view)


NUMPY = Numpy()
