"""The process that has imported what programs need, and forks a child for each task.

CUDA does not survive a fork, so nothing here may start it: where importing a library does, another
zygote takes over that leaves this import to the children.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import time
import traceback
import warnings
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path

from . import child
from .child import Outcome, Task
from .worlds import World

LOOK_S = 0.5
"""So often is looked for those that take too long."""


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


def main(
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
            child.main(task, folder)
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
