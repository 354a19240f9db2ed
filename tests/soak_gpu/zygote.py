"""The process that has imported the libraries, and forks one child for each program.

CUDA does not survive a fork, so nothing here may start it: where importing a library does, another
zygote takes over that leaves this import to the children.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import pickle
import signal
import struct
import time
import traceback
import warnings
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from . import child
from .child import Outcome, Task
from .step import LIBRARIES

NOT_INITIALIZED = 3
GRACE_S = 2.0


@dataclass
class Ready:
    """What a zygote says first: the libraries, why others are missing, and what started CUDA."""

    there: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    started_by: str = ""


@dataclass
class Child:
    task: Task
    pid: int
    deadline: float


def main(
    connection: Connection, folder: Path, environment: dict[str, str], later: list[str]
) -> None:
    """Import, tell, and then fork a child for every task that comes, until there come no more."""
    os.environ.update(environment)
    ready = stand_ins() if environment.get("SOAK_STAND_INS") else imported(later)
    connection.send(ready)
    if not ready.started_by:
        warnings.simplefilter("ignore")
        serve(connection, folder)


def stand_ins() -> Ready:
    """Import what stands in for the libraries, so that no child has to."""
    for name in ("dry", "simulated"):
        importlib.import_module(f"{__package__}.libraries.{name}")
    return Ready(list(LIBRARIES))


def imported(later: list[str]) -> Ready:
    """Import the libraries, and see whether one of them starts CUDA."""
    from .libraries import load

    ready = Ready()
    for name in LIBRARIES:
        if name in later:
            ready.there.append(name)
            continue
        try:
            load(name)
        except Exception as error:
            ready.missing[name] = f"{type(error).__name__}: {error}"
            continue
        ready.there.append(name)
        ready.versions[name] = str(getattr(importlib.import_module(name), "__version__", "?"))
        if cuda_is_started():
            ready.started_by = name
            break
    return ready


def cuda_is_started() -> bool:
    """Whether anybody has initialised the driver in this process."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return int(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))) != NOT_INITIALIZED


def serve(connection: Connection, folder: Path) -> None:
    children: list[Child] = []
    open_ = True
    try:
        while open_ or children:
            if open_ and connection.poll(0.01):
                try:
                    task = connection.recv()
                except EOFError:
                    break
                if task is None:
                    open_ = False
                else:
                    children.append(started(task, connection, folder))
            elif not open_:
                time.sleep(0.01)
            for one in list(children):
                outcome = ended(one, folder)
                if outcome is not None:
                    children.remove(one)
                    connection.send(outcome)
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
    return Child(task, pid, time.monotonic() + task.limit_s)


def ended(one: Child, folder: Path) -> Outcome | None:
    """Tell what came of a child that is over, or that took too long."""
    pid, status = os.waitpid(one.pid, os.WNOHANG)
    number = one.task.number
    if pid == 0 and time.monotonic() < one.deadline:
        return None
    if pid == 0:
        os.kill(one.pid, signal.SIGKILL)
        os.waitpid(one.pid, 0)
        outcome = gone(one, folder, "hung", f"not over after {one.task.limit_s:g} s")
    elif (folder / f"{number}.outcome").exists():
        outcome = pickle.loads((folder / f"{number}.outcome").read_bytes())
    else:
        code = os.waitstatus_to_exitcode(status)
        name = signal.Signals(-code).name if code < 0 else f"code {code}"
        outcome = gone(one, folder, "died", f"ended by {name}")
    for path in folder.glob(f"{number}.*"):
        path.unlink(missing_ok=True)
    return outcome


def gone(one: Child, folder: Path, what: str, why: str) -> Outcome:
    """Tell how far a child came that told nothing."""
    try:
        written = (folder / f"{one.task.number}.progress").read_bytes()
    except OSError:
        written = b""
    steps = [step for (step,) in struct.iter_unpack("q", written)]
    at = max(steps, default=None)
    where = f"the threads were at the steps {steps}" if steps else "no step was begun"
    return Outcome(one.task.number, what, f"{why}; {where}\n{said(one, folder)}", at=at)


def said(one: Child, folder: Path, most: int = 6000) -> str:
    """Give the end of what a child has printed, the traceback of a signal among it."""
    try:
        return (folder / f"{one.task.number}.log").read_text(errors="replace")[-most:]
    except OSError:
        return ""
