"""Foreign text, which must neither end the command nor control the terminal."""

from __future__ import annotations

import io
import os
import sys
import unicodedata
from pathlib import Path

_KEPT = "\n\t"
# Control characters, halves of surrogate pairs, and the two separators that begin a line.
_STEERING = ("Cc", "Cf", "Cs", "Zl", "Zp")


def said(error: BaseException) -> str:
    """Return an exception's type and text; making the text may raise."""
    kind = type(error).__name__
    try:
        return f"{kind}: {error}"
    except Exception as other:
        return f"{kind}: its text raised {type(other).__name__}"


def escaped(text: str, kept: str = _KEPT) -> str:
    """Escape characters that control a terminal or cannot be encoded, in Python's notation."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        repr(one)[1:-1] if one not in kept and unicodedata.category(one) in _STEERING else one
        for one in text
    )


def line(text: str) -> str:
    """Escape a text onto one line."""
    return escaped(text, kept="")


def prepare_streams() -> None:
    """Open closed standard streams, and make all escape characters that they cannot encode."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Otherwise the next opened file gets this number, and output goes into it.
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
