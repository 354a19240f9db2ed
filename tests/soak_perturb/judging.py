"""Programs, run serially and under the covering seeds, against what the model says of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Self

from cai_bridge._cli import perturbed, schedule

from .drawing import STREAMS, draw, races

HERE = Path(__file__).parent
SOFTWARE = HERE.parent / "software_driver"
LEAST = 0.5
"""Of the racy programs so many must differ: the others' values happen to be right in any order."""


class Counts:
    """A data class whose fields add up."""

    def __add__(self, other: Self) -> Self:
        names = [one.name for one in fields(self)]  # type: ignore[arg-type]
        return type(self)(**{one: getattr(self, one) + getattr(other, one) for one in names})


@dataclass(frozen=True)
class Found(Counts):
    """What came of some programs.

    Attributes
    ----------
    programs, racy, seen : int
        How many there were; how many have a race; how many of these differ under some seed.
    wrong, missed : list of int
        The programs without a race that differ, and those with one that do not.
    """

    programs: int
    racy: int
    seen: int
    wrong: list[int] = field(default_factory=list)
    missed: list[int] = field(default_factory=list)

    @property
    def recall(self) -> float:
        """The share of the racy programs that differ."""
        return self.seen / self.racy if self.racy else 1.0

    def __str__(self) -> str:
        return (
            f"{self.programs} programs, {self.racy} with a race: {self.seen} seen "
            f"({100 * self.recall:.1f} %); {len(self.wrong)} differ without a race"
        )


@contextmanager
def driver() -> Iterator[None]:
    """Build the driver in software, and have children load it."""
    kept = {name: os.environ.get(name) for name in ("LD_LIBRARY_PATH", "PYTHONPATH")}
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "libcuda.so.1"
        command = [shutil.which("cc") or "cc", "-O1", "-shared", "-fPIC", "-pthread", "-o"]
        subprocess.run([*command, str(library), str(SOFTWARE / "cuda.c")], check=True)
        os.environ |= {"LD_LIBRARY_PATH": folder, "PYTHONPATH": str(SOFTWARE)}
        try:
            yield
        finally:
            for name, value in kept.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value


def judge(numbers: Sequence[int]) -> Found:
    """Judge the programs of these numbers."""
    programs = [draw(number) for number in numbers]
    has_race = [bool(one) for one in races(programs)]
    with driver(), tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.writelines(f"{json.dumps(one)}\n" for one in programs)
        file.flush()
        command = (sys.executable, str(HERE / "child.py"), file.name)
        asked = perturbed.Program(command)
        serial = values(perturbed.run(asked, "serial"), len(programs))
        late = [
            values(perturbed.run(asked, "late", seed=seed), len(programs))
            for seed in range(schedule.covering(len(STREAMS)))
        ]
    differs = [any(run[at] != line for run in late) for at, line in enumerate(serial)]
    both = list(zip(numbers, has_race, differs, strict=True))
    return Found(
        programs=len(programs),
        racy=sum(has_race),
        seen=sum(race and other for _, race, other in both),
        wrong=[number for number, race, other in both if other and not race],
        missed=[number for number, race, other in both if race and not other],
    )


def values(run: perturbed.Run, count: int) -> list[str]:
    """Return what the programs left in memory; a run that failed is an error."""
    if run.status or len(run.lines) != count:
        raise RuntimeError(f"{len(run.lines)} lines, exit status {run.status}: {run.errors}")
    return run.lines
