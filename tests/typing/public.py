"""Every public name, used as the README does: `make lint` checks it strictly. It never runs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, assert_type

import cai_bridge
from cai_bridge import (
    CaiView,
    DLPackView,
    DriverError,
    HostSyncWarning,
    Library,
    SupportsCudaArrayInterface,
    SupportsCudaStream,
    SupportsDLPack,
    adapt,
    convert,
    from_cai,
    get_include,
    register,
    to_cai,
    to_dlpack,
    trace,
)
from cai_bridge.testing import SimulatedArray, SimulatedStream, simulated_cuda


class Array:
    """An array of somebody's."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {}


class Mine(Library):
    """A library, as `register` takes one."""

    name = "mine"
    arrays = (Array, "mine:Other")

    def current_stream(self, device: int) -> int:
        return 1

    def make(self, view: CaiView | DLPackView, stream: Any) -> Array:
        return Array()


@adapt(to="mine")
def scaled(x: Array, factor: float = 2.0) -> Array:
    return x


class Model:
    """A class with a function for one library's arrays."""

    @adapt(to=Array, stream=1, readonly=True)
    def forward(self, x: Array) -> Array:
        return x


def converted(x: Array) -> None:
    assert_type(convert(x, Array), Array)
    assert_type(convert(x, "cai"), CaiView)
    assert_type(convert(x, "dlpack"), DLPackView)
    assert_type(scaled(x), Array)
    assert_type(scaled(x, factor=3.0), Array)
    assert_type(Model().forward(x), Array)
    assert_type(adapt(scaled, Array)(x, 1.0), Array)


def viewed(x: SupportsDLPack, y: SupportsCudaArrayInterface, stream: SupportsCudaStream) -> None:
    with to_cai(x, stream=stream) as view:
        assert_type(view, CaiView)
        assert_type(view.shape, tuple[int, ...])
        assert_type(view.ptr, int)
        assert_type(view.stream, int | None)
    assert_type(from_cai(y, stream=1, device="cuda:0"), DLPackView)
    assert_type(to_dlpack(y, readonly=True).device, tuple[int, int])


def registered(path: Path) -> None:
    register(Mine())
    assert_type(get_include(), str)
    assert_type(cai_bridge.__version__, str)
    with trace(path):
        pass
    try:
        to_cai(Array())
    except DriverError as error:
        logging.info("%s %s", error.call, error.code)
    assert issubclass(HostSyncWarning, RuntimeWarning)


def simulated() -> None:
    with simulated_cuda() as cuda:
        stream = cuda.stream("mine")
        x = cuda.array([1.0], speaks="exchange")
        assert_type(stream, SimulatedStream)
        assert_type(x, SimulatedArray)
        with to_cai(x, stream=stream) as view:
            stream.read(view)
