"""The requirements that today's libraries are known not to meet, as data with reasons."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Literal


def known(kind: Literal["skips", "xfails", "varies"]) -> dict[str, dict[str, str]]:
    """Read the known failures: for each library, reasons by the requirements' names.

    Parameters
    ----------
    kind : str
        ``"xfails"`` for requirements that fail, ``"skips"`` for requirements that crash the
        process, ``"varies"`` for requirements that sometimes fail.
    """
    return tomllib.loads(files(__name__).joinpath(f"{kind}.toml").read_text(encoding="utf-8"))
