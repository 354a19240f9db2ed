"""The races that the libraries run into among themselves, each with the bridge between and without
it.

Every run puts a spinning kernel in front of the producer's write and gives the write a value never
used before. Through the bridge no run may read anything else. Without it some run must, or the case
proves nothing; of JAX and torch only those runs count that were read before the write was done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cai_bridge import from_cai, to_cai

from . import libraries, streams
from .streams import WORDS

RUNS = 100
WARM_UP = 3
# Many times what any consumer takes to read, so enough also where the device's clock has gone up
# since it was measured.
JAX_MS = 10.0

Read = Callable[[int], Any]


def count_wrong(driver: Any, read: Read, counts: Callable[[], bool] = lambda: True) -> int:
    """How many of `RUNS` runs read anything but the value that was written, of those of which
    `counts` says at their end that they are to be counted.
    """
    values = streams.fresh_values()
    wrong = 0
    for run in range(WARM_UP + RUNS):
        driver.synchronize()
        value = next(values)
        seen, counted = np.asarray(read(value)), counts()
        wrong += run >= WARM_UP and counted and not bool((seen == value).all())
    driver.synchronize()
    return wrong


class TorchProducer:
    """A torch tensor written late on a side stream, which is torch's current stream while
    `hand_over` runs.
    """

    def __init__(self) -> None:
        self.torch = pytest.importorskip("torch")
        self.stream = self.torch.cuda.Stream()
        self.tensor = self.torch.zeros(WORDS, device="cuda")

    def written(self, value: int, hand_over: Callable[[Any], Any]) -> Any:
        streams.torch_writes_late(self.tensor, value, self.stream)
        with self.torch.cuda.stream(self.stream):
            return hand_over(self.tensor)

    def is_pending(self) -> bool:
        return not self.stream.query()


class CupyProducer:
    """A CuPy array written late on a non-blocking stream, current while `hand_over` runs."""

    def __init__(self) -> None:
        self.cupy = pytest.importorskip("cupy")
        self.stream = self.cupy.cuda.Stream(non_blocking=True)
        self.array = self.cupy.zeros(WORDS, dtype=np.float32)

    def written(self, value: int, hand_over: Callable[[Any], Any]) -> Any:
        streams.cupy_writes_late(self.array, value, self.stream)
        with self.stream:
            return hand_over(self.array)


class NumbaProducer:
    """A numba array that names its own stream, written late on it."""

    def __init__(self) -> None:
        pytest.importorskip("numba")
        from numba import cuda

        self.stream = cuda.stream()
        self.array = cuda.device_array(WORDS, dtype=np.float32, stream=self.stream)

    def written(self, value: int, hand_over: Callable[[Any], Any]) -> Any:
        streams.numba_writes_late(self.array, value, self.stream)
        return hand_over(self.array)


class JaxProducer:
    """A pending result of JAX, on whatever stream JAX runs it."""

    def __init__(self) -> None:
        libraries.gpu_jax()
        self.delay = streams.jax_delay(JAX_MS)

    def written(self, value: int, hand_over: Callable[[Any], Any]) -> Any:
        self.array = self.delay(value)
        return hand_over(self.array)

    def is_pending(self) -> bool:
        return not self.array.is_ready()


class CupyConsumer:
    """Copies what it is given on a non-blocking stream of its own, and reads the copy."""

    name, own_call = "cupy", "cupy.asarray"
    without_sync = staticmethod(streams.cupy_view_without_sync)

    def __init__(self) -> None:
        self.cupy = pytest.importorskip("cupy")
        self.stream = self.cupy.cuda.Stream(non_blocking=True)
        self.out = self.cupy.empty(WORDS, dtype=np.float32)

    def read(self, make: Callable[[], Any]) -> Any:
        with self.stream:
            self.out[...] = make()
            return self.cupy.asnumpy(self.out, stream=self.stream)

    def take(self, array: Any) -> Any:
        return self.cupy.asarray(array)

    take_any = take


class NumbaConsumer(streams.NumbaCopies):
    """Copies what it is given by a kernel on a stream of its own, and reads the copy."""

    name, own_call = "numba", "numba launch"

    def read(self, make: Callable[[], Any]) -> Any:
        self.copy_of(make())
        return self.seen()

    def without_sync(self, view: Any) -> Any:
        return self.cuda.as_cuda_array(view, sync=False)

    def take(self, array: Any) -> Any:
        """What a launch is handed as it is."""
        return array

    def take_any(self, array: Any) -> Any:
        return self.cuda.as_cuda_array(array)


class TorchConsumer:
    """Copies what it is given on a side stream, and reads the copy."""

    def __init__(self) -> None:
        self.torch = pytest.importorskip("torch")
        self.stream = self.torch.cuda.Stream()
        self.out = self.torch.zeros(WORDS, device="cuda")

    def read(self, make: Callable[[], Any]) -> Any:
        with self.torch.cuda.stream(self.stream):
            self.out.copy_(make())
        self.stream.synchronize()
        return self.out.cpu().numpy()


def pending_producer(name: str) -> Any:
    return {
        "torch": TorchProducer,
        "jax": JaxProducer,
        "cupy": CupyProducer,
        "numba": NumbaProducer,
    }[name]()


def report(note: Callable[..., None], case: str, wrong: int, without: int | str) -> None:
    beside = f"{without}/{RUNS}" if isinstance(without, int) else without
    note(
        f"{case}: wrong {wrong}/{RUNS} through the bridge, {beside} without",
        wrong=wrong,
        without=str(without),
    )


@pytest.mark.parametrize("producer", ["torch", "jax"])
@pytest.mark.parametrize("consumer", [CupyConsumer, NumbaConsumer])
def test_cupy_or_numba_reads_what_a_pending_dlpack_producer_wrote_and_without_the_bridge_does_not(
    driver: Any, note: Any, consumer: type[CupyConsumer | NumbaConsumer], producer: str
) -> None:
    source, sink = pending_producer(producer), consumer()

    def through_the_bridge(value: int) -> Any:
        view = source.written(value, lambda array: to_cai(array, stream=sink.stream))
        return sink.read(lambda: sink.without_sync(view))

    def by_its_own_call(value: int) -> Any:
        view = source.written(value, to_cai)
        return sink.read(lambda: sink.take(view))

    def without(value: int) -> Any:
        array = source.written(value, lambda array: array)
        return sink.read(lambda: sink.take_any(array))

    wrong = count_wrong(driver, through_the_bridge)
    wrong_by_its_own = count_wrong(driver, by_its_own_call)
    wrong_without = count_wrong(driver, without, source.is_pending)
    ways = {f"{sink.name} on its own stream": wrong, sink.own_call: wrong_by_its_own}
    for way, seen in ways.items():
        report(note, f"{producer} pending -> CAI -> {way}", seen, wrong_without)
    assert (wrong, wrong_by_its_own) == (0, 0)
    assert wrong_without > 0


@pytest.mark.parametrize("producer", ["cupy", "numba"])
def test_torch_reads_what_a_pending_cai_producer_wrote_and_without_the_bridge_does_not(
    driver: Any, note: Any, producer: str
) -> None:
    source, sink = pending_producer(producer), TorchConsumer()

    def through_the_bridge(value: int) -> Any:
        view = source.written(value, from_cai)
        return sink.read(lambda: sink.torch.from_dlpack(view))

    def without(value: int) -> Any:
        # torch reads the dict here, and with it the stream that it then ignores.
        array = source.written(value, lambda array: array)
        return sink.read(lambda: sink.torch.as_tensor(array, device="cuda"))

    wrong = count_wrong(driver, through_the_bridge)
    wrong_without = count_wrong(driver, without)
    report(note, f"{producer} side stream -> CAI -> torch side stream", wrong, wrong_without)
    assert wrong == 0
    assert wrong_without > 0


def read_by_jax(jax: Any, source: CupyProducer) -> tuple[Read, Read]:
    """How JAX reads what CuPy wrote, through the bridge and without it."""
    copied = jax.jit(lambda array: array + 0)

    def through_the_bridge(value: int) -> Any:
        view = source.written(value, from_cai)
        return np.asarray(copied(jax.dlpack.from_dlpack(view)))

    def without(value: int) -> Any:
        return np.asarray(copied(source.written(value, jax.numpy.asarray)))

    return through_the_bridge, without


def test_jax_reads_what_cupy_wrote_on_a_side_stream_where_its_own_import_fails(
    driver: Any, note: Any
) -> None:
    jax = libraries.gpu_jax()
    through_the_bridge, without = read_by_jax(jax, CupyProducer())
    wrong = count_wrong(driver, through_the_bridge)
    try:
        beside: int | str = count_wrong(driver, without)
    except jax.errors.JaxRuntimeError as refusal:
        beside = f"jnp.asarray raises {type(refusal).__name__}"
    report(note, "cupy side stream -> CAI -> JAX", wrong, beside)
    assert wrong == 0
    assert beside != 0


def test_jax_reads_what_cupy_wrote_on_its_default_stream(driver: Any, note: Any) -> None:
    jax = libraries.gpu_jax()
    source = CupyProducer()
    source.stream = source.cupy.cuda.Stream.null
    through_the_bridge, without = read_by_jax(jax, source)
    wrong = count_wrong(driver, through_the_bridge)
    wrong_without = count_wrong(driver, without)
    report(note, "cupy default stream -> CAI -> JAX", wrong, wrong_without)
    assert wrong == 0
