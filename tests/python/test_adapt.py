"""`adapt`: a function of one library's arrays for callers with another's."""

from __future__ import annotations

import functools
import gc
from typing import Any

import numpy as np
import pytest
from scenes import done
from stand_in import Array, OddError, StandIn, count, library, made_on, no_libraries, producer

from cai_bridge import CaiView, DLPackView, adapt

__all__ = ["library", "no_libraries", "producer"]


def twice(x: Any) -> Any:
    """Double what the consumer has, in place, on its stream."""
    x.stream.launch(
        lambda: None, reads=[x.view], writes=[], name="the consumer's look at what is there"
    )
    x.write(14.0)


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ({"stream": "x"}, TypeError, "stream: got an object of type str; allowed: "),
        ({"stream": 0}, ValueError, "stream: got 0; allowed: "),
        ({"readonly": 1}, TypeError, "readonly: got 1 (int); allowed: "),
        ({"readonly": 1, "backward": twice}, TypeError, "readonly: got 1 (int); "),
    ],
)
def test_what_is_no_stream_or_flag_is_refused_before_there_is_a_call(
    library: StandIn, wrong: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as refused:
        adapt(twice, "stand_in", **wrong)
    assert str(refused.value).startswith(said)


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


# exceptions


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
    assert done(seen[0]) == [7.0] * 4


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
