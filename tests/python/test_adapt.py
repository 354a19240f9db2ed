"""`adapt`: what a call gives its function, what comes back, and which functions can be adapted."""

import asyncio
import copy
import dataclasses
import functools
import gc
import inspect
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest
import tvm_ffi
from scenes import done
from stand_in import Array, OddError, count, library, made_on, no_libraries, producer

from cai_bridge import CaiView, DLPackView, adapt, to_cai, to_dlpack

__all__ = ["library", "no_libraries", "producer"]


def generator(x):
    yield x


async def async_generator(x):
    yield x


class Generates:
    def __call__(self, x):
        yield x


A_GENERATOR = r"^function: got a generator function; allowed: functions, "
REFUSED = {
    "a stream of words": (len, {"stream": "x"}, r"^stream: got an object of type str; allowed: "),
    "the stream 0": (len, {"stream": 0}, "^stream: got 0; allowed: "),
    "a flag": (len, {"readonly": 1}, r"^readonly: got 1 \(int\); allowed: "),
    "a flag with a backward": (len, {"readonly": 1, "backward": len}, r"^readonly: got 1 \(int\)"),
    "an asynchronous generator": (async_generator, {}, A_GENERATOR),
    "a generator in a partial": (functools.partial(generator), {}, A_GENERATOR),
    "an object that generates": (Generates(), {}, A_GENERATOR),
    "a number": (3, {}, "^function: got .+; allowed: a callable"),
    "a list": ([len], {}, "^function: got .+; allowed: a callable"),
    "a module": (functools, {}, r"; the library goes by its name: adapt\(to='cupy'\)$"),
    "an unknown library": (len, {"to": "nobody"}, "^to: got 'nobody'; allowed: "),
    "results of one": (len, {"returns": "nobody"}, "^returns: got 'nobody'; allowed: "),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_adapted_is_refused_before_there_is_a_call(case):
    function, how, said = REFUSED[case]
    with pytest.raises((TypeError, ValueError), match=said):
        adapt(function, **how)


def test_all_kinds_of_arguments_are_converted_with_one_event(cuda, library, producer):
    xs = [made_on(cuda, producer, float(i)) for i in range(10)]
    seen = []

    @adapt(to="stand_in")
    def function(one, *more, last, **others):
        assert count(cuda, "cuEventRecord") == count(cuda, "cuStreamWaitEvent") == 1
        assert list(others) == ["m", "n"]
        seen.extend(x.read() for x in [one, *more[0], more[1], *last["a"], *others.values()])

    cuda.clear_calls()
    function(xs[0], xs[1:4], xs[4], last={"a": xs[5:8]}, m=xs[8], n=xs[9])
    cuda.synchronize()
    assert [one.value[0] for one in seen] == [float(i) for i in range(10)]


def test_what_is_no_array_of_a_gpu_passes_as_it_is(cuda, library):
    given = [np.ones(3), [1, 2], 3, object(), None]
    taken, others = adapt(lambda *args, **others: (args, others), "stand_in", returns=None)(
        *given, option="a", other=given[1]
    )
    assert all(one is other for one, other in zip(taken, given, strict=True))
    assert others["other"] is given[1]


def test_a_callable_is_asked_for_the_stream_at_each_call(cuda, producer):
    streams = [cuda.stream("first"), cuda.stream("second")]
    left, seen = list(streams), []
    function = adapt(lambda x: seen.append(x.stream), stream=lambda: left.pop(0))
    assert left == streams
    for _ in streams:
        function(made_on(cuda, producer))
    assert seen == [stream.handle for stream in streams]
    cuda.synchronize()


def test_a_stream_object_that_can_be_called_is_a_stream(cuda, producer):
    class Callable:
        def __cuda_stream__(self):
            return producer.__cuda_stream__()

        def __call__(self):
            raise AssertionError("called")

    made = adapt(lambda x: x.stream, stream=Callable())(made_on(cuda, producer))
    assert made == producer.handle


def test_a_refused_argument_is_named_and_the_others_are_given_back(cuda, library, producer):
    good, bad = made_on(cuda, producer), cuda.array([1.0], readonly=True)
    called = []

    @adapt(to="stand_in")
    def function(image, mask=None, *more, option=None, **rest):
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
    with pytest.raises(BufferError, match=r"^argument 1: readonly: "):
        adapt(type, to="tvm_ffi")(bad)  # `type` tells no signature
    with pytest.raises(BufferError, match=r"^the result: readonly: got "):
        adapt(lambda x: x, returns="stand_in")(bad)
    gc.collect()
    assert bad.exports == 0


class Made(NamedTuple):
    one: Any
    host: Any


def test_results_come_back_like_the_first_array(cuda, library, producer):
    x, host = made_on(cuda, producer, 7.0), np.ones(2)
    with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", 0), producer.handle):

        @adapt(to="stand_in")
        def function(number, x, y):
            x.write(14.0)
            return {"a": [Made(x, host), 3]}

        (made, three) = function(3, tvm_ffi.from_dlpack(x), made_on(cuda, producer))["a"]
        assert (type(made), type(made.one), made.host is host) == (Made, tvm_ffi.Tensor, True)
        assert (made.one.data_ptr(), three) == (x.ptr, 3)
        assert done(producer.read(to_cai(made.one, stream=producer))) == [14.0] * 4
    del made
    gc.collect()
    cuda.synchronize()


RESULTS = {
    "a library": (lambda x: x, {"returns": "stand_in"}, Array),
    "a type": (lambda x: x, {"returns": Array}, Array),
    "none": (lambda x: x, {"returns": None}, CaiView),
    "nobody makes arrays of its type": (lambda x: x, {}, CaiView),
    "like a view of CAI": (to_cai, {"to": "stand_in"}, CaiView),
    "like a view of DLPack": (to_dlpack, {"to": "stand_in"}, DLPackView),
}


@pytest.mark.parametrize("case", RESULTS)
def test_a_result_comes_back_as_is_said(cuda, library, producer, case):
    given, how, kind = RESULTS[case]
    x = made_on(cuda, producer, 7.0)
    made = adapt(lambda x: x, **how)(given(x))
    assert type(made) is kind
    assert (made.view if kind is Array else made).ptr == x.ptr
    cuda.synchronize()


def test_without_an_array_among_the_arguments_results_stay_as_they_are(cuda, library):
    x = cuda.array([1.0])
    assert adapt(lambda: x, "stand_in")() is x
    assert type(adapt(lambda: x, returns="stand_in")()) is Array


def test_what_a_function_would_write_to_numpys_copy_is_refused_not_lost(cuda, producer):
    x = made_on(cuda, producer, 7.0)

    def add_one(x):
        x += 1
        return float(x[0])

    with pytest.raises(ValueError, match="read-only"):
        adapt(add_one, "numpy")(x)
    assert adapt(add_one, "numpy", readonly=False)(x) == 8.0


def test_what_comes_back_as_a_view_is_ordered_for_whoever_reads_it(cuda):
    producer, own, reader = (cuda.stream(name) for name in ("producer's", "own", "reader's"))
    x = cuda.array([1.0] * 4, speaks="cai3", stream=producer)
    made = adapt(lambda x: x, "dlpack", stream=own, returns="cai")(x)
    read = cuda.consumer("cai-waits", reader).read(made)
    read.release()
    made.release()
    producer.fill(x, 9.0)
    assert done(read) == [1.0] * 4


def by_other(function):
    @functools.wraps(function)
    def called(*args):
        return function(*args)

    return called


@dataclasses.dataclass
class Model:
    """A container with an array, which an argument is converted as; `self` passes as it is."""

    weight: Any
    steps: int = 0

    def took(self, x):
        self.steps += 1
        return self, type(self.weight), type(x)

    @adapt(to="numpy")
    def step(self, x, y=None):
        """Take a step."""
        return self.took(x)

    @by_other
    @adapt(to="numpy")
    def decorated(self, x):
        return self.took(x)

    @property
    @adapt(to="numpy")
    def asked(self):
        return self.took(np.ones(1))

    @adapt(to="numpy")
    async def awaited(self, x):
        await asyncio.sleep(0)
        return self.took(x)

    @classmethod
    @adapt(to="numpy")
    def of_class(cls, x):
        return cls, None, type(x)

    @adapt(to="numpy")
    @classmethod
    def of_class_inside(cls, x):
        return cls, None, type(x)

    @staticmethod
    @adapt(to="numpy")
    def static(x):
        return None, None, type(x)

    @adapt(to="numpy")
    @staticmethod
    def static_inside(x):
        return None, None, type(x)

    def __call__(self, x):
        return self.took(x)


class Deeper(Model):
    def step(self, x, y=None):
        return super().step(x, y)


@adapt(to="numpy")
def in_a_module(self):
    """No method, for all that its parameter is called."""
    return None, None, type(self)


METHODS = {
    "bound": lambda model, x: model.step(x),
    "by its class": Model.step,
    "decorated further": lambda model, x: model.decorated(x),
    "a coroutine": lambda model, x: asyncio.run(model.awaited(x)),
    "in a partial": lambda model, x: functools.partial(model.step, x)(),
    "a property": lambda model, x: model.asked,
    "super": Deeper.step,
    "adapted when bound": lambda model, x: adapt(model.took, "numpy")(x),
    "in an adapted partial": lambda model, x: adapt(functools.partial(model.took), "numpy")(x),
    "an object that is called": lambda model, x: adapt(model, "numpy")(x),
}
OTHERS = {
    "a class method": (lambda model, x: model.of_class(x), Deeper),
    "a class method inside": (lambda model, x: Deeper.of_class_inside(x), Deeper),
    "a static method": (lambda model, x: Model.static(x), None),
    "a static method inside": (lambda model, x: model.static_inside(x), None),
    "a function": (lambda model, x: in_a_module(x), None),
}


@pytest.mark.parametrize("case", [*METHODS, *OTHERS])
def test_self_passes_as_it_is_and_the_other_arguments_are_converted(cuda, case):
    x, model = cuda.array([1.0]), Deeper(cuda.array([1.0]))
    call, own = OTHERS.get(case) or (METHODS[case], model)
    assert call(model, x) == (own, type(x) if own is model else None, np.ndarray)
    assert (model.steps, x.exports) == (int(own is model), 0)


def test_a_refused_argument_of_a_method_is_named(cuda):
    x, model = cuda.array([1.0]), Model(cuda.array([1.0]))
    bad = to_cai(x)
    bad.release()
    for call in (model.step, functools.partial(Model.step, model)):
        with pytest.raises(BufferError, match=r"^y\[0\]: view: got a released view"):
            call(x, [bad])
        with pytest.raises(BufferError, match=r"^x: view: got a released view"):
            call(bad)


def test_results_are_like_the_first_array_after_self(cuda):
    class Gives(Model):
        @adapt(to="cai")
        def give(self, x):
            return x

    model = Gives(to_cai(cuda.array([1.0])))
    assert type(model.give(to_dlpack(cuda.array([1.0])))) is DLPackView


def test_an_adapted_function_keeps_its_name_signature_and_docs():
    plain, model = Model.step.__wrapped__, Model(2.0)
    for adapted in (Model.step, adapt(plain), adapt(to="dlpack")(plain)):
        assert (adapted.__wrapped__, adapted.__name__) == (plain, "step")
        assert (adapted.__doc__, inspect.signature(adapted)) == (
            "Take a step.",
            inspect.signature(plain),
        )
    assert str(inspect.signature(model.step)) == "(x, y=None)"
    assert Model.step.__qualname__ == model.step.__qualname__ == "Model.step"
    assert model.step == model.step
    assert inspect.isroutine(Model.step)
    coroutine = inspect.iscoroutinefunction
    assert [coroutine(f) for f in (Model.awaited, model.awaited, Model.step)] == [True, True, False]
    assert adapt(functools.partial(model.took), "numpy").__name__ == "called"


def test_an_adapted_function_is_pickled_by_its_name():
    for one in (in_a_module, Model.step):
        assert pickle.loads(pickle.dumps(one)) is copy.deepcopy(one) is one
    bound = pickle.loads(pickle.dumps(Model(2.0).step))
    assert bound.__self__ == Model(2.0)


@pytest.mark.parametrize("ends", ["returns", "raises", "is cancelled", "is closed"])
def test_a_coroutine_has_the_memory_until_it_ends(cuda, producer, ends):
    x = made_on(cuda, producer)

    class Called:
        async def __call__(self, x):
            if ends == "raises":
                raise OddError
            await asyncio.sleep(0 if ends == "returns" else 3600)
            return x.owner.exports

    function = adapt(Called())
    assert inspect.iscoroutinefunction(function)

    async def cancelled():
        task = asyncio.create_task(function(x))
        await asyncio.sleep(0)
        assert x.exports == 1
        task.cancel()
        await task

    if ends == "returns":
        assert asyncio.run(function(x)) == 1
    elif ends == "is closed":
        function(x).close()
    else:
        with pytest.raises(OddError if ends == "raises" else asyncio.CancelledError):
            asyncio.run(function(x) if ends == "raises" else cancelled())
    assert x.exports == 0
    cuda.synchronize()
