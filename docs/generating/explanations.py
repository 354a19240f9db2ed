"""Explanations of the matrix's cells that are not right with the bridge.

The page has each explanation with its pairs. If the run shows no such cell, the page leaves the
explanation out. It lists cells without an explanation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cai_bridge._cli.marks import OUTCOMES


@dataclass(frozen=True)
class Bad:
    """A question with a wrong answer, its pair and its route."""

    producer: str
    consumer: str
    route: str
    aspect: str
    outcome: str

    @property
    def by_convert(self) -> bool:
        """Whether the route is `convert`."""
        return self.route.startswith("convert")


@dataclass(frozen=True)
class Why:
    """An explanation, with the questions, outcomes, producers, consumers and routes it holds for.

    An empty tuple stands for all.
    """

    text: str
    aspects: tuple[str, ...]
    outcomes: tuple[str, ...]
    producers: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()
    by_convert: bool | None = None

    def explains(self, bad: Bad) -> bool:
        """Return whether it explains a cell."""
        return (
            bad.aspect in self.aspects
            and bad.outcome in self.outcomes
            and bad.producer in (self.producers or (bad.producer,))
            and bad.consumer in (self.consumers or (bad.consumer,))
            and self.by_convert in (None, bad.by_convert)
        )


WHYS = (
    Why(
        "The consumer got the flag, by both protocols, and ignores it. torch has no read-only "
        "tensors; `torch.as_tensor(to_cai(x))` refuses them, and is the way to pass it memory that "
        "must not change. CuPy ignores the flag of CAI and of DLPack, Numba that of CAI, and "
        "tvm-ffi has none.",
        ("readonly",),
        ("ignored",),
    ),
    Why(
        "The bridge refuses read-only memory to a library that might write it, so nothing is "
        "written. This is the safe result.",
        ("readonly",),
        ("refused",),
        by_convert=True,
    ),
    Why(
        "torch has recorded the values and not computed them (the conjugate and negative bits). "
        "Neither protocol can express that, and alone they arrive as other numbers. The bridge "
        "refuses; `x.resolve_conj()` and `x.resolve_neg()` compute them.",
        ("lazy",),
        ("refused",),
        producers=("torch",),
    ),
    Why(
        "cuda.core reads CAI there, in which bfloat16 has no name: the bridge refuses to guess.",
        ("dtypes",),
        ("refused",),
        consumers=("cuda.core",),
        by_convert=True,
    ),
    Why(
        'Numba waits on the host for the dict\'s stream. `convert(x, "numba")` does not.',
        ("handover", "host"),
        ("waits",),
        consumers=("numba",),
        by_convert=False,
    ),
    Why(
        "The consumer's host waits before the memory goes back, as DLPack names no stream for the "
        "end.",
        ("release",),
        ("waits",),
    ),
    Why(
        "Its dicts have version 0 and name no stream, so the host waits at import. "
        "`from_cai(x, stream=s)` names the stream and avoids the wait.",
        ("handover", "host"),
        ("waits",),
        producers=("rmm",),
    ),
)


def explained(found: Iterable[Bad]) -> list[str]:
    """Write a line for each explanation that is needed, and one for each cell that has none."""
    every = list(found)
    lines = []
    for why in WHYS:
        about = [bad for bad in every if why.explains(bad)]
        if about:
            letters = dict.fromkeys(OUTCOMES[bad.outcome].letter for bad in about)
            pairs = dict.fromkeys(f"{bad.producer} → {bad.consumer}" for bad in about)
            asked = dict.fromkeys(bad.aspect for bad in about)
            head = f"**{', '.join(letters)}** for {' and '.join(asked)} ({', '.join(pairs)})"
            lines.append(f"- {head}: {why.text}")
    for bad in every:
        if not any(why.explains(bad) for why in WHYS):
            what = f"{bad.producer} → {bad.consumer}, `{bad.route}`, {bad.aspect}"
            lines.append(f"- **{OUTCOMES[bad.outcome].letter}** for {what}: not explained yet.")
    return lines
