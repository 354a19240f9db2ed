"""`adapt` in classes: `self` passes as it is, and what else a method is stays so."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import functools
import inspect
import pickle
from typing import Any

import numpy as np
import pytest

from cai_bridge import DLPackView, adapt, to_cai, to_dlpack


def by_other(function: Any) -> Any:
    @functools.wraps(function)
    def called(*args: Any) -> Any:
        return function(*args)

    return called


def outside(model: Any, x: Any) -> Any:
    return model.took(x)


@dataclasses.dataclass
class Model:
    """A container with an array, which an argument is converted as."""

    weight: Any
    steps: int = 0

    def took(self, x: Any) -> Any:
        self.steps += 1
        return self, type(self.weight), type(x)

    @adapt(to="numpy")
    def step(self, x: Any, y: Any = None) -> Any:
        return self.took(x)

    @by_other
    @adapt(to="numpy")
    def decorated(self, x: Any) -> Any:
        return self.took(x)

    @property
    @adapt(to="numpy")
    def asked(self) -> Any:
        return self.took(self.weight)[:2]

    @adapt(to="numpy")
    async def awaited(self, x: Any) -> Any:
        await asyncio.sleep(0)
        return self.took(x)

    @classmethod
    @adapt(to="numpy")
    def of_class(cls, x: Any) -> Any:
        return cls, type(x)

    @staticmethod
    @adapt(to="numpy")
    def static(x: Any) -> Any:
        return type(x)


class Deeper(Model):
    def step(self, x: Any, y: Any = None) -> Any:
        return super().step(x, y)


@pytest.fixture
def model(cuda: Any) -> Model:
    return Model(cuda.array([1.0]))


@adapt(to="numpy")
def in_a_module(self: Any) -> Any:
    return type(self)


CALLS = {
    "bound": lambda model, x: model.step(x),
    "by its class": Model.step,
    "decorated further": lambda model, x: model.decorated(x),
    "a coroutine": lambda model, x: asyncio.run(model.awaited(x)),
    "in a partial": lambda model, x: functools.partial(model.step, x)(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_self_passes_as_it_is(model: Model, cuda: Any, call: Any) -> None:
    x = cuda.array([1.0])
    own, weight, taken = call(model, x)
    assert own is model
    assert (weight is type(x), taken, model.steps) == (True, np.ndarray, 1)
    assert x.exports == 0


def test_a_property_and_super_have_their_own_self(model: Model, cuda: Any) -> None:
    own, weight = model.asked
    assert (own is model, weight) == (True, type(model.weight))
    deeper = Deeper(model.weight)
    assert deeper.step(model.weight)[0] is deeper


def test_all_other_arguments_are_converted(model: Model, cuda: Any) -> None:
    x = cuda.array([1.0])
    assert model.of_class(x) == (Model, np.ndarray)
    assert Model.static(x) is np.ndarray
    # It is no method, for all that its parameter is called.
    assert in_a_module(x) is np.ndarray
    kinds = model.step(x, y={"a": x})
    assert kinds[2] is np.ndarray
    bad = to_cai(x)
    bad.release()
    for call in (model.step, functools.partial(Model.step, model)):
        with pytest.raises(BufferError, match=r"^y\[0\]: view: got a released view"):
            call(x, [bad])
        with pytest.raises(BufferError, match=r"^x: view: got a released view"):
            call(bad)


def test_results_are_like_the_first_array_after_self(cuda: Any) -> None:
    class Gives(Model):
        @adapt(to="cai")
        def give(self, x: Any) -> Any:
            return x

    model = Gives(to_cai(cuda.array([1.0])))
    assert type(model.give(to_dlpack(cuda.array([1.0])))) is DLPackView


def test_a_method_shows_what_the_function_does(model: Model) -> None:
    plain = Model.step.__wrapped__
    assert inspect.signature(Model.step) == inspect.signature(plain)
    assert str(inspect.signature(model.step)) == "(x: 'Any', y: 'Any' = None) -> 'Any'"
    assert (Model.step.__name__, model.step.__name__) == ("step", "step")
    assert Model.step.__qualname__ == model.step.__qualname__ == "Model.step"
    assert Model.step is Model.step
    assert model.step == model.step
    for one in (Model.awaited, model.awaited):
        assert inspect.iscoroutinefunction(one)
    assert inspect.isroutine(Model.step)
    assert not inspect.iscoroutinefunction(Model.step)


def test_what_has_no_name_has_a_name_all_the_same(model: Model) -> None:
    adapted = adapt(functools.partial(outside, model), "numpy")
    assert adapted.__name__ == "called"


def test_an_adapted_function_is_pickled_by_its_name() -> None:
    for one in (in_a_module, Model.step):
        assert pickle.loads(pickle.dumps(one)) is copy.deepcopy(one) is one
    bound = pickle.loads(pickle.dumps(Model(2.0).step))
    assert bound.__self__ == Model(2.0)
