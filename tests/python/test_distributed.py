"""The programs of `examples/distributed` run in two processes under MPI, on simulated devices.

Each checks its values itself, and ends with another exit status than 0 if one is wrong.
"""

import re

import pytest

import launching

# Dask starts processes of its own: test_dask.py.
PROGRAMS = sorted({*launching.PROGRAMS.glob("with_*.py")} - {launching.PROGRAMS / "with_dask.py"})
LIBRARIES = {"torch", "jax", "cupy", "numba"}
WAITS = ["        send.wait()\n", "        receive.wait()\n"]
ALL_REDUCE = "        with to_cai(x, stream=stream) as view:\n"


@pytest.fixture
def mpi():
    if reason := launching.why_no_mpi():
        pytest.skip(reason)


def under_mpi(*command):
    return launching.mpirun("-W", "error", "-m", "mpi4py", *command)


@pytest.mark.parametrize(
    "command",
    [*([program] for program in PROGRAMS), [launching.PROGRAMS / "with_mpi4py.py", "host"]],
    ids=lambda command: "-".join([command[0].stem, *command[1:]]),
)
def test_the_program_is_right_for_arrays_of_all_libraries(mpi, command):
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
        *(("with_mpi4py.py", wait, "") for wait in WAITS),
        *(("with_ucxx.py", 2 * "    " + wait, "") for wait in WAITS),
        ("places.py", ALL_REDUCE, ALL_REDUCE.replace("stream=stream", "stream=-1")),
        ("with_mpi4py.py", "    return int(COMM", "    wrong += COMM.rank\n    return int(COMM"),
    ],
)
def test_the_program_fails_without_the_wait_or_with_a_wrong_value_in_one_process(
    mpi, tmp_path, program, line, instead
):
    changed = launching.changed(tmp_path, program, line, instead)
    run = "with_nccl.py" if program == "places.py" else program
    status, printed = under_mpi(changed.with_name(run))
    assert status != 0, printed


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_is_short(program):
    assert len(program.read_text().splitlines()) < 80
