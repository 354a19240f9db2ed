"""`adapt`: which functions can be adapted, and what they keep."""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import Any

import pytest
from stand_in import Array, OddError, StandIn, library, made_on, no_libraries, producer

from cai_bridge import adapt

__all__ = ["library", "no_libraries", "producer"]


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

        @adapt(to="stand_in")
        @staticmethod
        def static_inside(x: Any) -> Any:
            return type(x)

        @adapt(to="stand_in")
        @classmethod
        def of_class_inside(cls, x: Any) -> Any:
            return cls, type(x)

        def plain(self, x: Any) -> Any:
            return self, type(x)

        def __call__(self, x: Any) -> Any:
            return self, type(x)

    model, x = Model(), cuda.array([1.0])
    assert model.method(x) is model
    assert model.seen == [Array]
    assert Model.static(x) is Array
    assert Model.static_inside(x) is model.static_inside(x) is Array
    assert model.static_inside([x]) is list
    assert model.of_class(x) == Model.of_class_inside(x) == (Model, Array)
    assert adapt(model.plain, "stand_in")(x) == (model, Array)
    assert adapt(model, "stand_in")(x) == (model, Array)
    partial = functools.partial(model.plain)
    assert adapt(partial, "stand_in")(x) == (model, Array)


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
    with pytest.raises(
        TypeError, match=r"^function: got a generator function; allowed: functions, "
    ):
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


@pytest.mark.parametrize("library", ["cupy", functools])
def test_a_library_in_the_functions_place_is_told_where_it_goes(library: Any) -> None:
    with pytest.raises(TypeError, match=r"; the library goes by its name: adapt\(to='cupy'\)$"):
        adapt(library)


def test_a_library_that_is_not_known_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"^to: got 'nobody'; allowed: "):
        adapt(len, "nobody")


@pytest.mark.parametrize("returns", ["nobody", 3])
def test_a_library_of_results_that_is_not_known_is_refused_at_once(returns: Any) -> None:
    with pytest.raises(TypeError, match=r"^returns: got .+; allowed: "):
        adapt(len, returns=returns)


def test_gradients_have_the_callers_kind_and_nothing_else_can_be_asked_for() -> None:
    with pytest.raises(
        TypeError, match=r"^returns: got 'numpy'; allowed: 'like', if backward= is given"
    ):
        adapt(len, returns="numpy", backward=len)


def test_a_function_that_only_reads_is_vouched_for(cuda: Any, library: StandIn) -> None:
    x = cuda.array([1.0] * 4, speaks="dlpack", readonly=True)
    with pytest.raises(BufferError, match="readonly: got read-only memory"):
        adapt(lambda a: None, "stand_in")(x)
    seen = adapt(lambda a: a.view.ptr, "stand_in", readonly=False)(x)
    assert seen == x.ptr
    assert x.exports == 0
