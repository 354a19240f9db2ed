"""The doors of producers: the functions that a check of several doors is called with.

`needs_door` skips a check if an array lacks the door, `said` reads an array's description,
`export_of` makes an export, and `hand_over` takes an array in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..requirement import Door
from .arrays import cai_of, export, speaks_dlpack, table_of
from .hand_over import by_capsule, by_dict, by_table
from .values import by_cai, by_dlpack, by_exchange

NeedsDoor = Callable[[Any], object]
ExportOf = Callable[[Any], Any]


def by_default(x: Any) -> Any:
    """Ask for a capsule on the default stream."""
    return export(x, stream=1)


def tensor_of(x: Any) -> Any:
    """Take a tensor by the exchange API."""
    return table_of(x).export(x)


cai = Door(
    *("producer", "cai"),
    given={
        "needs_door": cai_of,
        "said": by_cai,
        "hand_over": by_dict,
        "export_of": cai_of,
    },
)
dlpack = Door(
    *("producer", "dlpack"),
    given={
        "needs_door": speaks_dlpack,
        "said": by_dlpack,
        "hand_over": by_capsule,
        "export_of": by_default,
    },
)
exchange = Door(
    *("producer", "exchange"),
    given={
        "needs_door": table_of,
        "said": by_exchange,
        "hand_over": by_table,
        "export_of": tensor_of,
    },
)

TENSOR = ("dlpack-dtype", "dlpack-shape", "dlpack-strides", "dlpack-values", "dlpack-offset")
"""The exchange API's checks rest on those of ``__dlpack__``: the same code may be behind both."""
