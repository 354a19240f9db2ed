"""The doors by which producers give arrays, and what a check of several doors is called with.

`needs_door` leaves a check without a verdict where an array has no such door, `said` reads what is
said of an array, and `hand_over` takes one in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..requirement import ARRAY_API, CAI, DLPACK, Door
from .arrays import cai_of, speaks_dlpack, table_of
from .pending import by_capsule, by_dict, by_table
from .values import by_cai, by_dlpack, by_exchange

NeedsDoor = Callable[[Any], object]

PYTHON = "Python Interface Specification: "
METHOD = "array.__dlpack__: "
EXPORT = "managed_tensor_from_py_object_no_sync"

_METHOD = {"needs_door": speaks_dlpack, "said": by_dlpack, "hand_over": by_capsule}

cai = Door(
    *("producer", "cai", CAI),
    given={"needs_door": cai_of, "said": by_cai, "hand_over": by_dict},
)
dlpack = Door("producer", "dlpack", DLPACK, given=_METHOD)
array_api = Door("producer", "dlpack", ARRAY_API, given=_METHOD)
exchange = Door(
    *("producer", "exchange", DLPACK, "C API: DLPackExchangeAPI: "),
    given={"needs_door": table_of, "said": by_exchange, "hand_over": by_table},
)

TENSOR = ("dlpack-dtype", "dlpack-shape", "dlpack-strides", "dlpack-values", "dlpack-offset")
"""What is said of tensors by ``__dlpack__``, too; the same code may be behind the exchange API."""
