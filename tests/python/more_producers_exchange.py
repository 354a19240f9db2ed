"""Further producers that break a requirement of the exchange API, or of both protocols."""

from __future__ import annotations

from broken_producers import exporting
from more_producers import also

also("exchange-table", "version 2 only", table={"version": (2, 0)})
also("exchange-table", "no stream", table={"stream": 0})
also("exchange-table", "no tensor", table={"from_object": 0})


also(
    "both-agree",
    "the tensor has another shape",
    capsule=exporting(shape=lambda a: a._region.shape[::-1]),
)
