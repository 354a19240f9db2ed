"""The programs of `examples/distributed` on two GPUs, as their page starts them.

Each checks its values itself, and ends with another exit status than 0 if one is wrong.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys

import pytest

import launching
from launching import PROGRAMS

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
# Multicast over NVLink is not to be had on every machine with two GPUs.
NCCL = {"NCCL_NVLS_ENABLE": "0"}
WAIT = "        send.wait()\n"


@pytest.fixture(autouse=True)
def two(driver):
    if driver.get("cuDeviceGetCount", kind=ctypes.c_int) < 2:
        pytest.skip("one GPU")


@pytest.fixture
def mpi():
    if reason := launching.why_no_mpi():
        pytest.skip(reason)


def all_right(status: int, printed: str) -> None:
    assert status == 0, printed
    seen = launching.results(printed)
    assert all("simulated" not in what for what, _, _ in seen), "on the GPUs"
    assert [value for _, value, _ in seen] == [right for _, _, right in seen]


def test_torch_distributed_sums_arrays_of_all_libraries(torch):
    program = PROGRAMS / "with_torch_distributed.py"
    all_right(*launching.run(sys.executable, *TORCHRUN, program, **NCCL))


def test_cupyx_and_nccl4py_sum_arrays_of_all_libraries(mpi, cupy):
    all_right(*launching.mpirun("-m", "mpi4py", PROGRAMS / "with_nccl.py", **NCCL))


@pytest.mark.parametrize("way", ["host", "device"])
def test_mpi4py_moves_arrays_of_all_libraries(mpi, cupy, way):
    if way == "device" and not reaches_gpus():
        pytest.skip("this MPI does not take GPU memory")
    all_right(*launching.mpirun("-m", "mpi4py", PROGRAMS / "with_mpi4py.py", way))


def test_mpi_reads_too_early_without_the_wait(mpi, cupy, tmp_path):
    if not reaches_gpus():
        pytest.skip("this MPI does not take GPU memory")
    program = launching.changed(tmp_path, "with_mpi4py.py", WAIT, "")
    status, printed = launching.mpirun("-m", "mpi4py", program, "device")
    assert status != 0
    # The first calls are slow enough to be right by chance.
    assert [what for what, value, right in launching.results(printed) if value != right], printed


def test_ucxx_passes_arrays_of_all_libraries(torch, cupy):
    if importlib.util.find_spec("ucxx") is None:
        pytest.skip("ucxx is not installed")
    all_right(*launching.run(sys.executable, *TORCHRUN, PROGRAMS / "with_ucxx.py"))


def reaches_gpus() -> bool:
    """Ask MPI in processes of its own, since it starts where it is imported."""
    status, said = launching.ask_mpi("ctypes.CDLL(MPI.__file__).MPIX_Query_cuda_support()")
    return (status, said.strip()) == (0, "1")
