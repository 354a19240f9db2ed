"""Element types by name, and host arrays as lists."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from cai_bridge.testing._kit.dtypes import dlpack_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

STANDARD = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Find an element type of NumPy's, or of ``ml_dtypes``."""
    import numpy as np  # noqa: PLC0415

    if name in STANDARD:
        return np.dtype(name)
    import ml_dtypes  # noqa: PLC0415

    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found


def dlpack_dtype(name: str) -> tuple[int, int, int]:
    """Tell DLPack's code, bits and lanes of a named type."""
    for code, bits in itertools.product(range(15), (8, 16, 32, 64, 128)):
        if dlpack_name(code, bits) == name:
            return code, bits, 1
    raise ValueError(f"dtype: got {name!r}; allowed: the types of DLPack 1.3 of whole bytes")


def host_list(array: NDArray[Any]) -> Any:
    """Turn a host array into nested lists; 8-bit floats are their bits."""
    name = array.dtype.name
    if name.startswith("float8"):
        return array.view("uint8").tolist()
    if name == "bfloat16":
        return array.astype("float32").tolist()
    return array.tolist()
