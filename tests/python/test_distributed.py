"""The programs of `examples/distributed` run in two processes under MPI, on simulated devices.

Each checks its values itself, and ends with another exit status than 0 if one is wrong.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest

import launching
from cai_bridge import to_cai
from cai_bridge.testing import SimulatedCuda

PROGRAMS = sorted(launching.PROGRAMS.glob("with_*.py"))
LIBRARIES = {"torch", "jax", "cupy", "numba"}
WAIT = "        ready.synchronize()\n"
ALL_REDUCE = "        with to_cai(x, stream=stream) as view:\n"


@pytest.fixture
def mpi() -> None:
    if reason := launching.why_no_mpi():
        pytest.skip(reason)


def under_mpi(*command: Path | str) -> tuple[int, str]:
    return launching.mpirun("-W", "error", "-m", "mpi4py", *command)


@pytest.mark.parametrize(
    "command",
    [*([program] for program in PROGRAMS), [launching.PROGRAMS / "with_mpi4py.py", "host"]],
    ids=lambda command: "-".join([command[0].stem, *command[1:]]),
)
def test_the_program_is_right_for_arrays_of_all_libraries(
    mpi: None, command: list[Path | str]
) -> None:
    status, printed = under_mpi(*command)
    assert status == 0, printed
    seen = launching.results(printed)
    assert all(value == right for _, value, right in seen), printed
    assert {word.strip(",") for what, _, _ in seen for word in what.split()} >= LIBRARIES
    # Neither NCCL nor UCX was there, so neither is named.
    assert all(re.search(" by MPI$|, by_(host|device)$", what) for what, _, _ in seen), printed


@pytest.mark.parametrize(
    ("program", "line", "instead"),
    [
        ("with_mpi4py.py", WAIT, ""),
        ("with_mpi4py.py", "to_cai(x, stream=ready) as send", "to_cai(x, stream=-1) as send"),
        ("with_mpi4py.py", "to_cai(y, stream=ready) as", "to_cai(y, stream=-1) as"),
        ("with_ucxx.py", "    " + WAIT, ""),
        ("places.py", ALL_REDUCE, ALL_REDUCE.replace("stream=stream", "stream=-1")),
        ("with_mpi4py.py", "    return int(COMM", "    wrong += COMM.rank\n    return int(COMM"),
    ],
)
def test_the_program_fails_without_the_wait_or_with_a_wrong_value_in_one_process(
    mpi: None, tmp_path: Path, program: str, line: str, instead: str
) -> None:
    changed = launching.changed(tmp_path, program, line, instead)
    run = "with_nccl.py" if program == "places.py" else program
    status, printed = under_mpi(changed.with_name(run))
    assert status != 0, printed


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_is_short(program: Path) -> None:
    assert len(program.read_text().splitlines()) < 80


def test_the_host_waits_for_what_is_queued_on_the_array_and_for_nothing_else(
    cuda: SimulatedCuda,
) -> None:
    producer, busy, ready = cuda.stream("producer"), cuda.stream("busy"), cuda.stream("ready")
    x = cuda.array([0.0] * 4, speaks="cai3", name="x")
    other = cuda.array([0.0] * 4, speaks="cai3", name="other")
    producer.fill(x, 7.0)
    busy.fill(other, 7.0)
    with to_cai(x, stream=ready) as view:
        ready.synchronize()
        # As MPI reads it: by the address alone.
        seen = [list((ctypes.c_float * 4).from_address(one.ptr)) for one in (view, other)]
    assert seen == [[7.0] * 4, [0.0] * 4]
    cuda.synchronize()
