"""Every public name of the package and of `testing`, and what adapters use of `conformance`.

`make lint` checks it with mypy, strictly and without any expression of type `Any`, but for three
attributes whose type depends on the array. It never runs.
"""

from __future__ import annotations

import logging
from pathlib import Path
from types import ModuleType
from typing import Literal, assert_type

import cai_bridge
from cai_bridge import (
    CaiView,
    DLPackView,
    DriverError,
    HostSyncWarning,
    Library,
    Share,
    SupportsCudaArrayInterface,
    SupportsCudaStream,
    SupportsDLPack,
    adapt,
    cancel,
    convert,
    from_cai,
    get_include,
    open_shared,
    register,
    share,
    shares,
    to_cai,
    to_dlpack,
    trace,
)
from cai_bridge.conformance import (
    CaiArray,
    ConformanceError,
    ConsumerAdapter,
    DLPackArray,
    Lab,
    Late,
    NotApplicableError,
    ProducerAdapter,
    Requirement,
    Verdict,
    requirements,
)
from cai_bridge.testing import (
    CallRecord,
    Consumer,
    Description,
    Difference,
    NotEquivalentError,
    Pending,
    RaceError,
    Report,
    Said,
    Side,
    SimulatedArray,
    SimulatedCuda,
    SimulatedDtype,
    SimulatedError,
    SimulatedEvent,
    SimulatedGraph,
    SimulatedStream,
    assert_equivalent,
    check_consumer,
    check_producer,
    checkpoint,
    describe,
    simulated_cuda,
)


class Array:
    """An array of a class of one's own."""

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {}


class Mine(Library):
    """A library, as `register` takes one."""

    name = "mine"
    arrays = (Array, "mine:Other")

    def current_stream(self, device: int) -> int:
        return 1

    def make(self, view: CaiView | DLPackView, stream: object) -> Array:
        return Array()


@adapt(to="mine")
def scaled(x: Array, factor: float = 2.0) -> Array:
    return x


class Model:
    """A class with a function for one library's arrays."""

    @adapt(to=Array, stream=1, readonly=True)
    def forward(self, x: Array) -> Array:
        return x


@adapt
def summed(view: CaiView) -> float:
    return 0.0


def converted(x: Array, cupy: ModuleType, batch: dict[str, Array]) -> None:
    assert_type(convert(x, Array), Array)
    assert_type(convert(x, "cai"), CaiView)
    assert_type(convert(x, "dlpack"), DLPackView)
    # Of a module or a name a checker knows no type: say it.
    y: Array = convert(x, cupy)
    z: dict[str, Array] = convert(batch, "torch", copy=True)
    assert_type(scaled(x), Array)
    assert_type(scaled(z["x"], factor=3.0), Array)
    assert_type(summed(CaiView.__new__(CaiView)), float)
    assert_type(Model().forward(y), Array)
    assert_type(adapt(scaled, Array)(x, 1.0), Array)
    # Arrays of any library go where the function takes its own.
    assert_type(summed(x), float)


def viewed(x: SupportsDLPack, y: SupportsCudaArrayInterface, stream: SupportsCudaStream) -> None:
    with to_cai(x, stream=stream) as view:
        assert_type(view, CaiView)
        assert_type(view.shape, tuple[int, ...])
        assert_type(view.strides, tuple[int, ...])
        assert_type(view.typestr, str)
        assert_type(view.ptr, int)
        assert_type(view.nbytes, int)
        assert_type(view.readonly, bool)
        assert_type(view.stream, int | None)
        assert_type(view.wait(), None)
        assert_type(view.release(stream=stream), None)
    assert_type(from_cai(y, stream=1, device="cuda:0"), DLPackView)
    said: dict[str, object] = {"shape": (1,), "typestr": "<f4", "data": (64, False), "version": 3}
    assert_type(from_cai(said, owner=x), DLPackView)
    back = to_dlpack(y, readonly=True)
    assert_type(back.device, tuple[int, int])
    assert_type(back.__dlpack_device__(), tuple[int, int])
    # The array decides of which type these are.
    owner: SupportsCudaArrayInterface = back.owner
    name = str(back.dtype)  # type: ignore[misc, unused-ignore]
    print(owner, name)


def shared(stream: SupportsCudaStream) -> None:
    handle = share(Array(), receivers=2, stream=stream, readonly=True, copy=True)
    assert_type(handle, bytes)
    assert_type(open_shared(handle), DLPackView)
    kept: list[Share] = shares()
    assert_type([one.waiting for one in kept], list[int])
    assert_type(cancel(handle), None)


def registered(path: Path) -> None:
    assert_type(register(Mine()), None)
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
        assert_type(cuda, SimulatedCuda)
        torchs, cupys = cuda.stream("torch's"), cuda.stream("CuPy's")
        x = cuda.array([0.0] * 4, speaks="exchange", name="x")
        assert_type(torchs, SimulatedStream)
        assert_type(x, SimulatedArray)
        assert_type(x.dtype, SimulatedDtype)
        with cuda.current_stream(torchs), torchs:
            torchs.fill(x, 7.0)
            with to_cai(x, stream=cupys) as view:
                seen = cupys.read(view)
        event = torchs.record()
        assert_type(event, SimulatedEvent)
        cupys.wait(event)
        with cuda.capture(torchs) as graph:
            torchs.launch(reads=[x])
        assert_type(graph, SimulatedGraph)
        graph.launch(torchs)
        consumer = cuda.consumer("cai-waits", cupys)
        assert_type(consumer, Consumer)
        assert_type(consumer.read(view), Pending)
        cuda.synchronize()
        assert_type(cuda.calls, list[CallRecord])
        assert_type(cuda.reports, list[Report])
        assert seen.value == [7.0] * 4  # type: ignore[misc, unused-ignore]


def refused() -> None:
    try:
        simulated()
    except RaceError as error:
        for report in error.reports:
            assert_type(report.first, Side | None)
            assert_type(report.second.operation, str)
    except SimulatedError as error:
        print(error)


def described(x: Array) -> None:
    checkpoint("x", x)
    described = describe(x)
    assert_type(described, Description)
    assert_type(described["CAI"], Said)
    assert_type(described["CAI"].ptr, int | None)
    try:
        assert_equivalent(x)
    except NotEquivalentError as error:
        assert_type(error.differences, tuple[Difference, ...])


class Producer(ProducerAdapter):
    """How a library makes arrays."""

    def make(self, shape: tuple[int, ...], dtype: str) -> Array:
        if len(shape) != 1:
            raise NotApplicableError("arrays have one dimension")
        return Array()

    def stream(self) -> int:
        return 1

    def late(self, lab: Lab, value: float, words: int | None = None) -> Late:
        raise NotApplicableError("work cannot be held back")


class Taker(ConsumerAdapter):
    """How a library takes arrays."""

    def take(self, x: CaiArray | DLPackArray) -> Array:
        return Array()


def judged() -> None:
    report = check_producer(Producer)
    assert_type(report.ok, bool)
    assert_type(report.verdicts, tuple[Verdict, ...])
    assert_type(report.verdicts[0].requirement, Requirement)
    assert_type(report.verdicts[0].outcome, Literal["passed", "failed", "skipped"])
    assert_type(requirements("producer"), tuple[Requirement, ...])
    try:
        check_consumer(Taker(), only="cai-stream").raise_for_failures()
    except ConformanceError as error:
        print(error.report)
