"""`adapt`: a function of one library's arrays for callers with another's."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
from typing import Any, NamedTuple

import numpy as np
import pytest
import tvm_ffi
from fakes import only_cai
from stand_in import Array, StandIn, count, library, made_on, no_libraries, producer

from cai_bridge import CaiView, DLPackView, _libraries, adapt, register, to_cai

__all__ = ["library", "no_libraries", "producer"]


def twice(x: Any) -> Any:
    """Double what the consumer has, in place, on its stream."""
    x.stream.launch(
        lambda: None, reads=[x.view], writes=[], name="the consumer's look at what is there"
    )
    x.write(14.0)


# a call


@pytest.mark.parametrize("speaks", ["exchange", "cai3", ("exchange", "cai2")])
def test_the_function_works_in_order_and_gives_the_memory_back_in_order(
    cuda: Any, library: StandIn, producer: Any, speaks: Any
) -> None:
    x = made_on(cuda, producer, 7.0, speaks)
    read = []

    @adapt(to="stand_in")
    def function(x: Any) -> None:
        assert type(x) is Array
        read.append(x.read())
        x.write(14.0)

    function(x)
    seen = producer.read(x)
    producer.fill(x, 9.0, name="the producer's next write")
    cuda.synchronize()
    assert (read[0].value, seen.value) == ([7.0] * 4, [14.0] * 4)
    assert x.exports == 0


@pytest.mark.unchecked
@pytest.mark.parametrize("nth", [1, 2])
def test_without_the_wait_at_either_end_there_is_a_race(
    cuda: Any, library: StandIn, producer: Any, nth: int
) -> None:
    x = made_on(cuda, producer)
    cuda.suppress("cuStreamWaitEvent", nth=nth)
    adapt(twice, "stand_in")(x)
    producer.fill(x, 9.0, name="the producer's next write")
    cuda.synchronize()
    assert "race" in [report.kind for report in cuda.reports]
    assert cuda.clear_faults() == 0


def test_all_kinds_of_arguments_are_converted(cuda: Any, library: StandIn, producer: Any) -> None:
    xs = [made_on(cuda, producer, float(i)) for i in range(10)]
    seen = []

    @adapt(to="stand_in")
    def function(one: Any, *more: Any, last: Any, **others: Any) -> None:
        everything = [one, *more[0], more[1], *last["a"], *others.values()]
        seen.extend(x.read() for x in everything)
        seen.append(others)

    function(xs[0], xs[1:4], xs[4], last={"a": xs[5:8]}, m=xs[8], n=xs[9])
    names = seen.pop()
    cuda.synchronize()
    assert [one.value[0] for one in seen] == [float(i) for i in range(10)]
    assert list(names) == ["m", "n"]


def test_one_event_orders_all_arguments(cuda: Any, library: StandIn, producer: Any) -> None:
    xs = [made_on(cuda, producer) for _ in range(10)]

    @adapt(to="stand_in")
    def function(*xs: Any, other: Any) -> None:
        assert count(cuda, "cuEventRecord") == count(cuda, "cuStreamWaitEvent") == 1

    cuda.clear_calls()
    function(*xs[:9], other=[xs[9]])
    cuda.synchronize()


def test_what_is_no_array_of_a_gpu_passes_as_it_is(cuda: Any, library: StandIn) -> None:
    host, notes, thing = np.ones(3), [1, 2], object()
    given = []
    adapt(lambda *args, **kwargs: given.append((args, kwargs)), "stand_in")(
        host, notes, 3, thing, None, option="a", other=notes
    )
    ((a_host, a_list, three, a_thing, nothing), kwargs) = given[0]
    assert (a_host is host, a_list is notes, three, a_thing is thing) == (True, True, 3, True)
    assert nothing is None
    assert kwargs == {"option": "a", "other": notes}
    assert kwargs["other"] is notes


def test_views_are_given_by_default(cuda: Any, producer: Any) -> None:
    x = made_on(cuda, producer, 7.0)
    kinds = []
    adapt(lambda x: kinds.append(type(x)))(x)
    adapt(lambda x: kinds.append(type(x)), "dlpack")(x)
    assert kinds == [CaiView, DLPackView]
    assert x.exports == 0
    cuda.synchronize()


# streams


def test_a_stream_that_is_said_is_the_functions(cuda: Any, library: StandIn, producer: Any) -> None:
    mine, x = cuda.stream("mine"), made_on(cuda, producer, 7.0)
    seen = []
    adapt(lambda x: seen.append(mine.read(x)), stream=mine)(x)
    producer.fill(x, 9.0, name="the producer's next write")
    cuda.synchronize()
    assert seen[0].value == [7.0] * 4
    assert library.asked == []


def late(cuda: Any, stream: Any) -> Any:
    """An array whose library works on the legacy stream by now, which its dict names."""
    made = cuda.array([1.0] * 4, speaks="cai3")
    stream.fill(made, 7.0)
    return made, only_cai(made, stream=1)


@pytest.mark.parametrize("how", ["stream", "callable"])
def test_what_a_function_made_on_its_stream_is_ready_on_the_callers(
    cuda: Any, library: StandIn, producer: Any, how: str
) -> None:
    mine, x = cuda.stream("mine"), made_on(cuda, producer)
    stream = mine if how == "stream" else lambda: mine
    made = adapt(lambda x: {"y": late(cuda, mine)[1]}, stream=stream, returns="stand_in")(x)["y"]
    seen = made.read()
    cuda.synchronize()
    assert seen.value == [7.0] * 4


def test_what_a_function_made_on_its_stream_goes_back_to_that(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    mine, x = cuda.stream("mine"), made_on(cuda, producer)
    kept = []
    function = lambda x: kept.extend(late(cuda, mine)) or kept[1]  # noqa: E731
    made = adapt(function, stream=mine, returns="stand_in")(x)
    seen = made.read()
    del made
    mine.fill(kept[0], 9.0, name="the function's next write")
    cuda.synchronize()
    assert seen.value == [7.0] * 4


def test_the_callers_own_arrays_are_ready_there_too_and_stay_themselves(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    mine, x = cuda.stream("mine"), made_on(cuda, producer)
    held = Array(to_cai(late(cuda, mine)[1], stream=-1), library.streams[0])
    made = adapt(lambda x: held, stream=mine, returns="stand_in")(x)
    assert made is held
    seen = library.streams[0].read(held.view)
    cuda.synchronize()
    assert seen.value == [7.0] * 4


def test_a_callable_is_asked_for_the_stream_at_each_call(cuda: Any, producer: Any) -> None:
    streams = [cuda.stream("first"), cuda.stream("second")]
    left, seen = list(streams), []
    function = adapt(lambda x: seen.append(x.stream), stream=lambda: left.pop(0))
    x = made_on(cuda, producer)
    assert left == streams
    function(x)
    assert left == streams[1:]
    function(x)
    assert seen == [stream.handle for stream in streams]
    cuda.synchronize()


def test_a_stream_object_that_can_be_called_is_a_stream(cuda: Any, producer: Any) -> None:
    mine = cuda.stream("mine")

    class Callable:
        def __cuda_stream__(self) -> Any:
            return mine.__cuda_stream__()

        def __call__(self) -> Any:
            raise AssertionError("called")

    seen = []
    adapt(lambda x: seen.append(x.stream), stream=Callable())(made_on(cuda, producer))
    assert seen == [mine.handle]
    cuda.synchronize()


# what comes back


def test_a_result_comes_back_like_the_first_array(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    x = made_on(cuda, producer, 7.0)
    with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", 0), producer.handle):
        tensor = tvm_ffi.from_dlpack(x)

        @adapt(to="stand_in")
        def function(number: int, x: Any, y: Any) -> Any:
            x.write(14.0)
            return x

        made = function(3, tensor, made_on(cuda, producer))
        assert type(made) is tvm_ffi.Tensor
        assert made.data_ptr() == x.ptr
        seen = producer.read(to_cai(made, stream=producer))
    cuda.synchronize()
    assert seen.value == [14.0] * 4
    del made
    gc.collect()
    cuda.synchronize()


def test_a_tree_of_results_comes_back_in_its_shape(cuda: Any, producer: Any) -> None:
    class Made(NamedTuple):
        one: Any
        host: Any

    tensor, host = tvm_ffi.from_dlpack(made_on(cuda, producer)), np.ones(2)
    cuda.synchronize()
    made = adapt(lambda x: {"a": [Made(x, host), 3]})(tensor)
    (one, three) = made["a"]
    assert (type(one), type(one.one), one.host is host, three) == (Made, tvm_ffi.Tensor, True, 3)


@pytest.mark.parametrize("returns", ["stand_in", Array])
def test_a_result_comes_back_as_is_said(
    cuda: Any, library: StandIn, producer: Any, returns: Any
) -> None:
    x = made_on(cuda, producer, 7.0)
    made = adapt(lambda x: x, returns=returns)(x)
    assert type(made) is Array
    assert made.view.ptr == x.ptr
    seen = made.read()
    del made
    cuda.synchronize()
    assert seen.value == [7.0] * 4


def test_a_result_as_numpy_is_on_the_host_in_order(cuda: Any, library: StandIn, producer: Any):
    x = made_on(cuda, producer, 7.0)

    def function(x: Any) -> Any:
        x.write(14.0)
        return x

    made = adapt(function, "stand_in", returns=np)(x)
    assert made.tolist() == [14.0] * 4
    producer.fill(x, 9.0)
    cuda.synchronize()


def test_a_result_stays_as_it_is_where_that_is_said(cuda: Any, producer: Any) -> None:
    x = made_on(cuda, producer)
    made = adapt(lambda x: x, returns=None)(x)
    assert type(made) is CaiView
    assert made.ptr == x.ptr
    made.release()
    cuda.synchronize()


def test_a_result_like_an_array_of_no_known_library_stays_as_it_is(cuda: Any) -> None:
    # Nobody makes arrays of the simulated device's type.
    made = adapt(lambda x: x)(cuda.array([1.0]))
    assert type(made) is CaiView


@pytest.mark.parametrize("to", ["cai", "dlpack"])
def test_a_result_comes_back_like_a_view(cuda: Any, library: StandIn, to: str) -> None:
    view = adapt(lambda x: x, to, returns=None)(cuda.array([1.0]))
    made = adapt(lambda x: x, "stand_in")(view)
    assert type(made) is type(view)
    assert made.ptr == view.ptr


def test_without_an_array_among_the_arguments_results_stay_as_they_are(
    cuda: Any, library: StandIn
) -> None:
    x = cuda.array([1.0])
    assert adapt(lambda: x, "stand_in")() is x
    assert adapt(lambda: 3, "stand_in")() == 3
    assert type(adapt(lambda: x, returns="stand_in")()) is Array


def test_results_on_the_host_are_numpys_own(cuda: Any, producer: Any) -> None:
    x = made_on(cuda, producer, 7.0)
    made = adapt(lambda x: x.sum(), "numpy")(x)
    assert made == 28.0
    cuda.synchronize()


# exceptions


class OddError(Exception):
    pass


@pytest.mark.parametrize("to", ["cai", "dlpack", "stand_in"])
def test_an_exception_passes_through_and_the_memory_goes_back_in_order(
    cuda: Any, library: StandIn, producer: Any, to: str
) -> None:
    x = made_on(cuda, producer, 7.0)
    mine = cuda.stream("mine")
    seen = []

    @adapt(to=to, stream=mine)
    def function(x: Any) -> None:
        seen.append(mine.read(x.view if to == "stand_in" else x))
        raise OddError

    with pytest.raises(OddError) as caught:
        function(x)
    if to == "stand_in":
        # Its arrays go with the traceback, which holds the function's frame.
        del caught
        gc.collect()
    assert x.exports == 0
    producer.fill(x, 9.0, name="the producer's next write")
    cuda.synchronize()
    assert seen[0].value == [7.0] * 4


def test_an_interrupt_gives_the_memory_back_too(cuda: Any, producer: Any) -> None:
    x = made_on(cuda, producer)
    views = []

    @adapt
    def function(x: Any) -> None:
        views.append(x)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        function(x)
    assert x.exports == 0
    with pytest.raises(BufferError, match=r"^view: got a released view"):
        _ = views[0].__cuda_array_interface__
    cuda.synchronize()


def test_a_refused_argument_is_named_and_the_others_are_given_back(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    good, bad = made_on(cuda, producer), cuda.array([1.0], readonly=True)
    called = []

    @adapt(to="stand_in")
    def function(image: Any, mask: Any = None, *more: Any, option: Any = None, **rest: Any) -> None:
        called.append(1)

    for where, args, kwargs in (
        ("image", (bad,), {}),
        (r"mask\[2\]", (good, [1, 2, bad]), {}),
        ("argument 3", (good, good, bad), {}),
        (r'argument 4\["a"\]', (good, good, 1, {"a": bad}), {}),
        ("option", (good,), {"option": bad}),
        (r"other\[0\]", (good,), {"other": [bad]}),
    ):
        with pytest.raises(BufferError, match=rf"^{where}: readonly: got .+; allowed: "):
            function(*args, **kwargs)
        gc.collect()
        assert (good.exports, bad.exports, called) == (0, 0, [])
    cuda.synchronize()


def test_a_function_that_tells_no_signature_has_its_arguments_counted(cuda: Any) -> None:
    bad = cuda.array([1.0], readonly=True)
    no_signature = functools.partial(adapt, to="tvm_ffi")(type)
    with pytest.raises(BufferError, match=r"^argument 1: readonly: "):
        no_signature(bad)


def test_a_result_that_is_refused_gives_everything_back(cuda: Any, library: StandIn) -> None:
    x = cuda.array([1.0], readonly=True)
    with pytest.raises(BufferError, match=r"^the result: readonly: got "):
        adapt(lambda x: x, returns="stand_in")(x)
    gc.collect()
    assert x.exports == 0


# what is adapted


def test_the_function_keeps_its_name_signature_and_docs() -> None:
    def function(one: int, *, other: str = "a") -> float:
        """Say what it does."""
        return 1.0

    for adapted in (adapt(function), adapt(to="dlpack")(function), adapt(function, "numpy")):
        assert adapted.__name__ == "function"
        assert adapted.__doc__ == "Say what it does."
        assert adapted.__wrapped__ is function
        assert inspect.signature(adapted) == inspect.signature(function)
        assert adapted(1) == 1.0


def test_a_method_is_adapted_in_its_class_and_bound(cuda: Any, library: StandIn) -> None:
    class Model:
        def __init__(self) -> None:
            self.seen: list[Any] = []

        @adapt(to="stand_in")
        def method(self, x: Any) -> Any:
            self.seen.append(type(x))
            return self

        @staticmethod
        @adapt(to="stand_in")
        def static(x: Any) -> Any:
            return type(x)

        @classmethod
        @adapt(to="stand_in")
        def of_class(cls, x: Any) -> Any:
            return cls, type(x)

        def plain(self, x: Any) -> Any:
            return self, type(x)

        def __call__(self, x: Any) -> Any:
            return self, type(x)

    model, x = Model(), cuda.array([1.0])
    assert model.method(x) is model
    assert model.seen == [Array]
    assert Model.static(x) is Array
    assert model.of_class(x) == (Model, Array)
    assert adapt(model.plain, "stand_in")(x) == (model, Array)
    assert adapt(model, "stand_in")(x) == (model, Array)
    partial = functools.partial(model.plain)
    assert adapt(partial, "stand_in")(x) == (model, Array)


def test_a_coroutine_keeps_the_memory_until_it_returns(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    x = made_on(cuda, producer, 7.0)
    seen = []

    @adapt(to="stand_in")
    async def function(x: Any) -> Any:
        await asyncio.sleep(0)
        assert x.view.owner.exports == 1
        seen.append(x.read())
        await asyncio.sleep(0)
        return 3

    assert inspect.iscoroutinefunction(function)
    assert asyncio.run(function(x)) == 3
    assert x.exports == 0
    producer.fill(x, 9.0, name="the producer's next write")
    cuda.synchronize()
    assert seen[0].value == [7.0] * 4


@pytest.mark.parametrize("ends", ["raises", "is cancelled", "is closed"])
def test_a_coroutine_that_does_not_return_gives_the_memory_back(
    cuda: Any, producer: Any, ends: str
) -> None:
    x = made_on(cuda, producer)

    @adapt
    async def function(x: Any) -> None:
        if ends == "raises":
            raise OddError
        await asyncio.sleep(3600)

    async def cancelled() -> None:
        task = asyncio.create_task(function(x))
        await asyncio.sleep(0)
        assert x.exports == 1
        task.cancel()
        await task

    if ends == "raises":
        with pytest.raises(OddError):
            asyncio.run(function(x))
    elif ends == "is cancelled":
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(cancelled())
    else:
        coroutine = function(x)
        coroutine.close()
    assert x.exports == 0
    cuda.synchronize()


def generator(x: Any) -> Any:
    yield x


async def async_generator(x: Any) -> Any:
    yield x


class Generates:
    def __call__(self, x: Any) -> Any:
        yield x

    def method(self, x: Any) -> Any:
        yield x


GENERATORS = [
    *(generator, async_generator, functools.partial(generator)),
    *(Generates().method, Generates()),
]


@pytest.mark.parametrize("function", GENERATORS, ids=lambda function: type(function).__name__)
def test_generators_are_refused(function: Any) -> None:
    with pytest.raises(TypeError, match=r"^function: got a generator; allowed: functions, "):
        adapt(function)


def test_an_object_whose_call_is_a_coroutine_keeps_the_memory(cuda: Any) -> None:
    x = cuda.array([1.0])

    class Model:
        async def __call__(self, x: Any) -> Any:
            await asyncio.sleep(0)
            return x.owner.exports

    adapted = adapt(Model())
    assert inspect.iscoroutinefunction(adapted)
    assert asyncio.run(adapted(x)) == 1
    assert x.exports == 0


@pytest.mark.parametrize("function", [3, "text", [len]])
def test_what_cannot_be_called_is_refused(function: Any) -> None:
    with pytest.raises(TypeError, match=r"^function: got .+; allowed: a callable"):
        adapt(function)


def test_a_library_that_is_not_known_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"^to: got 'nobody'; allowed: "):
        adapt(len, "nobody")


@pytest.mark.parametrize("returns", ["nobody", 3])
def test_a_library_of_results_that_is_not_known_is_refused_at_once(returns: Any) -> None:
    with pytest.raises(TypeError, match=r"^returns: got .+; allowed: "):
        adapt(len, returns=returns)


def test_gradients_have_the_callers_kind_and_nothing_else_can_be_asked_for() -> None:
    with pytest.raises(TypeError, match=r"^returns: got 'numpy'; allowed: 'like' beside backward="):
        adapt(len, returns="numpy", backward=len)


def test_a_library_that_is_replaced_later_is_still_the_one_that_was_found(
    cuda: Any, library: StandIn
) -> None:
    function = adapt(type, "stand_in")
    other = StandIn({0: cuda.legacy})
    register(other)
    assert _libraries.find("stand_in") is other
    assert function(cuda.array([1.0])) is Array
    assert (library.asked, other.asked) == ([0], [])


def test_a_method_of_a_dataclass_with_no_arrays_has_its_own_self(cuda: Any) -> None:
    import dataclasses

    @dataclasses.dataclass
    class Model:
        rate: float
        calls: int = 0

        @adapt
        def step(self, x: Any) -> None:
            self.calls += 1

    model = Model(0.1)
    model.step(cuda.array([1.0]))
    assert model.calls == 1


def test_a_function_that_only_reads_is_vouched_for(cuda: Any, library: StandIn) -> None:
    x = cuda.array([1.0] * 4, speaks="dlpack", readonly=True)
    with pytest.raises(BufferError, match="readonly: got read-only memory"):
        adapt(lambda a: None, "stand_in")(x)
    seen = adapt(lambda a: a.view.ptr, "stand_in", readonly=False)(x)
    assert seen == x.ptr
    assert x.exports == 0
