"""The bridge's own views, for consumers other than the known libraries."""

from __future__ import annotations

from ._library import CaiView, DLPackView, Library


class Views(Library):
    """Views that speak one protocol. They are the arrays; consumers wait for their stream."""

    writes = False

    def __init__(self, name: str, view: type, words: str | None = None) -> None:
        self.name = name
        self.view = view  # type: ignore[misc]
        self._words = words  # type: ignore[misc]

    @property
    def types(self) -> tuple[type, ...]:
        return () if self.view is None else (self.view,)


CAI = Views("cai", CaiView)
DLPACK = Views("dlpack", DLPackView)
# For the bridge itself: views of any element type.
ANY = Views("any", CaiView, "any")
