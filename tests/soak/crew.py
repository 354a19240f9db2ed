"""Programs in flight: a zygote, its tasks, and what comes back."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from cai_bridge._environment import QUEUES

from . import zygote
from .child import Outcome, Task
from .worlds import MEMORY, World

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
START_S = 300.0


class Crew:
    """Runs tasks, as many at once as there are `jobs`.

    Parameters
    ----------
    world : World
        Where programs run.
    jobs : int
        How many at once.
    limit_s : float
        How long one may take.
    """

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
        self._process = context.Process(target=zygote.main, args=arguments, daemon=False)
        self._process.start()
        theirs.close()
        self.ready: zygote.Ready = self._received(START_S)

    def _received(self, within_s: float) -> zygote.Ready:
        if not self._connection.poll(within_s):
            raise RuntimeError(f"the libraries were not imported within {within_s:.0f} s")
        try:
            ready: zygote.Ready = self._connection.recv()
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

    # --- tasks ------------------------------------------------------------------------------------

    def task(self, **wanted: object) -> Task:
        self._numbers += 1
        wanted = {"limit_s": self.limit_s, **wanted}
        return Task(self._numbers, self.world, **wanted)  # type: ignore[arg-type]

    def send(self, task: Task) -> None:
        self._connection.send(task)
        self.flying[task.number] = task

    def outcomes(self, within_s: float) -> list[Outcome]:
        """Wait for what came of some task."""
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
        """Run tasks as they come; none is begun after a moment of `time.monotonic`."""
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
