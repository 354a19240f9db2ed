"""Every door, version, stream situation and kind of consumer: ordered, by no wait too many.

Each case runs on the simulated device. Its consumer must see the producer's values and nothing may
be reported. Then it runs again once for every call that an order of the bridge consists of, with
that call left out: each of these runs must be reported, or the order was not needed, or the test
cannot see. The exception is a consumer that goes on to work on a stream which the driver itself
orders with the producer's, where nothing could go wrong: the bridge had no way to know.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from scenes import ORDER, STREAMS, stream_of
from specification import as_consumer, as_producer

import cai_bridge
from cai_bridge import from_cai, to_cai
from cai_bridge.testing import simulated_cuda

HOST_WAIT = ("cuModuleUnload",)


def independent(one: str, other: str) -> bool:
    """Whether the driver leaves two streams unordered; each that is no default one is new."""
    if "legacy" in (one, other):
        return "non-blocking" in (one, other)
    return not one == other == "per-thread"


# How many waits of each door were left out and missed; filled by the tests, read by the last one.
PROVEN: Counter[str] = Counter()


# The records of the orders that the bridge makes.
MADE: list[logging.LogRecord] = []


@pytest.fixture(autouse=True)
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    logger, handler = logging.getLogger("cai_bridge"), logging.Handler()
    monkeypatch.setattr(handler, "emit", MADE.append)
    monkeypatch.setattr(logger, "propagate", False)
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.DEBUG)
    yield
    logger.setLevel(level)
    logger.removeHandler(handler)


@dataclass
class Run:
    """What the consumer saw, what was reported, and which calls the bridge's orders were."""

    value: list[float]
    reports: list[Any]
    waits: list[tuple[str, int]]


class Case:
    """The streams and arrays of one run."""

    def __init__(self, cuda: Any, produced_on: str) -> None:
        self.cuda = cuda
        self.producer = self.stream(produced_on)
        self.waits: list[tuple[str, int]] = []

    def stream(self, kind: str) -> Any:
        return stream_of(self.cuda, kind, kind)

    def array(self, speaks: Any) -> Any:
        """An array of zeros that the producer's stream is about to fill with sevens."""
        array = self.cuda.array([0.0] * 8, dtype="float32", speaks=speaks, name="x")
        self.producer.fill(array, 7.0, name="the producer's write")
        return array

    @contextmanager
    def bridge(self) -> Iterator[None]:
        """Note the calls of the bridge's orders in here, which come after the producer's."""
        before = len(self.cuda.calls)
        MADE.clear()
        yield
        calls = [call.call for call in self.cuda.calls]
        for record in MADE:
            if getattr(record, "order", None) != "made":
                continue
            for name in HOST_WAIT if getattr(record, "why", "") == "host wait" else ORDER:
                last = max(i for i in range(before, len(calls)) if calls[i] == name)
                self.waits.append((name, calls[: last + 1].count(name)))


def run(
    produced_on: str, body: Callable[[Case], Any], without: tuple[str, int] | None = None
) -> Run:
    """Run `body`, which returns what a consumer reads, with the nth wait of a kind left out."""
    with warnings.catch_warnings(), simulated_cuda(check=False) as cuda:
        warnings.simplefilter("ignore", cai_bridge.HostSyncWarning)
        if without:
            cuda.suppress(*without)
        case = Case(cuda, produced_on)
        pending, consumer = body(case)
        consumer.synchronize()
        value = pending.value
        cuda.synchronize()
        return Run(value, list(cuda.reports), case.waits)


def prove(
    door: str, produced_on: str, body: Callable[[Case], Any], label: str, *, needed: bool
) -> None:
    """The case is right, and where they are `needed` each of its waits is missed."""
    whole = run(produced_on, body)
    assert whole.reports == [], f"{label}: {whole.reports[0]}"
    assert whole.value == [7.0] * 8, label
    assert len(whole.waits) <= len(ORDER), f"{label}: {whole.waits}"
    for wait in whole.waits if needed else ():
        without = run(produced_on, body, without=wait)
        assert without.reports, f"{label}: nothing is reported without {wait}"
        PROVEN[door] += 1


def capsule(case: Case, **arguments: Any) -> Any:
    return case.array("dlpack").__dlpack__(stream=1, **arguments)


SPEAKS = ["exchange", "dlpack", "dlpack-legacy", "dlpack-strict", "dlpack-bare"]
SPEAKS += [f"cai{version}" for version in range(4)]
TO_CAI: dict[str, Callable[[Case], Any]] = {
    **{speaks: partial(Case.array, speaks=speaks) for speaks in SPEAKS},
    "exchange and dlpack and cai": partial(Case.array, speaks=("exchange", "dlpack", "cai3")),
    "versioned capsule": partial(capsule, max_version=(1, 3)),
    "legacy capsule": capsule,
    "DLPackView": lambda case: from_cai(case.array("cai3")),
    "CaiView": lambda case: to_cai(case.array("cai3")),
}
# Producers that make their memory ready on the legacy default stream, whatever is asked for.
READY_ON = {"dlpack-bare": "legacy", "versioned capsule": "legacy", "legacy capsule": "legacy"}


def to_cai_body(door: str, given: str | None, kind: str, consumes_on: str) -> Callable[[Case], Any]:
    def body(case: Case) -> Any:
        stream = None if given is None else case.stream(given)
        consumes = stream if consumes_on == "given" else case.stream(consumes_on)
        # Exchange API producers work on the current stream of their library, the producer's here.
        with case.cuda.current_stream(case.producer):
            made = TO_CAI[door](case)
            with case.bridge():
                view = to_cai(made, stream=stream)
        del made
        pending = case.cuda.consumer(kind, stream=consumes).read(view)
        return pending, case.cuda if kind == "cai-enqueues" else consumes

    return body


# Consumers that keep the specification, and whether they queue their work on the stream given.
QUEUES = {"cai-waits": "own", "cai-enqueues": "given", "cai-blocks": "own"}


@as_producer("stream", "integer", "integer-synchronize", "integer-enqueue", "choice")
@as_producer("by-default", "user-knowledge", "exception", "all-pending", "option-default")
@pytest.mark.parametrize("given", [None, *STREAMS])
@pytest.mark.parametrize("produced_on", STREAMS)
@pytest.mark.parametrize("door", TO_CAI)
def test_a_cai_consumer_that_keeps_the_specification_sees_what_was_written(
    door: str, produced_on: str, given: str | None
) -> None:
    for kind, queues_on in QUEUES.items():
        for consumes_on in (*STREAMS, *(["given"] if given else [])):
            body = to_cai_body(door, given, kind, consumes_on)
            works_on = given if given and "given" in (consumes_on, queues_on) else consumes_on
            ready_on = READY_ON.get(door, produced_on)
            needed = all(independent(ready_on, other) for other in (works_on, given or works_on))
            prove(door, produced_on, body, f"{kind} on {consumes_on}", needed=needed)


@as_producer("exception-documented", "documented-steps")
@pytest.mark.parametrize("given", STREAMS)
@pytest.mark.parametrize("produced_on", STREAMS)
@pytest.mark.parametrize("door", TO_CAI)
def test_a_cai_consumer_that_ignores_streams_sees_it_on_the_stream_that_was_given(
    door: str, produced_on: str, given: str
) -> None:
    body = to_cai_body(door, given, "cai-trusting", "given")
    needed = independent(READY_ON.get(door, produced_on), given)
    prove(door, produced_on, body, "cai-trusting", needed=needed)


@pytest.mark.parametrize("produced_on", STREAMS)
@pytest.mark.parametrize("door", TO_CAI)
def test_minus_one_orders_nothing_and_a_caller_who_waited_needs_nothing(
    door: str, produced_on: str
) -> None:
    def body(case: Case) -> Any:
        made = TO_CAI[door](case)
        case.cuda.synchronize()
        with case.bridge():
            view = to_cai(made, stream=-1)
        assert view.stream is None
        consumes = case.stream("non-blocking")
        return case.cuda.consumer("cai-waits", stream=consumes).read(view), consumes

    whole = run(produced_on, body)
    assert (whole.reports, whole.value) == ([], [7.0] * 8)
    silent = {f"cai{version}" for version in range(3)}
    assert {name for name, _ in whole.waits} == (set(HOST_WAIT) if door in silent else set())


FROM_CAI: dict[str, Callable[[Case, Any], Any]] = {
    **{
        f"cai{version}": lambda case, stream, speaks=f"cai{version}": from_cai(
            case.array(speaks), stream=stream
        )
        for version in range(4)
    },
    "dict": lambda case, stream: from_cai(
        (array := case.array("cai3")).__cuda_array_interface__, owner=array, stream=stream
    ),
    "cai2 with the exchange API": lambda case, stream: from_cai(
        case.array(("exchange", "cai2")), stream=stream
    ),
    "CaiView": lambda case, stream: from_cai(to_cai(case.array("exchange")), stream=stream),
}
# These work on the legacy default stream, whatever stream they have.
ON_LEGACY = ("dlpack-none", "dlpack-exchange", "dlpack-borrowed")
DLPACK_CONSUMERS = ("dlpack", "dlpack-legacy-capsule", *ON_LEGACY)


def from_cai_body(door: str, declared: bool, kind: str, consumes_on: str) -> Callable[[Case], Any]:
    def body(case: Case) -> Any:
        consumes = case.stream(consumes_on)
        with case.cuda.current_stream(case.producer), case.bridge():
            view = FROM_CAI[door](case, case.producer if declared else None)
        with case.bridge():
            pending = case.cuda.consumer(kind, stream=consumes).read(view)
        return pending, case.cuda.legacy if kind in ON_LEGACY else consumes

    return body


@as_consumer("version-3", "stream", "stream-1", "stream-2", "stream-handle", "no-statement")
@as_consumer(
    "integer", "integer-synchronize", "choice", "by-default", "user-knowledge", "exception"
)
@pytest.mark.parametrize("declared", [False, True], ids=["from the dict", "declared"])
@pytest.mark.parametrize("produced_on", STREAMS)
@pytest.mark.parametrize("door", FROM_CAI)
def test_a_dlpack_consumer_sees_what_was_written(
    door: str, produced_on: str, declared: bool
) -> None:
    for kind in DLPACK_CONSUMERS:
        for consumes_on in STREAMS:
            body = from_cai_body(door, declared, kind, consumes_on)
            works_on = "legacy" if kind in ON_LEGACY else consumes_on
            needed = independent(produced_on, works_on)
            prove(f"{door} in", produced_on, body, f"{kind} on {consumes_on}", needed=needed)


@pytest.mark.parametrize("produced_on", STREAMS)
def test_a_consumer_that_asks_for_no_order_gets_none(produced_on: str) -> None:
    def body(case: Case) -> Any:
        view = from_cai(case.array("cai3"))
        case.cuda.synchronize()
        consumes = case.stream("non-blocking")
        with case.bridge():
            pending = case.cuda.consumer("dlpack-unordered", stream=consumes).read(view)
        return pending, consumes

    whole = run(produced_on, body)
    assert (whole.reports, whole.value, whole.waits) == ([], [7.0] * 8, [])


@pytest.mark.parametrize("consumes_on", STREAMS)
@pytest.mark.parametrize("kind", DLPACK_CONSUMERS)
def test_another_threads_per_thread_stream_is_waited_for(kind: str, consumes_on: str) -> None:
    def body(case: Case) -> Any:
        made: list[Any] = []

        def produce() -> None:
            array = case.cuda.array([0.0] * 8, dtype="float32", speaks="cai3", name="x")
            case.cuda.per_thread.fill(array, 7.0, name="the other thread's write")
            made.append(from_cai(array))
            assert made[0].stream == 2

        thread = threading.Thread(target=produce)
        thread.start()
        thread.join()
        assert made[0].stream == 1, "2 is another stream here"
        consumes = case.stream(consumes_on)
        with case.bridge():
            pending = case.cuda.consumer(kind, stream=consumes).read(made[0])
        return pending, case.cuda.legacy if kind in ON_LEGACY else consumes

    whole = run("legacy", body)
    assert (whole.reports, whole.value) == ([], [7.0] * 8)
    for name, nth in whole.waits:
        # The event on the legacy default stream is by itself what a blocking stream waits for.
        if name == "cuStreamWaitEvent" and consumes_on != "non-blocking":
            continue
        # On the legacy stream the wait is for whom the memory is passed on to.
        if kind in ON_LEGACY or consumes_on == "legacy":
            continue
        assert run("legacy", body, without=(name, nth)).reports, name
        PROVEN["another thread"] += 1


@pytest.mark.last
def test_waits_were_made_and_missed_at_every_door() -> None:
    doors = {*TO_CAI, *(f"{door} in" for door in FROM_CAI), "another thread"}
    # These producers order their own work before the stream that they are asked for.
    doors -= {"dlpack", "dlpack-legacy", "dlpack-strict"}
    missing = {door for door in doors if not PROVEN[door]}
    assert not missing, f"no wait of these was proven to be needed: {missing}"
