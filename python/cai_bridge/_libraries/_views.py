"""The bridge's own views, for consumers that are none of the known libraries."""

from __future__ import annotations

from typing import Any

from ._library import CaiView, DLPackView, Library


class Views(Library):
    """Views that speak one protocol, whose consumers mind the stream that is said."""

    writes = False

    def __init__(self, name: str, view: type) -> None:
        self.name = name
        self.view = view  # type: ignore[misc]

    @property
    def types(self) -> tuple[type, ...]:
        return (self.view,)

    def make(self, view: CaiView | DLPackView, stream: Any) -> Any:
        return view


CAI = Views("cai", CaiView)
DLPACK = Views("dlpack", DLPackView)
