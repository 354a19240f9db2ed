"""A matrix whose rows run in processes of their own, so that a crash costs a cell."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ..children import ended_by, environment
from .result import ASPECTS, Aspect, Cell, Matrix
from .routes import ROUTES
from .run import Progress

LIMIT_S = 300.0
_LOOK_S = 0.25
"""How long it takes to look for cells that are new."""


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
            told = len(cells)

            def tell(cell: Cell) -> None:
                nonlocal told
                told += 1
                if progress is not None:
                    progress(told, count, cell)

            part, ended = _run_child(producer, left, rounds, wanted, limit_s=limit_s, tell=tell)
            found = list(part.cells)
            for cell in found[told - len(cells) :]:
                tell(cell)
            if len(found) < len(left) * len(ROUTES):
                crashed = _crashed(producer, left[len(found) // len(ROUTES)], found, wanted, ended)
                found += crashed
                for cell in crashed:
                    tell(cell)
            left = left[len(found) // len(ROUTES) :]
            versions |= part.versions
            first = first or part
            cells += found
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
    *,
    limit_s: float,
    tell: Callable[[Cell], object],
) -> tuple[Matrix, str]:
    """Run one row, tell its cells as they come, and how the process ended."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "row.json")
        command = [sys.executable, "-m", "cai_bridge.conformance.matrix", "--json", str(path)]
        command += ["--producer", producer]
        command += [text for one in consumers for text in ("--consumer", one)]
        command += [text for one in aspects for text in ("--aspect", one)]
        command += [] if rounds is None else ["--rounds", str(rounds)]
        said_in = Path(folder, "said")
        with said_in.open("wb") as said_to:
            child = subprocess.Popen(  # noqa: S603
                command, stdout=subprocess.DEVNULL, stderr=said_to, env=environment()
            )
            try:
                code = _watched(child, path, limit_s, tell)
            finally:
                # Also where whoever runs it is interrupted: nobody else would end the child.
                child.kill()
                child.wait()
        said = said_in.read_bytes().decode(errors="backslashreplace")
        if not path.exists():
            raise ValueError(f"producers: got {producer!r}, but: {said[-2000:]}")
        return Matrix.from_dict(json.loads(path.read_text())), _ending(code, said, limit_s)


def _watched(
    child: subprocess.Popen[bytes], path: Path, limit_s: float, tell: Callable[[Cell], object]
) -> int | None:
    """Tell the cells that a child writes; return its exit code, or None where it takes too long."""
    end, told, code = time.monotonic() + limit_s, 0, None
    while code is None and time.monotonic() < end:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = child.wait(min(_LOOK_S, max(end - time.monotonic(), 0.0)))
        if path.exists():
            # It is whole at any time.
            cells = Matrix.from_dict(json.loads(path.read_text())).cells
            for cell in cells[told:]:
                tell(cell)
            told = len(cells)
    return code


def _ending(code: int | None, said: str, limit_s: float) -> str:
    if code is None:
        return f"the process was ended after {limit_s:.0f} s"
    ended = ended_by(code) or f"code {code}"
    last = " ".join(said.split())[-300:]
    return f"the process ended by {ended}{': ' if last else ''}{last}"
