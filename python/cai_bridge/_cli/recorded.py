"""Runs of a program in which its calls of the driver are recorded, and the check of the records."""

from __future__ import annotations

import ctypes
import json
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from . import perturbed
from .exits import UsageError
from .perturbed import LIBRARY, Program, Run


@cache
def _library() -> ctypes.CDLL:
    """Load the library that is preloaded into programs: the check of their records is in it."""
    if not LIBRARY.exists():
        raise UsageError(f"{LIBRARY}: got no file; allowed: the library, built by `make perturb`")
    found = ctypes.CDLL(str(LIBRARY))
    found.cai_bridge_races.restype = ctypes.c_void_p
    found.cai_bridge_races.argtypes = [
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_uint,
        ctypes.POINTER(ctypes.c_size_t),
    ]
    found.cai_bridge_races_free.restype = None
    found.cai_bridge_races_free.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return found


def check(record: bytes, second: bytes | None = None, *, every: bool = False) -> dict[str, Any]:
    """Check a record.

    Parameters
    ----------
    record : bytes
        What the library wrote down of a process.
    second : bytes or None
        The record of the same process in another run, in which bytes were compared: `record` then
        tells the order, and this one what the launches touch.
    every : bool
        Whether each pair of operations is found; otherwise at least one of each two lines.

    Returns
    -------
    dict
        What perturb/src/check/said.rs says.

    Raises
    ------
    UsageError
        It is no record of this build's.
    """
    library, size = _library(), ctypes.c_size_t()
    text = library.cai_bridge_races(
        record, len(record), second, len(second or b""), every, ctypes.byref(size)
    )
    try:
        found: dict[str, Any] = json.loads(ctypes.string_at(text, size.value))
    finally:
        library.cai_bridge_races_free(text, size)
    if "problem" in found:
        raise UsageError(f"a record could not be read: {found['problem']}")
    return found


def records(folder: Path) -> list[Path]:
    """List a run's records, in the order in which its processes began."""
    return sorted(folder.glob("*.record"), key=lambda path: int(path.stem.partition("-")[0]))


def together(first: Path, second: Path, *, every: bool = False) -> list[dict[str, Any]]:
    """Check the records of one run with what another run tells of its launches.

    The second run waits for each operation, so its program may find out earlier that work is done.
    Of programs with other processes in each run nothing is found.
    """
    ones, others = records(first), records(second)
    if len(ones) != len(others):
        return []
    return [
        check(one.read_bytes(), other.read_bytes(), every=every)
        for one, other in zip(ones, others, strict=True)
    ]


def run(
    program: Program,
    *,
    compared: Sequence[str] | None = None,
    every: bool = False,
    host: bool = False,
    keep: Path | None = None,
) -> Run:
    """Run the program once, recorded; `looked` has what was found in each of its processes.

    Parameters
    ----------
    program : Program
        What to run.
    compared : sequence of str or None
        The launches whose bytes are compared, as the check of an earlier run says them: the host
        then waits for each operation. None: nothing is compared, and nobody waits.
    every : bool
        Whether each pair of operations is found.
    host : bool
        Whether the host's own accesses to page-locked memory are recorded, if nothing is compared.
    keep : Path or None
        A folder that gets the records.
    """

    def look(folder: Path) -> list[Any]:
        found = []
        for path in records(folder):
            found.append(check(path.read_bytes(), every=every))
            if keep is not None:
                shutil.move(path, keep / path.name)
        return found

    if compared is None:
        return perturbed.run_and_look(program, "record", {"host": 1} if host else {}, look)
    with tempfile.NamedTemporaryFile("w", suffix=".compared") as file:
        file.writelines(f"{one}\n" for one in compared)
        file.flush()
        return perturbed.run_and_look(program, "serial", {"compared": file.name}, look)
