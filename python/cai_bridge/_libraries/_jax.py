"""JAX: by DLPack, asking for the stream itself. It never writes to what it is given."""

from __future__ import annotations

from typing import Any

from ._library import DLPackView, Library


class Jax(Library):
    name = "jax"
    arrays = ("jax:Array",)
    view = DLPackView
    writes = False
    # Its capsules cannot say that memory is read-only, and it has no need to be told.
    readonly = False

    def __init__(self) -> None:
        self._from_dlpack: Any = None

    def make(self, view: Any, stream: Any) -> Any:
        if self._from_dlpack is None:
            import jax

            self._from_dlpack = jax.dlpack.from_dlpack
        return self._from_dlpack(view)


JAX = Jax()
