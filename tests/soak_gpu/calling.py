"""The step that calls a function of another library's arrays, by `adapt`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .step import Step, inside, late

DOES = ("write", "new", "both")
LIKE = "like"


@dataclass(frozen=True)
class Call(Step):
    """A function of `library`'s arrays is given an array of another one; nobody names a stream.

    It copies what it is given, late, as the read `read`. Then it writes `value` in place ("write"),
    returns a new array of `fresh` values ("new"), or does and returns both. What it returns comes
    back as `returns` says, usable on `back`: the new array as `name`, the given one for the read
    `again`, at once.

    `stream` is what the function's library works on, and `at` is current in the exporter's.
    """

    name: str | None
    source: str
    library: str
    stream: str | None
    read: str
    does: str = "write"
    returns: str = LIKE
    back: str | None = None
    value: int = 0
    fresh: int = 0
    again: str = ""
    at: str | None = None
    readonly: bool | None = None
    spin: float = 0.0
    simplest: ClassVar = {"thread": 0, "spin": 0.0}

    @property
    def writes(self) -> bool:
        return self.does in {"write", "both"}

    def named(self) -> set[str | None]:
        return {self.name, self.read, self.again}

    def __str__(self) -> str:
        work = [f"{late(self.spin, 'its')}{self.read} = copy(a)"]
        work += [f"fill(a, {self.value})"] if self.writes else []
        gives = {"write": "None", "new": "new", "both": "(a, new)"}[self.does]
        work += [] if self.does == "write" else [f"new = full({self.fresh})"]
        options = "" if self.returns == LIKE else f", returns={self.returns!r}"
        options += "" if self.readonly is None else f", readonly={self.readonly}"
        made = {"write": "", "new": f"{self.name} = ", "both": f"same, {self.name} = "}[self.does]
        after = f"; {self.again} = copy(same); del same" if self.does == "both" else ""
        function = f"lambda a: ({'; '.join(work)}; {gives})"
        where = inside(*dict.fromkeys((self.at, self.stream, self.back)))
        return f"{where}{made}adapt({function}, {self.library!r}{options})({self.source}){after}"
