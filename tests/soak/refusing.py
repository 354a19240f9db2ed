"""What models say of steps that are not promised, or that cannot be done."""

from __future__ import annotations


class Refused(Exception):
    """The program does what nobody promises, or what cannot be done."""


class Lacking(Refused):
    """Something has to come first, which the program itself can do."""


def wants(condition: object, why: str = "cannot be done") -> None:
    """Refuse the step unless that is so."""
    if not condition:
        raise Refused(why)
