"""`adapt`: the memory is the caller's again when the call is over, whatever the function keeps."""

import asyncio
import contextlib
import sys
import threading

import pytest
from scenes import done
from stand_in import Array, OddError, count, library, made_on, no_libraries, producer

from cai_bridge import adapt, convert, from_cai, to_cai, to_dlpack

__all__ = ["library", "no_libraries", "producer"]


@pytest.mark.parametrize("to", ["cai", "dlpack", "stand_in", "tvm_ffi"])
@pytest.mark.parametrize("how", ["kept", "returned", "raised", "awaited"])
def test_what_the_function_keeps_is_in_order_when_the_call_is_over(
    cuda, library, producer, to, how
):
    x, mine, kept = made_on(cuda, producer, 7.0), cuda.stream("mine"), []

    def function(a):
        inside = a.view if isinstance(a, Array) else a
        kept.extend((mine.read(to_cai(inside, stream=-1)), a))
        if how == "raised":
            raise OddError
        return kept.pop() if how == "returned" else None

    async def awaited(a):
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
def test_the_librarys_own_array_is_in_order_after_the_stream_that_is_said(cuda, library, to):
    mine, seen = cuda.stream("mine"), []
    theirs = cuda.default_stream(0) if to == "tvm_ffi" else library.streams[0]
    x = cuda.array([7.0] * 4, speaks="exchange")
    own = convert(x, to)
    adapt(lambda a: seen.append(mine.read(to_cai(a, stream=-1))), to, stream=mine)(own)
    theirs.fill(x, -1.0, name="the library's next write")
    assert done(seen[0]) == [7.0] * 4


def read_by_dlpack(cuda, a, mine):
    return cuda.consumer("dlpack", mine).read(a)


def with_view_for_a_stream(cuda, a, mine):
    view = to_cai(a, stream=mine)
    return view, mine.read(view)


def with_view_whose_dict_was_read(cuda, a, mine):
    view = to_cai(a)
    with cuda.current_stream(mine):
        return view, cuda.consumer("cai-waits", mine).read(view)


# What a function makes of its array and keeps, by what it takes; each is read on the stream `mine`.
MADE = {
    "a tensor": ("dlpack", read_by_dlpack),
    "a tensor of a view of the view": (
        "dlpack",
        lambda cuda, a, mine: read_by_dlpack(cuda, to_dlpack(a), mine),
    ),
    "a tensor of a view of the other protocol": (
        "cai",
        lambda cuda, a, mine: read_by_dlpack(cuda, from_cai(a), mine),
    ),
    "a view for a stream": ("cai", with_view_for_a_stream),
    "a view of the other protocol for a stream": ("dlpack", with_view_for_a_stream),
    "a view whose dict was read": ("dlpack", with_view_whose_dict_was_read),
    "a view of a library's array": (
        "stand_in",
        lambda cuda, a, mine: read_by_dlpack(cuda, from_cai(a.view), mine),
    ),
    "a tensor of a library's array": (
        "stand_in",
        lambda cuda, a, mine: read_by_dlpack(cuda, from_cai(a), mine),
    ),
    "a view of a library's array for a stream": ("stand_in", with_view_for_a_stream),
    "a tree of a library's array": (
        "stand_in",
        lambda cuda, a, mine: with_view_for_a_stream(cuda, convert([a], "dlpack")[0], mine),
    ),
}


@pytest.mark.parametrize("how", ["returned", "listed", "raised"])
@pytest.mark.parametrize("what", MADE)
def test_what_the_function_made_of_its_array_and_keeps_is_in_order_after_the_call(
    cuda, library, producer, what, how
):
    to, make = MADE[what]
    x, mine, kept = made_on(cuda, producer, 7.0), cuda.stream("mine"), []

    def function(a):
        kept.append(make(cuda, a, mine))
        if how == "raised":
            raise OddError
        return kept.pop() if how == "returned" else None

    with pytest.raises(OddError) if how == "raised" else contextlib.nullcontext():
        kept.append(adapt(function, to, returns=None)(x))
    producer.fill(x, -1.0, name="the caller's next write")
    cuda.synchronize()
    assert count(cuda, "cuModuleUnload") == 0
    read = kept[0][-1] if isinstance(kept[0], tuple) else kept[0]
    assert read.value == [7.0] * 4


def test_each_stream_that_the_function_made_something_for_is_waited_for_once(cuda, producer):
    x, streams, kept = made_on(cuda, producer, 7.0), [cuda.stream(name) for name in "abc"], []

    def function(a):
        kept.extend(read_by_dlpack(cuda, a, stream) for stream in [*streams, *streams])
        cuda.clear_calls()

    adapt(function, "dlpack")(x)
    assert count(cuda, "cuEventRecord") == count(cuda, "cuStreamWaitEvent") == 3
    producer.fill(x, -1.0, name="the caller's next write")
    cuda.synchronize()
    assert [read.value for read in kept] == [[7.0] * 4] * 6


@pytest.mark.parametrize("lends", [lambda a: a, to_dlpack], ids=["the array", "a view of it"])
def test_a_borrower_by_the_exchange_api_is_waited_for_where_the_view_is_kept(cuda, producer, lends):
    x, kept = made_on(cuda, producer, 7.0), []

    def function(a):
        view = lends(a)
        kept.extend((a, view, cuda.consumer("dlpack-borrowed", cuda.legacy).read(view)))

    adapt(function, "dlpack")(x)
    producer.fill(x, -1.0, name="the caller's next write")
    assert done(kept[-1]) == [7.0] * 4


def in_another_thread(call):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(timeout=60)
    assert not thread.is_alive()


class Asked:
    """A stream that has something happen, once, when it is asked next."""

    def __init__(self, stream):
        self.stream, self.then = stream, None

    def __cuda_stream__(self):
        then, self.then = self.then, None
        if then is not None:
            then()
        return 0, self.stream.handle


@pytest.mark.parametrize("run", [in_another_thread, lambda call: call()], ids=["other", "same"])
def test_a_kept_view_that_is_released_while_the_call_ends_is_released_in_order(cuda, producer, run):
    x, late, kept = made_on(cuda, producer, 7.0), cuda.stream("late"), []
    mine = Asked(cuda.stream("mine"))

    def release():
        cuda.set_device(0)
        kept[0].release(stream=late)

    def function(a):
        late.wait(producer.record())
        kept.extend((a, late.read(a)))
        mine.then = lambda: run(release)

    adapt(function, stream=mine, returns=None)(x)
    assert kept[0].owner is None
    producer.fill(x, -1.0, name="the caller's next write")
    assert done(kept[1]) == [7.0] * 4


def generator(a):
    yield a


async def coroutine(a):
    await asyncio.sleep(0)
    return generator(a)


async def async_generator(a):
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
def test_a_result_whose_work_is_still_to_come_is_refused_and_closed(cuda, name):
    made, x = [], cuda.array([1.0])

    # None of them can be told before the call.
    def function(a):
        made.append(UNFINISHED[name](a))
        return made[0]

    with pytest.raises(TypeError, match=r"^function: got one that returned a .+; allowed: "):
        adapt(function)(x)
    inner = getattr(made[0], "gen", made[0])
    frames = [getattr(inner, f"{kind}_frame", None) for kind in ("gi", "cr", "ag")]
    assert (frames, x.exports) == ([None] * 3, 0)


def test_what_a_coroutine_or_a_task_has_to_do_still_is_refused(cuda):
    x = cuda.array([1.0])
    refused = "^function: got one that returned a "
    with pytest.raises(TypeError, match=f"{refused}generator; "):
        asyncio.run(adapt(coroutine)(x))

    async def program():
        with pytest.raises(TypeError, match=f"{refused}Task; "):
            adapt(lambda view: asyncio.create_task(coroutine(view)))(x)

    asyncio.run(program())
    assert x.exports == 0


class Interrupting:
    """An exporter, and a stream, that is interrupted when it is asked next."""

    def __init__(self, inner):
        self.inner, self.now = inner, False

    def ask(self):
        now, self.now = self.now, False
        if now:
            raise KeyboardInterrupt
        return self.inner

    @property
    def __cuda_array_interface__(self):
        return self.ask().__cuda_array_interface__

    def __cuda_stream__(self):
        return self.ask().__cuda_stream__()


@pytest.mark.parametrize("last", [False, True])
def test_the_others_are_in_order_though_one_cannot_be(last, cuda):
    home, first, second = (cuda.stream(name) for name in ("home", "first", "second"))
    array = cuda.array([1.0] * 4, speaks="cai3", stream=home, name="x")
    broken, kept = Interrupting(first), []

    def function(view):
        streams = [second, broken] if last else [broken, second]
        kept.extend(to_cai(view, stream=stream) for stream in streams)
        second.launch(reads=[view], name="the reader")
        first.launch(reads=[view], name="the reader on the broken stream")
        broken.now = True

    with pytest.raises(KeyboardInterrupt):
        adapt(function, "cai", stream=home)(array)
    home.fill(array, 2.0)
    cuda.synchronize()


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("fails", [False, True])
def test_each_argument_is_in_order_though_the_end_of_one_is_interrupted(cuda, first, fails):
    own, one, two = (cuda.stream(name) for name in ("own", "one", "two"))
    arrays = [cuda.array([1.0] * 4, speaks="cai3", stream=stream) for stream in (one, two)]
    moving, kept = [Interrupting(array) for array in arrays], []

    def function(*views):
        kept.extend([*views, *(own.read(view) for view in views)])
        moving[not first].now = True
        if fails:
            raise OddError

    with pytest.raises(KeyboardInterrupt):
        adapt(function, "cai", stream=own)(*moving)
    for array, stream in zip(arrays, (one, two), strict=True):
        stream.fill(array, 9.0, name="its producer's next write")
    cuda.synchronize()
    assert [seen.value for seen in kept[2:]] == [[1.0] * 4] * 2


def test_what_the_function_raised_goes_before_an_end_that_fails(cuda, monkeypatch):
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda hook: unraisable.append(hook.exc_value))
    own, stream = cuda.stream("own"), cuda.stream("producer's")
    x, kept = cuda.array([1.0] * 4, speaks="cai3", stream=stream), []

    def function(x):
        kept.extend([x, own.read(x)])
        cuda.fail("cuEventRecord", 1, "CUDA_ERROR_OUT_OF_MEMORY")
        raise OddError

    with pytest.raises(OddError):
        adapt(function, "cai", stream=own)(x)
    assert ["cuEventRecord" in str(one) for one in unraisable] == [True]
    kept.clear()


@pytest.mark.parametrize("call", [to_cai, to_dlpack])
def test_a_view_of_the_callers_own_stays_whatever_the_function_raises(cuda, call):
    own, x = call(cuda.array([1.0] * 4)), cuda.array([2.0])
    seen = []

    def function(*views):
        seen.extend(views)
        raise OddError

    with pytest.raises(OddError):
        adapt(function, "cai" if call is to_cai else "dlpack")(own, x)
    assert seen[0] is own
    assert convert(own, "cai").ptr == own.ptr
    with pytest.raises(BufferError, match="view: got a released view"):
        convert(seen[1], "cai")


@pytest.mark.parametrize("to", ["cai", "dlpack", "stand_in"])
def test_calls_whose_arrays_are_kept_use_the_same_events_again(cuda, library, to):
    kept = []

    # The stream of these producers is unknown, so their memory stays until the work is done.
    def call():
        made = cuda.array([1.0] * 4, speaks="dlpack")
        adapt(kept.append, to, stream=cuda.default_stream(0))(made)
        return count(cuda, "cuEventCreate")

    call()
    first = call()
    assert [call() for _ in range(4)] == [first] * 4
    cuda.synchronize()


def test_what_ended_in_the_call_is_not_waited_for_again(cuda, producer):
    x, mine = made_on(cuda, producer, 7.0), cuda.stream("mine")

    def function(a):
        seen = cuda.consumer("dlpack", mine).read(a)
        seen.release()
        cuda.clear_calls()
        return a, seen

    kept = adapt(function, "dlpack", returns=None)(x)
    assert count(cuda, "cuEventRecord") == 0
    producer.fill(x, -1.0, name="the caller's next write")
    assert done(kept[1]) == [7.0] * 4
