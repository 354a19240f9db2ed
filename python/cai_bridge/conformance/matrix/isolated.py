"""A matrix whose rows run in processes of their own, so that a crash costs a cell."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ..children import ended_by, environment
from .result import ASPECTS, Aspect, Cell, Matrix
from .routes import ROUTES
from .run import Progress

LIMIT_S = 300.0


def run_isolated(
    producers: Sequence[str],
    consumers: Sequence[str],
    *,
    rounds: int | None = None,
    aspects: Iterable[str] | None = None,
    progress: Progress | None = None,
    limit_s: float = LIMIT_S,
) -> Matrix:
    """Run a matrix with a process for each producer; see `run_matrix`.

    Where one crashes, or takes longer than `limit_s`, the route that it was at and those of the
    same pair behind it are ``"crashed"``, and another process goes on with the next consumer.

    Raises
    ------
    ValueError
        A library that is not known or not installed, or an aspect that there is not.
    """
    wanted = ASPECTS if aspects is None else tuple(aspects)
    cells: list[Cell] = []
    first: Matrix | None = None
    versions: dict[str, str] = {}
    count = len(producers) * len(consumers) * len(ROUTES)
    for producer in producers:
        left = list(consumers)
        while left:
            part, ended = _run_child(producer, left, rounds, wanted, limit_s)
            found = list(part.cells)
            if len(found) < len(left) * len(ROUTES):
                found += _crashed(producer, left[len(found) // len(ROUTES)], found, wanted, ended)
            left = left[len(found) // len(ROUTES) :]
            versions |= part.versions
            first = first or part
            for cell in found:
                cells.append(cell)
                if progress is not None:
                    progress(len(cells), count, cell)
    if first is None:
        raise ValueError("producers: got none; allowed: one or more, and as many consumers")
    return replace(
        first,
        versions=versions,
        producers=tuple(producers),
        consumers=tuple(consumers),
        cells=tuple(cells),
    )


def _crashed(
    producer: str, consumer: str, found: list[Cell], aspects: Sequence[str], ended: str
) -> list[Cell]:
    """Fill the rest of a pair up."""
    crash, after = Aspect("crashed", ended), Aspect("crashed", "an earlier route ended the process")
    made: list[Cell] = []
    for route in ROUTES[len(found) % len(ROUTES) :]:
        said = after if made else crash
        every = dict.fromkeys(aspects, said)
        made.append(Cell(producer, consumer, route.name, route.door, route.bridged, every))
    return made


def _run_child(
    producer: str,
    consumers: Sequence[str],
    rounds: int | None,
    aspects: Sequence[str],
    limit_s: float,
) -> tuple[Matrix, str]:
    """Run one row, and tell how the process ended."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "row.json")
        command = [sys.executable, "-m", "cai_bridge.conformance.matrix", "--json", str(path)]
        command += ["--producer", producer]
        command += [text for one in consumers for text in ("--consumer", one)]
        command += [text for one in aspects for text in ("--aspect", one)]
        command += [] if rounds is None else ["--rounds", str(rounds)]
        try:
            done = subprocess.run(  # noqa: S603
                command,
                capture_output=True,
                text=True,
                check=False,
                timeout=limit_s,
                env=environment(),
            )
            code, said = done.returncode, done.stderr
        except subprocess.TimeoutExpired as late:
            code, said = None, str(late.stderr or "")
        if not path.exists():
            raise ValueError(f"producers: got {producer!r}, but: {said[-2000:]}")
        return Matrix.from_dict(json.loads(path.read_text())), _ending(code, said, limit_s)


def _ending(code: int | None, said: str, limit_s: float) -> str:
    if code is None:
        return f"the process was ended after {limit_s:.0f} s"
    ended = ended_by(code) or f"code {code}"
    last = " ".join(said.split())[-300:]
    return f"the process ended by {ended}{': ' if last else ''}{last}"
