"""What the libraries of today are known not to meet, as data with reasons."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Literal


def known(kind: Literal["skips", "xfails", "varies"]) -> dict[str, dict[str, str]]:
    """Read what is known: for each library, reasons by the requirements' names.

    Parameters
    ----------
    kind : str
        ``"xfails"`` for what fails, ``"skips"`` for what ends the process, ``"varies"`` for what
        may fail or not.
    """
    return tomllib.loads(files(__name__).joinpath(f"{kind}.toml").read_text(encoding="utf-8"))
