"""Programs in flight: a zygote, its tasks, and what comes back.

The zygote is the process that has imported what programs need, and forks a child for each task.
CUDA does not survive a fork, so nothing in it may start it: where importing a library does, another
zygote takes over that leaves this import to the children.
"""

from __future__ import annotations

import faulthandler
import mmap
import multiprocessing
import os
import pickle
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from cai_bridge._environment import QUEUES

from .program import MEMORY, Program, World

MOST_THREADS = 3
START_S = 300.0
LOOK_S = 0.5
"""So often is looked for those that take too long."""
OUTCOMES = ("right", "wrong", "died", "hung", "error")


@dataclass(frozen=True)
class Task:
    """Programs to run: one that is given, or as many as `count` of the seeds from `seed` on."""

    number: int
    world: World
    limit_s: float
    seed: int = 0
    setup: Any = None
    given: Program | None = None
    count: int = 1

    @property
    def seeds(self) -> range:
        return range(self.seed, self.seed + self.count)

    def program(self, seed: int) -> Program:
        return self.given or self.world.room.program(seed, self.setup)


@dataclass
class Outcome:
    """What came of a program."""

    number: int
    outcome: str
    text: str = ""
    steps: int = 0
    # The step where it went wrong, where that is known.
    at: int | None = None
    # What is wrong in a word: of an error, the type of what was raised.
    raised: str = ""
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    seed: int = 0

    @property
    def kind(self) -> str:
        """What two failures have in common that are taken for the same."""
        return f"{self.outcome} {self.raised}".strip()


def run(task: Task, progress: Any = None) -> list[Outcome]:
    outcomes = []
    for seed in task.seeds:
        drawn = task.program(seed)
        outcome = Outcome(task.number, "error", steps=len(drawn.steps), seed=seed)
        task.world.room.run(drawn, task.world, outcome, progress)
        outcomes.append(outcome)
    return outcomes


def run_child(task: Task, folder: Path) -> None:
    """Run programs, write down what came of them, and end the process as it is."""
    log = (folder / f"{task.number}.log").open("wb", buffering=0)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    faulthandler.enable(log, all_threads=True)
    faulthandler.dump_traceback_later(max(0.9 * task.limit_s, task.limit_s - 5), file=log)
    with (folder / f"{task.number}.progress").open("w+b") as file:
        file.write(bytes(8 * MOST_THREADS))
        file.flush()
        progress = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
    outcomes = run(task, progress)
    faulthandler.cancel_dump_traceback_later()
    written = folder / f"{task.number}.written"
    written.write_bytes(pickle.dumps(outcomes))
    written.rename(folder / f"{task.number}.outcome")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


@dataclass
class Ready:
    """What a zygote says first: the libraries, why others are missing, and what started CUDA."""

    there: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    started_by: str = ""


@dataclass
class Child:
    """A process that runs a task; `over` is readable when it has ended."""

    task: Task
    pid: int
    over: int
    deadline: float


def zygote(
    connection: Connection,
    folder: Path,
    environment: dict[str, str],
    world: World,
    later: list[str],
) -> None:
    """Import, tell, and then fork a child for every task that comes, until there come no more."""
    os.environ.update(environment)
    ready = world.room.ready(world.place, later)
    connection.send(ready)
    if not ready.started_by:
        warnings.simplefilter("ignore")
        serve(connection, folder)


def serve(connection: Connection, folder: Path) -> None:
    children: list[Child] = []
    open_ = True
    try:
        while open_ or children:
            watched = [connection] * open_ + [one.over for one in children]
            if connection in wait(watched, LOOK_S):
                try:
                    task = connection.recv()
                except EOFError:
                    break
                if task is None:
                    open_ = False
                else:
                    children.append(started(task, connection, folder))
            for one in list(children):
                outcomes = ended(one, folder)
                if outcomes is not None:
                    children.remove(one)
                    os.close(one.over)
                    connection.send(outcomes)
    except BrokenPipeError:
        pass
    finally:
        for one in children:
            os.kill(one.pid, signal.SIGKILL)


def started(task: Task, connection: Connection, folder: Path) -> Child:
    pid = os.fork()
    if pid == 0:
        try:
            connection.close()
            run_child(task, folder)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return Child(task, pid, os.pidfd_open(pid), time.monotonic() + task.limit_s)


def ended(one: Child, folder: Path) -> list[Outcome] | None:
    """Tell what came of a child that is over, or that took too long."""
    pid, status = os.waitpid(one.pid, os.WNOHANG)
    number = one.task.number
    if pid == 0 and time.monotonic() < one.deadline:
        return None
    if pid == 0:
        os.kill(one.pid, signal.SIGKILL)
        os.waitpid(one.pid, 0)
        outcomes = [gone(one, folder, "hung", f"not over after {one.task.limit_s:g} s")]
    elif (folder / f"{number}.outcome").exists():
        outcomes = pickle.loads((folder / f"{number}.outcome").read_bytes())
    else:
        code = os.waitstatus_to_exitcode(status)
        name = signal.Signals(-code).name if code < 0 else f"code {code}"
        outcomes = [gone(one, folder, "died", f"ended by {name}")]
    for path in folder.glob(f"{number}.*"):
        path.unlink(missing_ok=True)
    return outcomes


def gone(one: Child, folder: Path, what: str, why: str) -> Outcome:
    """Tell how far a child came that told nothing."""
    try:
        written = (folder / f"{one.task.number}.progress").read_bytes()
    except OSError:
        written = b""
    steps = [step for (step,) in struct.iter_unpack("q", written)]
    at = max(steps, default=None)
    where = f"the threads were at the steps {steps}" if steps else "no step was begun"
    text = f"{why}; {where}\n{said(one, folder)}"
    return Outcome(one.task.number, what, text, at=at, seed=one.task.seed)


def said(one: Child, folder: Path, most: int = 6000) -> str:
    """Give the end of what a child has printed, the traceback of a signal among it."""
    try:
        return (folder / f"{one.task.number}.log").read_text(errors="replace")[-most:]
    except OSError:
        return ""


ENVIRONMENT = {
    **QUEUES,
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}


class Crew:
    """Runs tasks, as many at once as there are `jobs`, each for at most `limit_s`."""

    def __init__(self, world: World, jobs: int, limit_s: float) -> None:
        self.world, self.jobs, self.limit_s = world, jobs, limit_s
        self.flying: dict[int, Task] = {}
        self._again: list[Task] = []
        self._numbers = 0
        self._folder = Path(tempfile.mkdtemp(prefix="soak-"))
        later: list[str] = []
        while True:
            self._start(later)
            if not self.ready.started_by:
                break
            later.append(self.ready.started_by)
            self._process.join()

    def _start(self, later: list[str]) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        environment = {**ENVIRONMENT, **MEMORY[self.world.memory]}
        environment["JAX_COMPILATION_CACHE_DIR"] = str(self._folder / "jax")
        environment["NUMBA_CACHE_DIR"] = str(self._folder / "numba")
        arguments = (theirs, self._folder, environment, self.world, later)
        self._process = context.Process(target=zygote, args=arguments, daemon=False)
        self._process.start()
        theirs.close()
        self.ready: Ready = self._received(START_S)

    def _received(self, within_s: float) -> Ready:
        if not self._connection.poll(within_s):
            raise RuntimeError(f"the libraries were not imported within {within_s:.0f} s")
        try:
            ready: Ready = self._connection.recv()
        except EOFError:
            self._process.join()
            code = self._process.exitcode
            raise RuntimeError(f"importing the libraries ended with code {code}") from None
        return ready

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *raised: object) -> None:
        self._connection.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def task(self, **wanted: object) -> Task:
        self._numbers += 1
        wanted = {"limit_s": self.limit_s, **wanted}
        return Task(self._numbers, self.world, **wanted)

    def send(self, task: Task) -> None:
        self._connection.send(task)
        self.flying[task.number] = task

    def outcomes(self, within_s: float) -> list[Outcome]:
        if not self._connection.poll(within_s):
            return []
        try:
            outcomes: list[Outcome] = self._connection.recv()
        except EOFError:
            raise RuntimeError("the zygote is gone") from None
        task = self.flying.pop(outcomes[0].number)
        if task.count > 1 and outcomes[0].outcome in {"died", "hung"}:
            # Which of its programs it was is to be seen, and what came of the others.
            single = ({"seed": seed, "setup": task.setup} for seed in task.seeds)
            self._again += [self.task(**one) for one in single]
            return []
        return outcomes

    def run(self, tasks: Iterable[Task], until: float = float("inf")) -> Iterator[Outcome]:
        left = iter(tasks)
        more = True
        while more or self.flying or self._again:
            while (more or self._again) and len(self.flying) < self.jobs:
                in_time = time.monotonic() < until
                task = self._again.pop(0) if self._again else next(left, None) if in_time else None
                if task is None:
                    more = False
                else:
                    self.send(task)
            if self.flying:
                yield from self.outcomes(0.1)


def default_jobs() -> int:
    return min(12, os.cpu_count() or 1)
