"""A matrix whose rows run in processes of their own, so that a crash costs a cell."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue

from ..children import ended_by, environment
from .result import ASPECTS, Aspect, Cell, Matrix
from .routes import WAYS, Route, chosen
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
    ways: Iterable[str] | None = None,
    progress: Progress | None = None,
    limit_s: float = LIMIT_S,
    jobs: int = 1,
) -> Matrix:
    """Run a matrix with a process for each producer; see `run_matrix`.

    Where one crashes, or takes longer than `limit_s`, the route that it was at and those of the
    same pair behind it are ``"crashed"``, and another process goes on with the next consumer.
    With several `jobs` so many processes start their libraries at once. They judge one after
    another, and `limit_s` is for all of them.

    Raises
    ------
    ValueError
        A library that is not known or not installed, or an aspect or a way that there is not.
    """
    jobs = max(1, jobs)
    cells: list[Cell] = []
    first: Matrix | None = None
    versions: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        rows = _Rows(
            tuple(consumers),
            ASPECTS if aspects is None else tuple(aspects),
            WAYS if ways is None else tuple(ways),
            rounds,
            limit_s * jobs,
            Path(folder, "turn") if jobs > 1 else None,
        )
        count = len(producers) * len(consumers) * len(rows.routes)
        with ThreadPoolExecutor(jobs) as pool:
            told: SimpleQueue[Cell | None] = SimpleQueue()
            running = [pool.submit(rows.run, one, told.put) for one in producers]
            for row in running:
                row.add_done_callback(lambda _: told.put(None))
            try:
                for done, cell in enumerate(_until_done(told, running), 1):
                    if progress is not None:
                        progress(done, count, cell)
                for row in running:
                    found, part = row.result()
                    versions |= part.versions
                    first = first or part
                    cells += found
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
    if first is None:
        raise ValueError("producers: got none; allowed: one or more, and as many consumers")
    return replace(
        first,
        versions=versions,
        producers=tuple(producers),
        consumers=tuple(consumers),
        cells=tuple(cells),
    )


def _until_done(
    told: SimpleQueue[Cell | None], running: Sequence[Future[tuple[list[Cell], Matrix]]]
) -> Iterator[Cell]:
    """Give cells as rows tell them, until all rows are done; raise what ended one."""
    left = len(running)
    while left:
        cell = told.get()
        if cell is not None:
            yield cell
            continue
        left -= 1
        for row in running:
            if row.done() and not row.cancelled():
                row.result()


Tell = Callable[[Cell], object]


@dataclass(frozen=True)
class _Rows:
    """What all rows are run with."""

    consumers: tuple[str, ...]
    aspects: tuple[str, ...]
    ways: tuple[str, ...]
    rounds: int | None
    limit_s: float
    turn: Path | None

    @property
    def routes(self) -> tuple[Route, ...]:
        return chosen(self.ways)

    def run(self, producer: str, tell: Tell) -> tuple[list[Cell], Matrix]:
        """Run a row, in as many processes as it takes; its cells, and what it was found on.

        Each cell is told when it is there.
        """
        cells: list[Cell] = []
        first: Matrix | None = None
        left, each = list(self.consumers), len(self.routes)
        while left:
            part, ended = self._run_child(producer, left, tell)
            found = list(part.cells)
            if len(found) < len(left) * each:
                crashed = self._crashed(producer, left[len(found) // each], found, ended)
                found += crashed
                for cell in crashed:
                    tell(cell)
            left = left[len(found) // each :]
            cells += found
            first = first or part
        if first is None:
            raise ValueError("consumers: got none; allowed: one or more")
        return cells, first

    def _crashed(self, producer: str, consumer: str, found: list[Cell], ended: str) -> list[Cell]:
        """Fill the rest of a pair up."""
        crash = Aspect("crashed", ended)
        after = Aspect("crashed", "an earlier route ended the process")
        made: list[Cell] = []
        for route in self.routes[len(found) % len(self.routes) :]:
            every = dict.fromkeys(self.aspects, after if made else crash)
            made.append(Cell(producer, consumer, route.name, route.door, route.bridged, every))
        return made

    def _run_child(self, producer: str, consumers: Sequence[str], tell: Tell) -> tuple[Matrix, str]:
        """Run what is left of a row, tell its cells as they come, and how the process ended."""
        with tempfile.TemporaryDirectory() as folder:
            path, said_in = Path(folder, "row.json"), Path(folder, "said")
            with said_in.open("wb") as said_to:
                child = subprocess.Popen(  # noqa: S603
                    self._command(producer, consumers, path),
                    stdout=subprocess.DEVNULL,
                    stderr=said_to,
                    env=environment(),
                )
                try:
                    code = _watched(child, path, self.limit_s, tell)
                finally:
                    # Also where whoever runs it is interrupted: nobody else would end the child.
                    child.kill()
                    child.wait()
            said = said_in.read_bytes().decode(errors="backslashreplace")
            if not path.exists():
                raise ValueError(f"producers: got {producer!r}, but: {said[-2000:]}")
            matrix = Matrix.from_dict(json.loads(path.read_text()))
            return matrix, _ending(code, said, self.limit_s)

    def _command(self, producer: str, consumers: Sequence[str], path: Path) -> list[str]:
        command = [sys.executable, "-m", "cai_bridge.conformance.matrix", "--json", str(path)]
        command += ["--producer", producer]
        for option, words in (
            ("--consumer", consumers),
            ("--aspect", self.aspects),
            ("--way", self.ways),
        ):
            command += [text for one in words for text in (option, one)]
        command += [] if self.rounds is None else ["--rounds", str(self.rounds)]
        command += [] if self.turn is None else ["--turn", str(self.turn)]
        return command


def _watched(child: subprocess.Popen[bytes], path: Path, limit_s: float, tell: Tell) -> int | None:
    """Tell the cells that a child writes; return its exit code, or None where it takes too long."""
    end, told, code = time.monotonic() + limit_s, 0, None
    while code is None and time.monotonic() < end:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = child.wait(min(_LOOK_S, max(end - time.monotonic(), 0.0)))
        told = _told(path, told, tell)
    if code is None:
        child.kill()
        child.wait()
        # It may have written one more.
        _told(path, told, tell)
    return code


def _told(path: Path, told: int, tell: Tell) -> int:
    """Tell the cells of a file that are new, and count all; it is whole at any time."""
    cells = Matrix.from_dict(json.loads(path.read_text())).cells if path.exists() else ()
    for cell in cells[told:]:
        tell(cell)
    return len(cells)


def _ending(code: int | None, said: str, limit_s: float) -> str:
    if code is None:
        return f"the process was ended after {limit_s:.0f} s"
    ended = ended_by(code) or f"code {code}"
    last = " ".join(said.split())[-300:]
    return f"the process ended by {ended}{': ' if last else ''}{last}"
