"""The place of the header for extensions in C and C++."""

from __future__ import annotations

from os.path import abspath, dirname, join

__all__ = ["get_include"]


def get_include() -> str:
    """Return the folder of ``cai_bridge.h``, for the include path of an extension in C or C++.

    Returns
    -------
    str
        An absolute path.
    """
    return join(dirname(abspath(__file__)), "include")  # noqa: PTH100, PTH118, PTH120 - no pathlib
