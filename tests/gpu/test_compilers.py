"""The programs of the pages on compiled programs, and the line for each of the other compilers."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cai_bridge import convert, to_cai, to_dlpack

from . import streams
from .converting import LATE, LATE_MS, Torch
from .kernels import BY, RUNS, triton_scale
from .streams import WORDS, blocks_for

FOLDER = Path(__file__).parents[2] / "docs" / "programs" / "compiled"


@pytest.mark.parametrize("program", ["torch", "graph", "jax"])
def test_a_program_of_a_page_prints_what_the_page_shows(program, driver):
    pytest.importorskip("cupy")
    pytest.importorskip("jax" if program == "jax" else "torch")
    done = subprocess.run(
        [sys.executable, FOLDER / f"{program}_cupy.py"],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (FOLDER / f"{program}.txt").read_text("utf-8")


# A line for each of the other compilers (docs/compiled.md).


def test_numba_launches_on_a_stream_of_its_own(place):
    one = Torch(place)
    cuda = pytest.importorskip("numba.cuda")
    _, kernel = streams.numba_kernels()
    own, out = cuda.stream(), cuda.device_array(WORDS, dtype=np.float32)
    values = streams.fresh_values()
    for _ in range(RUNS):
        value = float(next(values))
        tensor = one.written(value)
        with one.working():
            with to_cai(tensor, stream=own) as view:
                kernel[(*blocks_for(WORDS), own)](view, out)
            tensor.fill_(LATE)
        own.synchronize()
        assert (out.copy_to_host() == value).all()


def test_warp_takes_part_in_a_capture(place):
    one = Torch(place)
    warp, torch = pytest.importorskip("warp"), one.torch
    warp.init()
    double = warp.kernel(_warp_double)
    x = torch.ones(WORDS, device="cuda")
    own = warp.Stream("cuda:0")

    def step() -> None:
        y = convert(x, "warp", stream=own)
        with warp.ScopedStream(own, sync_enter=False):
            warp.launch(double, dim=WORDS, inputs=[y])
        del y
        x.add_(1.0)

    with one.working():
        step()
        one.stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=one.stream):
            step()
    for value in range(1, 11):
        with one.working():
            x.fill_(float(value))
            graph.replay()
        one.stream.synchronize()
        assert (x == 2.0 * value + 1.0).all()


with contextlib.suppress(ImportError):
    import warp as wp

    def _warp_double(x: wp.array(dtype=wp.float32)):  # type: ignore[no-untyped-def, valid-type]
        i = wp.tid()
        x[i] = 2.0 * x[i]


def test_triton_takes_a_tensor_over_another_librarys_array(place, cupy):
    """Its launcher takes what has `data_ptr()`, on PyTorch's current stream."""
    torch, triton = Torch(place).torch, pytest.importorskip("triton")
    kernel, own = triton.jit(triton_scale), cupy.cuda.Stream(non_blocking=True)
    x, y = cupy.zeros(WORDS, np.float32), torch.zeros(WORDS, device="cuda")
    values = streams.fresh_values()
    for _ in range(RUNS):
        value = float(next(values))
        streams.cupy_writes_late(x, value, own, LATE_MS)
        with own:
            taken = convert(x, "torch")
        kernel[(triton.cdiv(WORDS, 128),)](taken, y, BY, WORDS, BLOCK=128)
        with own:
            del taken
            x.fill(LATE)
        assert (y == BY * value).all()


def test_cute_takes_a_view_that_is_ready_on_the_kernels_stream(place, cupy):
    """CuTe DSL's ``from_dlpack`` asks for a capsule with stream -1; CuPy stands for its kernel."""
    one, own = Torch(place), cupy.cuda.Stream(non_blocking=True)
    out = cupy.zeros(WORDS, np.float32)
    values = streams.fresh_values()
    for _ in range(RUNS):
        value = float(next(values))
        tensor = one.written(value)
        with one.working():
            with to_dlpack(tensor, stream=own) as view:
                capsule = view.__dlpack__(stream=-1)
                with own:
                    place.driver.spin(own.ptr, LATE_MS)
                    memory = cupy.cuda.UnownedMemory(view.ptr, view.nbytes, capsule, 0)
                    out[...] = cupy.ndarray(WORDS, np.float32, cupy.cuda.MemoryPointer(memory, 0))
                del memory, capsule
            tensor.fill_(LATE)
        assert (cupy.asnumpy(out, stream=own) == value).all()
