"""The bridge's own views, for consumers that are none of the known libraries."""

from __future__ import annotations

from typing import Any

from cai_bridge._core import _convert

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

    def convert(self, xs: list[Any], stream: Any, readonly: bool | None) -> list[Any]:
        return _convert(xs, self.view, stream, None, readonly, self.writes)

    def make(self, view: CaiView | DLPackView, stream: Any) -> Any:
        return view


CAI = Views("cai", CaiView)
DLPACK = Views("dlpack", DLPackView)
