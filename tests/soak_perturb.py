"""`python -m tests.soak_perturb`: random programs over the driver in software.

    python -m tests.soak_perturb [--programs N] [--named N] [--seed N] [--no-joins]

Does `cai-bridge perturb` find what the simulated device's happens-before check calls a race, and
nothing else? A program without a race must be the same under every covering seed. Not every race
shows, as some leave the values as they are. Of the first programs the races are named, too: the two
operations must be a race of the model's. And each join of up to six streams is judged, whole and
without one of its waits. Exits with 1 if a program without a race differs, if fewer than `LEAST` of
those with one do, if a name is wrong, or if a join is judged wrongly.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from cai_bridge._cli import bisecting, perturb, perturbed, schedule
from cai_bridge._cli.perturb_race import Race
from cai_bridge.testing import simulated_cuda

SOFTWARE = Path(__file__).parent / "software_driver"
STREAMS = ("legacy", "blocking", "first", "second")
WORDS = 3
WORK = {"fill", "copy"}
"""The kinds of steps that are operations."""
Program = list[list[Any]]
LEAST = 0.5
"""Of the racy programs so many must differ: the others' values happen to be right in any order."""
BATCH = 500


def draw(seed: int) -> Program:
    """Draw a program: fills, copies, waits between streams, and waits of the host."""
    choice = random.Random(seed)
    steps: Program = []
    # Few waits make a race likely, many make it unlikely: both are wanted.
    waits = choice.choice((1, 4, 12))
    for number in range(choice.randint(4, 14)):
        kind = choice.choices(("fill", "copy", "order", "sync"), (4, 4, waits, 1))[0]
        stream, other = choice.sample(range(len(STREAMS)), 2)
        if kind == "fill":
            steps.append([kind, stream, choice.randrange(WORDS), seed * 100 + number + 1])
        elif kind == "copy":
            steps.append([kind, stream, *choice.sample(range(WORDS), 2)])
        else:
            steps.append([kind, stream, other] if kind == "order" else [kind, stream])
    return steps


def is_race(program: Program, first: int, second: int) -> bool:
    """Tell whether two steps race, whatever else does."""
    # What the check says of others may say it of these as well: it leaves that out.
    return bool(races([program], {first, second})[0])


def races(programs: list[Program], only: set[int] | None = None) -> list[set[tuple[int, int]]]:
    """Find races of each, by the happens-before check: pairs of steps, in their order.

    If it is given, only these steps touch the words.
    """
    found = []
    with simulated_cuda(check=False) as cuda:
        streams = [cuda.default_stream(0), cuda.stream("blocking", blocking=True)]
        streams += [cuda.stream(name) for name in STREAMS[2:]]
        for program in programs:
            words = [cuda.array([0], dtype="int64", name=f"word {n}") for n in range(WORDS)]
            kept: list[Any] = []
            before = len(cuda.reports)
            for at, (kind, stream, *rest) in enumerate(program):
                one = streams[stream]
                if only is not None and at not in only and kind in WORK:
                    kept.append(cuda.array([0], dtype="int64"))
                    one.fill(kept[-1], 0, name=str(at))
                elif kind == "fill":
                    one.fill(words[rest[0]], rest[1], name=str(at))
                elif kind == "copy":
                    one.copy(words[rest[0]], words[rest[1]], name=str(at))
                elif kind == "order":
                    streams[rest[0]].wait(one.record())
                else:
                    one.synchronize()
            cuda.synchronize()
            sides = [(one.first, one.second) for one in cuda.reports[before:]]
            found.append({(int(a.operation), int(b.operation)) for a, b in sides if a})
    return found


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


@contextmanager
def running(programs: Sequence[Program], *options: str, **how: Any) -> Iterator[perturbed.Program]:
    """Give the command that runs programs, where the driver is."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.writelines(f"{json.dumps(one)}\n" for one in programs)
        file.flush()
        command = (sys.executable, str(SOFTWARE / "programs.py"), file.name, *options)
        yield perturbed.Program(command, **how)


class Counts:
    """A data class whose fields add up."""

    def __add__(self, other: Self) -> Self:
        names = [one.name for one in fields(self)]
        return type(self)(**{one: getattr(self, one) + getattr(other, one) for one in names})


@dataclass(frozen=True)
class Found(Counts):
    """What came of some programs.

    Attributes
    ----------
    programs, racy, seen : int
        How many there were; how many have a race; how many of these differ under some seed.
    wrong : list of int
        The programs without a race that differ.
    """

    programs: int = 0
    racy: int = 0
    seen: int = 0
    wrong: list[int] = field(default_factory=list)

    @property
    def recall(self) -> float:
        """The share of the racy programs that differ."""
        return self.seen / self.racy if self.racy else 1.0

    def __str__(self) -> str:
        return (
            f"{self.programs} programs, {self.racy} with a race: {self.seen} seen "
            f"({100 * self.recall:.1f} %); {len(self.wrong)} differ without a race"
        )


def judge(numbers: Sequence[int]) -> Found:
    """Judge the programs of these numbers: serially, and under the covering seeds."""
    programs = [draw(number) for number in numbers]
    has_race = [bool(one) for one in races(programs)]

    def values(run: perturbed.Run) -> list[str]:
        if run.status or len(run.lines) != len(programs):
            raise RuntimeError(f"{len(run.lines)} lines, exit status {run.status}: {run.errors}")
        return run.lines

    with driver(), running(programs) as asked:
        serial = values(perturbed.run(asked, "serial"))
        seeds = range(schedule.covering(len(STREAMS)))
        late = [values(perturbed.run(asked, "late", seed=seed)) for seed in seeds]
    differs = [any(run[at] != line for run in late) for at, line in enumerate(serial)]
    both = list(zip(numbers, has_race, differs, strict=True))
    seen = sum(race and other for _, race, other in both)
    wrong = [number for number, race, other in both if other and not race]
    return Found(len(programs), sum(has_race), seen, wrong)


@dataclass(frozen=True)
class Named:
    """What came of some programs with a race that shows.

    Attributes
    ----------
    right : int
        How many were named rightly.
    unnamed, wrong : dict of int to str
        Why the others were not named, and what was named wrongly, by their numbers.
    """

    right: int
    unnamed: dict[int, str]
    wrong: dict[int, str]

    def __str__(self) -> str:
        return f"{self.right} named rightly, {len(self.unnamed)} not, {len(self.wrong)} wrongly"


def name(numbers: Sequence[int], processes: int = 2) -> Named:
    """Name the races of the programs of these numbers."""
    programs = {number: draw(number) for number in numbers}
    pairs = dict(zip(numbers, races(list(programs.values())), strict=True))
    racy = [number for number in numbers if pairs[number]]
    right = 0
    unnamed, wrong = {}, {}
    with driver(), ThreadPoolExecutor(processes) as pool:
        said_of = pool.map(lambda one: _named(programs[one]), racy)
        for number, said in zip(racy, said_of, strict=True):
            if isinstance(said, str):
                unnamed[number] = said
            elif said is not None:
                program = programs[number]
                work = [at for at, (kind, *_) in enumerate(program) if kind in WORK]
                # One alone if the host is said to be early.
                sides = [said.late, said.early] if said.early else [said.late]
                steps = tuple(sorted(work[one.operation] for one in sides))
                if len(steps) == 2 and is_race(program, *steps):
                    right += 1
                else:
                    wrong[number] = f"{steps}, and the races are {sorted(pairs[number])}"
    return Named(right, unnamed, wrong)


def _named(program: Program) -> Race | str | None:
    """Run the command on a program by itself; why it is not named; None if it does not differ."""
    # Naming takes many runs: the delay is short.
    with running([program], delay=0.02) as asked:
        verdict = perturb.judge(asked, None, lambda *_: None)
        if not verdict.schedules:
            return None
        try:
            return bisecting.bisect(asked, verdict.rows[0].run, verdict.schedules, lambda _: None)
        except bisecting.UnnamedError as why:
            return str(why)


MOST = 6
"""The most streams that a join waits for."""
JOIN = """
from soft import *
c, y, s = stream(), word(), [stream() for _ in range({count})]
x = [word() for _ in s]
for i in range({count}):
    launch("fill", s[i], x[i], i + 1)
    if i != {forgotten}:
        order(s[i], c)
for i in range({count}):
    launch("add", c, y, x[i])
print(read(y, c))
"""


def joins(**how: Any) -> Iterator[tuple[int, int | None, perturbed.Program]]:
    """Write each join, whole and without one of its waits: how many streams, which, the program."""
    with driver(), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "join.py"
        program = perturbed.Program((sys.executable, str(path)), **how)
        for count in range(1, MOST + 1):
            for forgotten in (None, *range(count)):
                path.write_text(JOIN.format(count=count, forgotten=forgotten))
                yield count, forgotten, program


def judge_joins() -> tuple[int, int, list[str]]:
    """Judge each join.

    Returns
    -------
    tuple of int, int, list of str
        How many joins lack a wait; how many of these were seen; what was judged wrongly.
    """
    racy, seen, wrong = 0, 0, []
    for count, forgotten, program in joins(delay=0.2):
        verdict = perturb.judge(program, None, lambda *_: None)
        lacks = forgotten is not None
        is_right = verdict.status == lacks
        racy, seen = racy + lacks, seen + (lacks and is_right)
        if not is_right:
            wrong.append(f"{count} streams without {forgotten}: {verdict.conclusion}")
    return racy, seen, wrong


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak_perturb")
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--named", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-joins", action="store_true")
    asked = parser.parse_args()
    whole = Found()
    for start in range(0, asked.programs, BATCH):
        numbers = range(asked.seed + start, asked.seed + min(start + BATCH, asked.programs))
        found = judge(numbers)
        whole += found
        print(whole, flush=True)
        for number in found.wrong:
            print(f"  without a race, and differs: program {number}")
    named = name(range(asked.seed, asked.seed + asked.named))
    print(named)
    for number, why in {**named.wrong, **named.unnamed}.items():
        print(f"  program {number}: {why}")
    racy, seen, wrong = (0, 0, []) if asked.no_joins else judge_joins()
    print(f"joins without one of their waits: {seen} of {racy} seen", *wrong, sep="\n  ")
    sys.exit(bool(whole.wrong or whole.recall < LEAST or named.wrong or wrong))


if __name__ == "__main__":
    main()
