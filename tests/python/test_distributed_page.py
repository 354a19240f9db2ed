"""The code of docs/distributed.md, run as it stands on the simulated device.

Its libraries are stand-ins that do what those do: read and write by the address when they are
called, or queue work on a stream. The program for Dask and the code for Ray run on the real ones,
in test_dask.py and test_ray.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import re
import textwrap
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cai_bridge import convert, to_cai, to_dlpack

PAGE = (Path(__file__).parents[2] / "docs" / "distributed.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
# Run elsewhere: by a word in each.
ELSEWHERE = {
    "register_serializer": "test_ray.py",
    "LocalCluster": "test_dask.py",
    "open_shared": "test_share.py",
}


def memory(view):
    """The memory, by its address alone: as MPI, UCX and files read and write it."""
    said = view.__cuda_array_interface__
    assert said["stream"] is None, "it is handed over before the host has waited"
    return (ctypes.c_float * 4).from_address(said["data"][0])


class Page:
    """A device, and two arrays that are still being written: `x` will be 7, and `y` is 1."""

    def __init__(self, cuda):
        self.cuda = cuda
        self.own, self.other = cuda.stream("x's own"), cuda.stream("y's own")
        self.x = cuda.array([0.0] * 4, speaks="cai3", name="x")
        self.y = cuda.array([0.0] * 4, speaks="cai3", name="y")
        self.own.fill(self.x, 7.0)
        self.other.fill(self.y, 1.0)
        self.names = {"x": self.x, "y": self.y, "asyncio": asyncio}
        self.names |= {"to_cai": to_cai, "to_dlpack": to_dlpack, "convert": convert}

    def run(self, word, **names):
        """Run the block that has that word; its `await` runs in a loop of its own."""
        (block,) = [one for one in BLOCKS if word in one]
        if "await " in block:
            block = "async def main():\n" + textwrap.indent(block, "    ") + "asyncio.run(main())\n"
        exec(compile(block, "docs/distributed.md", "exec"), {**self.names, **names})

    def values(self, array):
        """Read an array on its own stream, after all that was queued there."""
        stream = self.own if array is self.x else self.other
        read = stream.read(array)
        self.cuda.synchronize()
        return read.value


def doubles(stream, view):
    """Queue what NCCL would: here a sum over two processes with the same values."""
    bytes_of = (ctypes.c_float * 4).from_address(view.ptr)

    def double():
        for place in range(4):
            bytes_of[place] *= 2

    stream.launch(double, reads=[view], writes=[view], name="all-reduce")


def by_torch(page):
    current = page.cuda.stream("torch's")
    distributed = SimpleNamespace(all_reduce=lambda tensor: doubles(current, tensor))
    page.run(
        "torch.distributed",
        torch=SimpleNamespace(distributed=distributed),
        convert=lambda array, _library: to_cai(array, stream=current),
    )
    assert page.values(page.x) == [14.0] * 4


def by_nccl4py(page):
    def all_reduce(send, receive, _sum, stream):
        assert send is receive
        doubles(stream, receive)

    communicator = SimpleNamespace(allreduce=all_reduce)
    page.run("communicator.", communicator=communicator, s=page.cuda.stream("s"), SUM=0)
    assert page.values(page.x) == [14.0] * 4


def by_mpi(page):
    def all_reduce(send, receive):
        memory(receive)[:] = list(memory(send))

    page.run("comm.Allreduce", comm=SimpleNamespace(Allreduce=all_reduce))
    assert page.values(page.y) == [7.0] * 4


def by_mpi_send(page):
    sent = []

    def send(view, to):
        sent.append((list(memory(view)), to))

    page.run("comm.Send", comm=SimpleNamespace(rank=0, Send=send, Recv=None))
    assert sent == [([7.0] * 4, 1)]


def by_ucxx(page):
    wire = []

    async def send(view):
        wire.append(list(memory(view)))

    async def recv(view):
        memory(view)[:] = wire.pop()

    page.run("endpoint.send", endpoint=SimpleNamespace(send=send, recv=recv))
    assert page.values(page.y) == [7.0] * 4


def by_kvikio(page):
    files = {}

    @contextlib.contextmanager
    def opened(path, mode):
        assert mode == "w"
        yield SimpleNamespace(write=lambda view: files.update({path: list(memory(view))}))

    page.run("CuFile", kvikio=SimpleNamespace(CuFile=opened), path="x.bin")
    assert files == {"x.bin": [7.0] * 4}


def by_nixl(page):
    seen = []

    def register_memory(found, kind):
        assert kind == "VRAM"
        return found

    def transfer(found):
        ((ptr, nbytes, gpu, _),) = found
        assert (nbytes, gpu) == (16, 0)
        seen.append(list((ctypes.c_float * 4).from_address(ptr)))

    agent = SimpleNamespace(register_memory=register_memory, deregister_memory=lambda _: None)
    page.run("register_memory", agent=agent, transfer=transfer)
    assert seen == [[7.0] * 4]


def by_dask(page):
    def submit(task, argument):
        value = task(getattr(argument, "value", argument))
        return SimpleNamespace(value=value, result=lambda: value)

    found = []

    def converted(view, library):
        assert library == "torch"
        found.append(np.asarray(convert(view, "numpy")))
        return found[-1]

    names = {"client": SimpleNamespace(submit=submit), "path": "x.npy"}
    cupy = SimpleNamespace(load=lambda _: page.x)
    page.run("client.submit(mean", convert=converted, cupy=cupy, **names)
    assert found[-1].mean() == 7.0


RUNS = {
    "torch.distributed": by_torch,
    "communicator.": by_nccl4py,
    "comm.Allreduce": by_mpi,
    "comm.Send": by_mpi_send,
    "endpoint.send": by_ucxx,
    "CuFile": by_kvikio,
    "register_memory": by_nixl,
    "client.submit(mean": by_dask,
}


@pytest.mark.parametrize("word", RUNS)
def test_the_code_of_the_page_is_right(word, cuda):
    page = Page(cuda)
    RUNS[word](page)
    cuda.synchronize()


WAITS = [word for word in RUNS if any(word in one and "wait()" in one for one in BLOCKS)]


@pytest.mark.unchecked
@pytest.mark.parametrize("word", WAITS)
def test_without_a_wait_it_is_wrong(word, cuda, monkeypatch):
    without = [re.sub(r"(?m)^\s+\w+\.wait\(\)\n|^\w+\.wait\(\)\n", "", one) for one in BLOCKS]
    assert without != BLOCKS
    monkeypatch.setitem(globals(), "BLOCKS", without)
    with pytest.raises(AssertionError):
        RUNS[word](Page(cuda))


def test_each_block_is_run_and_each_librarys_way_has_at_most_15_lines():
    for block in BLOCKS:
        elsewhere = [word for word in ELSEWHERE if word in block]
        assert elsewhere or sum(word in block for word in RUNS) == 1, block
        if "LocalCluster" not in block:
            assert len(block.splitlines()) <= 15, block
    assert len(BLOCKS) == len(RUNS) + len(ELSEWHERE)


@pytest.mark.parametrize("door", [to_cai, to_dlpack])
@pytest.mark.parametrize("with_torch", [False, True])
def test_a_queue_of_another_process_refuses_a_view_and_names_the_ways(with_torch, door, cuda):
    if with_torch:
        pytest.importorskip("torch.multiprocessing")
    said = r"convert\(x, 'numpy'\) .* import cai_bridge.dask lets"
    with pytest.raises(TypeError, match=said):
        ForkingPickler.dumps(door(cuda.array([1.0])))
