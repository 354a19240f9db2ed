"""The steps that hand over several arrays at once, or for one call: `convert` of trees, `adapt`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .bridging import Consume, ToCai
from .step import Step, arguments, late, written

DOES = ("write", "new", "both")
LIKE = "like"


@dataclass(frozen=True)
class Tree(Step):
    """Several arrays and views go through one `convert`, for one consumer.

    With `host` there is an array of the host's among them, which stays as it is.
    """

    parts: tuple[ToCai, ...]
    host: bool = False
    simplest: ClassVar = {"host": False}

    def names(self) -> set[str]:
        return {part.name for part in self.parts}

    def simpler(self) -> list[Step]:
        return [*self.parts, *(Tree((self.parts[0], other)) for other in self.parts[1:-1])]

    def within(self) -> tuple[str | None, ...]:
        return (self.parts[0].current,)

    def statement(self) -> str:
        first = self.parts[0]
        to, of = (", ".join(getattr(p, n) for p in self.parts) for n in ("name", "source"))
        said = arguments(stream=first.stream, readonly=first.readonly)
        of += ", host" if self.host else ""
        to += ", same" if self.host else ""
        return f"{to} = convert([{of}], 'cai'{said})"


@dataclass(frozen=True)
class Call(Step):
    """A function that takes its array by `adapt` is called; it works once, and may keep its view.

    `how` is what becomes of the view: None, "keeps", "returns", "raises", or "keeps and raises".
    """

    taken: ToCai
    work: Consume
    how: str | None = None
    simplest: ClassVar = {"how": None}

    @property
    def keeps(self) -> bool:
        return self.how not in {None, "raises"}

    def makes(self) -> str | None:
        return self.taken.name if self.keeps else None

    def names(self) -> set[str]:
        return {self.taken.name, self.work.name}

    def needs(self) -> set[str]:
        return super().needs() - self.names()

    def simpler(self) -> list[Step]:
        return [self.taken]

    def within(self) -> tuple[str | None, ...]:
        return (self.taken.current,)

    def statement(self) -> str:
        taken, after = self.taken, f"  # {self.taken.name}: the function {self.how} it"
        stream = written(taken.stream)
        made = f"adapt(lambda {taken.name}: {self.work}, stream={stream})({taken.source})"
        return made + (after if self.how else "")


@dataclass(frozen=True)
class CallLibrary(Step):
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
    simplest: ClassVar = {"spin": 0.0}

    @property
    def writes(self) -> bool:
        return self.does in {"write", "both"}

    def named(self) -> set[str | None]:
        return {self.name, self.read, self.again}

    def within(self) -> tuple[str | None, ...]:
        return self.at, self.stream, self.back

    def statement(self) -> str:
        work = [f"{late(self.spin, 'its')}{self.read} = copy(a)"]
        work += [f"fill(a, {self.value})"] if self.writes else []
        gives = {"write": "None", "new": "new", "both": "(a, new)"}[self.does]
        work += [] if self.does == "write" else [f"new = full({self.fresh})"]
        options = "" if self.returns == LIKE else f", returns={self.returns!r}"
        options += arguments(readonly=self.readonly)
        made = {"write": "", "new": f"{self.name} = ", "both": f"same, {self.name} = "}[self.does]
        after = f"; {self.again} = copy(same); del same" if self.does == "both" else ""
        function = f"lambda a: ({'; '.join(work)}; {gives})"
        return f"{made}adapt({function}, {self.library!r}{options})({self.source}){after}"
