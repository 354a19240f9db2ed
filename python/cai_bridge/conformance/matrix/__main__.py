"""Runs a row of the matrix, or several, as a program.

``python -m cai_bridge.conformance.matrix --producer torch --consumer cupy --json row.json``

The file is written after every cell, so the cells before a crash can be read.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from cai_bridge import __version__

from ..lab import open_lab
from ..named import LIBRARIES, consumer_named, producer_named
from .result import ASPECTS, Cell, Matrix
from .routes import WAYS
from .run import run_matrix
from .versions import versions_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, write the file, and print one line for each cell."""
    parser = argparse.ArgumentParser(prog="python -m cai_bridge.conformance.matrix")
    known = ", ".join(LIBRARIES)
    parser.add_argument("--producer", action="append", required=True, help=f"{known}; repeatable")
    parser.add_argument("--consumer", action="append", required=True, help="the same")
    parser.add_argument("--aspect", action="append", choices=ASPECTS, help="by default all")
    parser.add_argument("--way", action="append", choices=WAYS, help="by default all")
    parser.add_argument("--rounds", type=int, help="how often what depends on timing is tried")
    parser.add_argument("--json", type=Path, required=True, help="the file to write")
    parser.add_argument("--turn", type=Path, help="a file that is locked while pairs are judged")
    wished = parser.parse_args(arguments)
    cells: list[Cell] = []
    with open_lab() as lab:
        begun = datetime.now(UTC).isoformat(timespec="seconds")
        sources = [producer_named(one) for one in wished.producer]
        sinks = [consumer_named(one) for one in wished.consumer]
        names = tuple(one.name for one in sources), tuple(one.name for one in sinks)
        versions = versions_of([*names[0], *names[1]])
        rounds = wished.rounds or lab.rounds

        def write() -> None:
            so_far = Matrix(
                lab.name, begun, __version__, versions, rounds, *names, cells=tuple(cells)
            )
            _write(wished.json, so_far)

        def progress(done: int, count: int, cell: Cell) -> None:
            cells.append(cell)
            write()
            sys.stdout.write(f"{done}/{count} {_line(cell)}\n")
            sys.stdout.flush()

        write()
        with _turn(wished.turn):
            run_matrix(
                sources,
                sinks,
                lab=lab,
                rounds=rounds,
                aspects=wished.aspect,
                ways=wished.way,
                progress=progress,
            )
    return 0


@contextlib.contextmanager
def _turn(path: Path | None) -> Iterator[None]:
    """Wait until no other process judges, which would share the device and change the times.

    The lock ends with the process, even after a crash.
    """
    if path is None:
        yield
        return
    import fcntl  # noqa: PLC0415 - not on every system

    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _write(path: Path, matrix: Matrix) -> None:
    """Replace the file at once, so that a reader always sees a whole file."""
    fresh = path.with_suffix(".part")
    fresh.write_text(matrix.to_json())
    os.replace(fresh, path)  # noqa: PTH105


def _line(cell: Cell) -> str:
    head = f"{cell.producer} -> {cell.consumer}, {cell.route}:"
    if not cell.exists:
        return f"{head} none"
    return f"{head} " + ", ".join(f"{name} {one.outcome}" for name, one in cell.aspects.items())


if __name__ == "__main__":
    sys.exit(main())
