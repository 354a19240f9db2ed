"""`adapt`: the memory is the caller's again, whatever the function made of its array and keeps."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest
from scenes import done
from stand_in import OddError, StandIn, count, library, made_on, no_libraries, producer

from cai_bridge import adapt, from_cai, to_cai, to_dlpack

__all__ = ["library", "no_libraries", "producer"]

# What a function makes of its array and keeps, by what it takes; each is read on the stream `mine`.
MADE = {
    "a tensor": ("dlpack", lambda cuda, a, mine: cuda.consumer("dlpack", mine).read(a)),
    "a tensor of a view of the view": (
        "dlpack",
        lambda cuda, a, mine: cuda.consumer("dlpack", mine).read(to_dlpack(a)),
    ),
    "a tensor of a view of the other protocol": (
        "cai",
        lambda cuda, a, mine: cuda.consumer("dlpack", mine).read(from_cai(a)),
    ),
    "a view for a stream": ("cai", lambda cuda, a, mine: named(to_cai(a, stream=mine), mine)),
    "a view of the other protocol for a stream": (
        "dlpack",
        lambda cuda, a, mine: named(to_cai(a, stream=mine), mine),
    ),
    "a view whose dict was read": (
        "dlpack",
        lambda cuda, a, mine: read_as_current(cuda, to_cai(a), mine),
    ),
    "a view of a library's array": (
        "stand_in",
        lambda cuda, a, mine: cuda.consumer("dlpack", mine).read(from_cai(a.view)),
    ),
}


def named(view: Any, mine: Any) -> Any:
    return view, mine.read(view)


def read_as_current(cuda: Any, view: Any, mine: Any) -> Any:
    with cuda.current_stream(mine):
        return view, cuda.consumer("cai-waits", mine).read(view)


def pending(kept: Any) -> Any:
    return kept[-1] if isinstance(kept, tuple) else kept


@pytest.mark.parametrize("how", ["returned", "listed", "raised"])
@pytest.mark.parametrize("what", MADE)
def test_what_the_function_made_of_its_array_and_keeps_is_in_order_after_the_call(
    cuda: Any, library: StandIn, producer: Any, what: str, how: str
) -> None:
    to, make = MADE[what]
    x, mine, kept = made_on(cuda, producer, 7.0), cuda.stream("mine"), []

    def function(a: Any) -> Any:
        kept.append(make(cuda, a, mine))
        if how == "raised":
            raise OddError
        return kept.pop() if how == "returned" else None

    with pytest.raises(OddError) if how == "raised" else contextlib.nullcontext():
        kept.append(adapt(function, to, returns=None)(x))
    producer.fill(x, -1.0, name="the caller's next write")
    cuda.synchronize()
    assert count(cuda, "cuModuleUnload") == 0
    assert pending(kept[0]).value == [7.0] * 4


def test_each_stream_that_the_function_made_something_for_is_waited_for_once(
    cuda: Any, producer: Any
) -> None:
    x, streams, kept = made_on(cuda, producer, 7.0), [cuda.stream(name) for name in "abc"], []

    def function(a: Any) -> None:
        for stream in [*streams, *streams]:
            kept.append(cuda.consumer("dlpack", stream).read(a))
        cuda.clear_calls()

    adapt(function, "dlpack")(x)
    assert count(cuda, "cuEventRecord") == count(cuda, "cuStreamWaitEvent") == 3
    producer.fill(x, -1.0, name="the caller's next write")
    cuda.synchronize()
    assert [read.value for read in kept] == [[7.0] * 4] * 6


def test_what_ended_in_the_call_is_not_waited_for_again(cuda: Any, producer: Any) -> None:
    x, mine = made_on(cuda, producer, 7.0), cuda.stream("mine")

    def function(a: Any) -> Any:
        seen = cuda.consumer("dlpack", mine).read(a)
        seen.release()
        cuda.clear_calls()
        return a, seen

    kept = adapt(function, "dlpack", returns=None)(x)
    assert count(cuda, "cuEventRecord") == 0
    producer.fill(x, -1.0, name="the caller's next write")
    assert done(kept[1]) == [7.0] * 4


@pytest.mark.parametrize("lends", [lambda a: a, to_dlpack], ids=["the array", "a view of it"])
def test_a_borrower_by_the_exchange_api_is_waited_for_where_the_view_is_kept(
    cuda: Any, producer: Any, lends: Any
) -> None:
    x, kept = made_on(cuda, producer, 7.0), []

    def function(a: Any) -> None:
        view = lends(a)
        kept.extend((a, view, cuda.consumer("dlpack-borrowed", cuda.legacy).read(view)))

    adapt(function, "dlpack")(x)
    producer.fill(x, -1.0, name="the caller's next write")
    assert done(kept[-1]) == [7.0] * 4


@pytest.mark.parametrize("to", ["cai", "dlpack", "stand_in"])
def test_calls_whose_arrays_are_kept_use_the_same_events_again(
    cuda: Any, library: StandIn, to: str
) -> None:
    kept: list[Any] = []

    # The stream of these producers is unknown, so their memory stays until the work is done.
    def call() -> int:
        made = cuda.array([1.0] * 4, speaks="dlpack")
        adapt(kept.append, to, stream=cuda.default_stream(0))(made)
        return count(cuda, "cuEventCreate")

    call()
    first = call()
    assert [call() for _ in range(4)] == [first] * 4
    cuda.synchronize()


def in_another_thread(call: Any) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(timeout=60)
    assert not thread.is_alive()


class Asked:
    """A stream that has something happen, once, when it is asked next."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.then = stream, None

    def __cuda_stream__(self) -> tuple[int, int]:
        then, self.then = self.then, None
        if then is not None:
            then()
        return 0, self.stream.handle


@pytest.mark.parametrize("run", [in_another_thread, lambda call: call()], ids=["other", "same"])
def test_a_kept_view_that_is_released_while_the_call_ends_is_released_in_order(
    cuda: Any, producer: Any, run: Any
) -> None:
    x, late, kept = made_on(cuda, producer, 7.0), cuda.stream("late"), []
    mine = Asked(cuda.stream("mine"))

    def release() -> None:
        cuda.set_device(0)
        kept[0].release(stream=late)

    def function(a: Any) -> None:
        late.wait(producer.record())
        kept.extend((a, late.read(a)))
        mine.then = lambda: run(release)

    adapt(function, stream=mine, returns=None)(x)
    assert kept[0].owner is None
    producer.fill(x, -1.0, name="the caller's next write")
    assert done(kept[1]) == [7.0] * 4
