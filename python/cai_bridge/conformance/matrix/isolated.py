"""Runs each row of the matrix in a process of its own, so that a crash costs one cell."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue

from ..children import ended_by, environment
from .result import ASPECTS, Aspect, Cell, Matrix
from .routes import WAYS, Route, chosen
from .run import Progress

LIMIT_S = 300.0
_LOOK_S = 0.25
"""The time between two looks for new cells, in seconds."""

_Row = tuple[list[Cell], Matrix]
"""The cells of a row, and the device that they were judged on."""


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
    """Run the matrix with a process for each producer; see `run_matrix`.

    If a process crashes or takes longer than `limit_s`, the current route of the pair and its later
    routes are ``"crashed"``, and another process continues with the next consumer. With several
    `jobs`, this many processes start their libraries at once. They judge one after another, and
    `limit_s` covers all of them. `progress` gets the cells as they come: the cells of a row in
    order, the rows in any order.

    Raises
    ------
    ValueError
        An unknown library, one that is not installed, or an unknown aspect or way.
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
        names: list[str] = []
        for found, part in _all_of(rows, producers, jobs, progress):
            versions |= part.versions
            first = first or part
            names += part.producers
            cells += found
    if first is None:
        raise ValueError("producers: got none; allowed: one or more, and as many consumers")
    return replace(first, versions=versions, producers=tuple(names), cells=tuple(cells))


def _all_of(
    rows: _Rows, producers: Sequence[str], jobs: int, progress: Progress | None
) -> list[_Row]:
    """Run all rows, and report their cells in this thread as they come."""
    count = len(producers) * len(rows.consumers) * len(rows.routes)
    with ThreadPoolExecutor(jobs) as pool:
        try:
            running = [pool.submit(rows.run, one) for one in producers]
            for row in running:
                row.add_done_callback(rows.said.put)
            told, left = 0, len(running)
            while left:
                said = rows.said.get()
                if isinstance(said, Cell):
                    told += 1
                    if progress is not None:
                        progress(told, count, said)
                else:
                    said.result()  # raises the exception that ended the row
                    left -= 1
            return [row.result() for row in running]
        finally:
            # Also after an interrupt, since nothing else would end the children.
            rows.stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class _Rows:
    """The settings of all rows, and the queue for their cells and ends."""

    consumers: tuple[str, ...]
    aspects: tuple[str, ...]
    ways: tuple[str, ...]
    rounds: int | None
    limit_s: float
    turn: Path | None
    said: SimpleQueue[Cell | Future[_Row]] = field(default_factory=SimpleQueue)
    stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def routes(self) -> tuple[Route, ...]:
        return chosen(self.ways)

    def run(self, producer: str) -> _Row:
        """Run a row, in as many processes as it takes."""
        cells: list[Cell] = []
        first: Matrix | None = None
        left, each = list(self.consumers), len(self.routes)
        while left:
            part, ended = self._run_child(producer, left)
            found = list(part.cells)
            if len(found) < len(left) * each:
                crashed = self._crashed(part, found, ended)
                found += crashed
                self._tell(crashed)
            left = left[len(found) // each :]
            cells += found
            first = first or part
        if first is None:
            raise ValueError("consumers: got none; allowed: one or more")
        return cells, first

    def _crashed(self, part: Matrix, found: list[Cell], ended: str) -> list[Cell]:
        """Add a crashed cell for each route of the pair that is left."""
        producer, consumer = part.producers[0], part.consumers[len(found) // len(self.routes)]
        crash = Aspect("crashed", ended)
        after = Aspect("crashed", "an earlier route ended the process")
        made: list[Cell] = []
        for route in self.routes[len(found) % len(self.routes) :]:
            every = dict.fromkeys(self.aspects, after if made else crash)
            made.append(Cell(producer, consumer, route.name, route.door, route.bridged, every))
        return made

    def _run_child(self, producer: str, consumers: Sequence[str]) -> tuple[Matrix, str]:
        """Run the rest of a row and report its cells; return them, and how the process ended."""
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
                    code, told = self._watched(child, path)
                finally:
                    child.kill()
                    child.wait()
            said = said_in.read_bytes().decode(errors="backslashreplace")
            matrix = _read(path)
            if matrix is None:
                raise ValueError(f"producers: got {producer!r}, but: {said[-2000:]}")
            self._tell(matrix.cells[told:])
            return matrix, _ending(code, said, self.limit_s)

    def _watched(self, child: subprocess.Popen[bytes], path: Path) -> tuple[int | None, int]:
        """Report the cells that a child writes.

        Returns
        -------
        tuple of int or None, int
            The child's exit code, or None if it took too long; and the number of cells reported.
        """
        end, told, code = time.monotonic() + self.limit_s, 0, None
        while code is None and time.monotonic() < end:
            if self.stopped.is_set():
                raise CancelledError
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = child.wait(min(_LOOK_S, max(end - time.monotonic(), 0.0)))
            matrix = _read(path)
            if matrix is not None:
                self._tell(matrix.cells[told:])
                told = len(matrix.cells)
        return code, told

    def _tell(self, cells: Iterable[Cell]) -> None:
        for cell in cells:
            self.said.put(cell)

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


def _read(path: Path) -> Matrix | None:
    """Read the cells that a child has written so far. The file is always whole."""
    return Matrix.from_dict(json.loads(path.read_text())) if path.exists() else None


def _ending(code: int | None, said: str, limit_s: float) -> str:
    if code is None:
        return f"the process was ended after {limit_s:.0f} s"
    ended = ended_by(code) or f"code {code}"
    last = " ".join(said.split())[-300:]
    return f"the process ended by {ended}{': ' if last else ''}{last}"
