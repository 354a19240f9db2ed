"""The manual's program for Warp, as it stands, with stand-ins for PyTorch and Warp.

The stand-in for Warp has an array around a pointer, a stream for each GPU, and kernels that it
queues on that stream, as release 1.19 has. PyTorch's tensors are arrays with the exchange API.
"""

from __future__ import annotations

import ctypes
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from stand_in import no_libraries

from cai_bridge._libraries import _warp
from cai_bridge.testing import SimulatedCuda, SimulatedStream
from cai_bridge.testing._array import SimulatedArray
from cai_bridge.testing._region import Region

__all__ = ["no_libraries"]

PROGRAM = Path(__file__).parents[3] / "docs" / "programs" / "torch_to_warp.py"


class array:
    """An array around a pointer, whose deleter is called at its end; or an annotation."""

    deleter: Any = None

    def __init__(self, *, dtype: Any, ptr: int = 0, **about: Any) -> None:
        self.ptr, self.dtype, self.shape = ptr, dtype, about.get("shape", ())
        self.deleter = about.get("deleter")

    def __del__(self) -> None:
        if self.deleter is not None:
            self.deleter(self.ptr, 0)

    @property
    def region(self) -> Region:
        return Region(self.ptr, self.shape, (4,), "float32", 4)


array.__module__ = "warp._src.types"


def warp_on(stream: SimulatedStream) -> Any:
    """The module, working on that stream."""
    warp: Any = ModuleType("warp")
    index = SimpleNamespace(value=0)

    def launch(kernel: Callable[..., None], *, dim: int, inputs: list[array]) -> None:
        items = [(ctypes.c_float * one.shape[0]).from_address(one.ptr) for one in inputs]

        def run() -> None:
            for index.value in range(dim):
                kernel(*items)

        regions = [one.region for one in inputs]
        stream.launch(run, reads=regions, writes=regions, name="kernel")

    warp.array, warp.float32, warp.launch = array, type("float32", (), {}), launch
    warp.kernel, warp.tid = lambda function: function, lambda: index.value
    warp.get_stream = lambda _device: stream
    return warp


def torch_on(cuda: SimulatedCuda, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, whose tensors are the device's arrays; `tolist` waits for the current stream."""
    torch: Any = ModuleType("torch")
    current: list[SimulatedStream] = []

    class Working:
        def __init__(self, stream: SimulatedStream) -> None:
            self.stream, self.entered = stream, cuda.current_stream(stream)

        def __enter__(self) -> None:
            current.append(self.stream)
            self.entered.__enter__()

        def __exit__(self, *exception: Any) -> None:
            self.entered.__exit__(*exception)
            current.pop()

    def full(shape: tuple[int, ...], value: float, device: str) -> Any:
        assert device == "cuda"
        x = cuda.array(shape=shape, speaks="exchange", name="x")
        current[-1].fill(x, value)
        return x

    def tolist(x: Any) -> Any:
        current[-1].synchronize()
        return values(x)

    values = SimulatedArray.tolist
    monkeypatch.setattr(SimulatedArray, "tolist", tolist)
    torch.cuda = SimpleNamespace(Stream=lambda: cuda.stream("torch's"), stream=Working)
    torch.full = full
    return torch


@pytest.fixture
def program(
    cuda: SimulatedCuda, monkeypatch: pytest.MonkeyPatch, no_libraries: None
) -> Iterator[Any]:
    """What the page shows, over the stand-ins."""

    def forget() -> None:
        for name in ("types", "converter"):
            _warp.WARP.__dict__.pop(name, None)

    monkeypatch.setitem(sys.modules, "warp", warp_on(cuda.stream("Warp's")))
    monkeypatch.setitem(sys.modules, "torch", torch_on(cuda, monkeypatch))
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    forget()
    yield runpy.run_path(str(PROGRAM))["on_gpu"]
    forget()


def test_the_program_prints_what_the_page_shows(
    program: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    program()
    assert capsys.readouterr().out == PROGRAM.with_suffix(".gpu.txt").read_text("utf-8")


@pytest.mark.unchecked
@pytest.mark.parametrize("nth", [1, 2])
def test_both_waits_of_the_program_are_needed(
    program: Any, cuda: SimulatedCuda, nth: int, capsys: pytest.CaptureFixture[str]
) -> None:
    cuda.suppress("cuStreamWaitEvent", nth=nth)
    program()
    cuda.synchronize()
    assert cuda.reports
    cuda.clear_reports()
