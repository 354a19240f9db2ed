"""The programs of the pages on compiled programs, and the line for each of the other compilers."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from cai_bridge import convert

from .converting import Torch
from .streams import WORDS

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
