"""`adapt`: the memory is the caller's again when the call is over, whatever the function keeps."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import Any

import pytest
from scenes import done
from stand_in import Array, OddError, StandIn, library, made_on, no_libraries, producer

from cai_bridge import adapt, convert, to_cai

__all__ = ["library", "no_libraries", "producer"]


def inside(x: Any) -> Any:
    """What the bridge made, of an array of the stand-in."""
    return x.view if isinstance(x, Array) else x


@pytest.mark.parametrize("to", ["cai", "dlpack", "stand_in", "tvm_ffi"])
@pytest.mark.parametrize("how", ["kept", "returned", "raised", "awaited"])
def test_what_the_function_keeps_is_in_order_when_the_call_is_over(
    cuda: Any, library: StandIn, producer: Any, to: str, how: str
) -> None:
    x, mine, kept = made_on(cuda, producer, 7.0), cuda.stream("mine"), []

    def function(a: Any) -> Any:
        kept.extend((mine.read(to_cai(inside(a), stream=-1)), a))
        if how == "raised":
            raise OddError
        return kept.pop() if how == "returned" else None

    async def awaited(a: Any) -> None:
        await asyncio.sleep(0)
        function(a)

    if how == "awaited":
        asyncio.run(adapt(awaited, to, stream=mine)(x))
    else:
        with pytest.raises(OddError) if how == "raised" else contextlib.nullcontext():
            kept.append(adapt(function, to, stream=mine, returns=None)(x))
    producer.fill(x, -1.0, name="the caller's next write")
    assert done(kept[0]) == [7.0] * 4


@pytest.mark.parametrize("to", ["tvm_ffi", "stand_in"])
def test_the_librarys_own_array_is_in_order_after_the_stream_that_is_said(
    cuda: Any, library: StandIn, producer: Any, to: str
) -> None:
    mine, theirs, seen = cuda.stream("mine"), library.streams[0], []
    theirs = cuda.default_stream(0) if to == "tvm_ffi" else theirs
    x = cuda.array([7.0] * 4, speaks="exchange")
    own = convert(x, to)
    adapt(lambda a: seen.append(mine.read(to_cai(a, stream=-1))), to, stream=mine)(own)
    theirs.fill(x, -1.0, name="the library's next write")
    assert done(seen[0]) == [7.0] * 4


# results whose work is still to come


def generator(a: Any) -> Any:
    yield a


async def coroutine(a: Any) -> Any:
    await asyncio.sleep(0)


async def async_generator(a: Any) -> Any:
    yield a


UNFINISHED = {
    "a generator": generator,
    "a static method": staticmethod(generator),
    "a context manager": contextlib.contextmanager(generator),
    "an asynchronous context manager": contextlib.asynccontextmanager(async_generator),
    "a coroutine": coroutine,
    "an asynchronous generator": async_generator,
}


@pytest.mark.parametrize("name", UNFINISHED)
def test_a_result_whose_work_is_still_to_come_is_refused_and_closed(cuda: Any, name: str) -> None:
    made, x = [], cuda.array([1.0])

    # None of them can be told before the call.
    def function(a: Any) -> Any:
        made.append(UNFINISHED[name](a))
        return made[0]

    with pytest.raises(TypeError, match=r"^function: got one that returned a .+; allowed: "):
        adapt(function)(x)
    inner = getattr(made[0], "gen", made[0])
    state = getattr(inner, "gi_frame", getattr(inner, "cr_frame", getattr(inner, "ag_frame", None)))
    assert state is None
    assert x.exports == 0


def test_a_generator_that_a_coroutine_returns_is_refused(cuda: Any) -> None:
    async def function(a: Any) -> Any:
        await asyncio.sleep(0)
        return generator(a)

    assert inspect.iscoroutinefunction(function)
    with pytest.raises(TypeError, match=r"^function: got one that returned a generator; "):
        asyncio.run(adapt(function)(cuda.array([1.0])))


def test_a_task_that_a_function_has_begun_is_refused(cuda: Any) -> None:
    x = cuda.array([1.0])

    async def work(view: Any) -> Any:
        await asyncio.sleep(0)
        return view.ndim

    async def program() -> None:
        with pytest.raises(TypeError, match=r"^function: got one that returned a Task; "):
            adapt(lambda view: asyncio.create_task(work(view)))(x)

    asyncio.run(program())
    assert x.exports == 0


@pytest.mark.parametrize("last", [False, True])
def test_the_others_are_in_order_though_one_cannot_be(last: bool, cuda: Any) -> None:
    home, first, second = (cuda.stream(name) for name in ("home", "first", "second"))
    array = cuda.array([1.0] * 4, speaks="cai3", stream=home, name="x")
    kept = []

    class Interrupted:
        now = False

        def __cuda_stream__(self) -> tuple[int, int]:
            if self.now:
                raise KeyboardInterrupt
            return (0, first.handle)

    broken = Interrupted()

    @adapt(to="cai", stream=home)
    def function(view: Any) -> None:
        streams = [second, broken] if last else [broken, second]
        kept.extend(to_cai(view, stream=stream) for stream in streams)
        second.launch(reads=[view], name="the reader")
        broken.now = True

    with pytest.raises(KeyboardInterrupt):
        function(array)
    broken.now = False
    home.fill(array, 2.0)
    cuda.synchronize()
