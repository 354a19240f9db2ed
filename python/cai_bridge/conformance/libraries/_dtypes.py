"""Element types by name, and host arrays as lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cai_bridge.testing._values import CODES, DTYPES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

STANDARD = tuple(name for name, dtype in DTYPES.items() if dtype.typestr[1] != "V")
FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return a dtype of NumPy or of ``ml_dtypes``."""
    import numpy as np  # noqa: PLC0415

    if name in STANDARD:
        return np.dtype(name)
    import ml_dtypes  # noqa: PLC0415

    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found


def dlpack_dtype(name: str) -> tuple[int, int, int]:
    """Return DLPack's code, bits and lanes of a named type."""
    if name not in CODES:
        raise ValueError(f"dtype: got {name!r}; allowed: the types of DLPack 1.3 of whole bytes")
    return (*CODES[name], 1)


def host_list(array: NDArray[Any]) -> Any:
    """Convert a host array to nested lists; 8-bit floats as their bits."""
    name = array.dtype.name
    if name.startswith("float8"):
        return array.view("uint8").tolist()
    if name == "bfloat16":
        return array.astype("float32").tolist()
    return array.tolist()
