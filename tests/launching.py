"""Start the programs of `examples/distributed` as their page says, and read what they print."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAMS = Path(__file__).parents[1] / "examples" / "distributed"
# Open MPI asks for it where the tests' user is root.
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def run(*command: object, timeout: float = 100, **environment: str) -> tuple[int, str]:
    """Run a command; tell its exit status, and all that it printed."""
    done = subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **ENVIRONMENT, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    return done.returncode, done.stdout


def _mpirun() -> str | None:
    """Find the launcher: the one of this virtual environment's MPI, else one on the path."""
    own = [str(Path(sys.prefix) / "bin")] if sys.prefix != sys.base_prefix else []
    return shutil.which("mpirun", path=os.pathsep.join([*own, os.environ["PATH"]]))


def mpirun(*arguments: object, **environment: str) -> tuple[int, str]:
    """Run Python in two processes under MPI."""
    return run(_mpirun(), "-n", "2", sys.executable, *arguments, **environment)


def ask_mpi(what: str) -> tuple[int, str]:
    """Let the first of two processes under MPI print something."""
    asked = "from mpi4py import MPI; COMM = MPI.COMM_WORLD; import ctypes; "
    return mpirun("-c", f"{asked}COMM.rank == 0 and print({what}); COMM.Barrier()")


@functools.cache
def why_no_mpi() -> str | None:
    """Tell why two processes cannot be run under MPI here; None if they can."""
    if importlib.util.find_spec("mpi4py") is None:
        return "mpi4py is not installed"
    if _mpirun() is None:
        return "there is no mpirun"
    status, said = ask_mpi("'size', COMM.size")
    if status == 0 and said.split() == ["size", "2"]:
        return None
    return f"{_mpirun()} does not start two processes of mpi4py's MPI: {said[-300:]}"


def changed(folder: Path, program: str, line: str, instead: str) -> Path:
    """Copy the programs to a folder, with one line of one of them changed."""
    copied = Path(shutil.copytree(PROGRAMS, folder / "programs")) / program
    text = copied.read_text()
    assert text.count(line) == 1
    copied.write_text(text.replace(line, instead))
    return copied


def results(printed: str) -> list[tuple[str, str, str]]:
    """Find each result that was printed: what it is of, its value, and the right one."""
    found = re.findall(r"^(.+): (-?\d+), right: (\d+)$", printed, re.MULTILINE)
    assert found, printed
    return found
