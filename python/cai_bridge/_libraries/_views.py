"""The bridge's own views, for consumers that are none of the known libraries."""

from __future__ import annotations

from ._library import CaiView, DLPackView, Library


class Views(Library):
    """Views that speak one protocol: the arrays themselves, whose consumers mind their stream."""

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
# Of whatever type: for the bridge itself, which asks nothing of it.
ANY = Views("any", CaiView, "any")
