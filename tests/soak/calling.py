"""The steps that hand over several arrays at once, or for one call: `convert` of trees, `adapt`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .bridging import Consume, ToCai
from .step import Step, within


@dataclass(frozen=True)
class Tree(Step):
    """Several arrays and views go through one `convert`, for one consumer."""

    parts: tuple[ToCai, ...]

    def names(self) -> set[str]:
        return {part.name for part in self.parts}

    def needs(self) -> set[str]:
        return set[str]().union(*(part.needs() for part in self.parts))

    def simpler(self) -> list[Step]:
        return [*self.parts, *(Tree((self.parts[0], other)) for other in self.parts[1:-1])]

    def __str__(self) -> str:
        first = self.parts[0]
        to, of = (", ".join(getattr(p, n) for p in self.parts) for n in ("name", "source"))
        readonly = "" if first.readonly is None else f", readonly={first.readonly}"
        made = f"{to} = convert([{of}], 'cai', stream={first.stream}{readonly})"
        return within(first.current, made)


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
        return (self.taken.needs() | self.work.needs()) - self.names()

    def simpler(self) -> list[Step]:
        return [self.taken]

    def __str__(self) -> str:
        taken, after = self.taken, f"  # {self.taken.name}: the function {self.how} it"
        made = f"adapt(lambda {taken.name}: {self.work}, stream={taken.stream})({taken.source})"
        return within(taken.current, made + (after if self.how else ""))
