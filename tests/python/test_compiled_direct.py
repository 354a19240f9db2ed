"""Plain calls of an operator, which go straight to its function, and those that are followed."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled_operators import MARKS, cube, made, nothing_is_compiled, same, written, x
from stand_in import Array, OddError, StandIn, count, library, made_on, no_libraries, producer
from tests.gpu.compiled_cost import FORMS, calls_in, programs

from cai_bridge import adapt
from cai_bridge._compiled import Wanted

torch = pytest.importorskip("torch", reason="no PyTorch: make test-clients installs it")
from cai_bridge._compiled_calls import with_tensors  # noqa: E402 - it imports PyTorch

pytestmark = MARKS
__all__ = ["library", "no_libraries", "nothing_is_compiled", "producer", "x"]

CUBE = "cai_test::cube"


def in_a_mode(x: Any) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, f: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(f))
            return f(*args, **(kwargs or {}))

    with Mode():
        made(x, 3.0)
    return seen


def in_a_function_mode(x: Any) -> Any:
    seen = []

    class Mode(torch.overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
        def __torch_function__(self, f: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(f))
            return f(*args, **(kwargs or {}))

    with Mode():
        made(x, 3.0)
    return seen


def in_a_profile(x: Any) -> Any:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        made(x, 3.0)
    return [one.name for one in profile.events()]


def traced(x: Any) -> Any:
    return str(torch.jit.trace(lambda x: made(x, 3.0), (x,), check_trace=False).graph)


def made_fx(x: Any) -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx

    return str(make_fx(lambda x: made(x, 3.0))(x).graph)


def of_a_subclass(x: Any) -> Any:
    seen = []

    class Own(torch.Tensor):  # type: ignore[misc, name-defined]
        @classmethod
        def __torch_function__(cls, f: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(f))
            return super().__torch_function__(f, types, args, kwargs or {})

    made(x.as_subclass(Own), 3.0)
    return seen


def cast(x: Any) -> Any:
    f = adapt(lambda x: x * 2, "numpy", op="cai_test::cast(Tensor x) -> Tensor")
    torch.library.register_autocast("cai_test::cast", "cpu", torch.bfloat16)
    with torch.autocast("cpu"):
        return str(f(x.float()).dtype)


FOLLOWERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a mode": (in_a_mode, "cai_test.cube.default"),
    "a function mode": (in_a_function_mode, "cai_test.cube.default"),
    "a profiler": (in_a_profile, CUBE),
    "a trace": (traced, CUBE),
    "a graph": (made_fx, "cai_test.cube.default"),
    "autocast": (cast, "bfloat16"),
    "a subclass": (of_a_subclass, "cai_test.cube.default"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [*FOLLOWERS])
def test_who_follows_a_call_sees_it(case: str, x: Any) -> None:
    follow, named = FOLLOWERS[case]
    found = follow(x)
    assert any(named in one for one in (found if isinstance(found, list) else [found]))


def fake(x: Any) -> Any:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode() as mode:
        return made(mode.from_tensor(x), 3.0).shape


i = torch.tensor([1 + 2j, 3 - 1j])
UNUSUAL: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "a conjugate": (lambda x: made(i.conj(), 1.0), lambda x: cube(i.conj(), 1.0)),
    "a negative": (lambda x: made(i.conj().imag, 1.0), lambda x: cube(i.conj().imag, 1.0)),
    "meta": (lambda x: made(x.to("meta"), 1.0).is_meta, lambda x: True),
    "a fake": (fake, lambda x: x.shape),
    "inference": (
        torch.inference_mode()(lambda x: made(x + 1, 1.0) + 1),
        lambda x: cube(x + 1, 1.0) + 1,
    ),
    "a parameter": (
        torch.no_grad()(lambda x: made(torch.nn.Parameter(x), 1.0)),
        lambda x: cube(x, 1.0),
    ),
    "under no_grad": (
        torch.no_grad()(lambda x: made(x.clone().requires_grad_(), 1.0).requires_grad),
        lambda x: False,
    ),
}


@pytest.mark.parametrize("case", [*UNUSUAL])
def test_a_call_that_is_not_plain_is_right(case: str, x: Any) -> None:
    seen, wanted = UNUSUAL[case]
    made(x, 1.0)  # a plain one before
    same(seen(x), wanted(x))


def test_the_function_gets_the_types_of_the_schema(x: Any) -> None:
    seen = []

    def function(x: Any, by: float, n: int, on: bool) -> Any:
        seen.append((type(by), type(n), type(on)))
        return x + 1

    f = adapt(function, "numpy", op="cai_test::typed(Tensor x, float by, int n, bool on) -> Tensor")
    for values in ((2.0, 3, True), (2, 3, True), (np.float64(2), 3, True)):
        f(x, *values)
    assert set(seen) == {(float, int, bool)}
    for values in ((2.0, 3.5, True), ("2", 3, True)):
        with pytest.raises(RuntimeError, match=r"[Ee]xpected"):
            f(x, *values)


def test_a_function_with_tensors_of_its_own_is_no_part_of_autograd(x: Any) -> None:
    weight = torch.ones_like(x, requires_grad=True)
    weighted = adapt(lambda x: x * weight, "torch", op="cai_test::weighted(Tensor x) -> Tensor")
    assert not weighted(x).requires_grad


MORE = {"into": 6, "returned": 8}
"""How many functions more than by hand are called in a call, by Python and in C."""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_compiled", [False, True], ids=["plain", "compiled"])
def test_a_call_costs_little_more_than_one_by_hand(form: str, is_compiled: bool, x: Any) -> None:
    gc.disable()
    try:
        programs_of = programs("cpu", f"counted_{is_compiled}", is_compiled=is_compiled)[form]
        took = {who: calls_in(lambda f=f: f(x)) for who, f in programs_of.items()}
    finally:
        gc.enable()
    assert took["ours"] <= took["by hand"] + MORE[form], took


def test_a_plain_call_is_counted_at_all(x: Any) -> None:
    """What the dispatcher adds is more than what is allowed: so the count notices it."""
    plain = calls_in(lambda: written(x, 2.0))
    with torch.overrides.BaseTorchFunctionMode():
        assert calls_in(lambda: written(x, 2.0)) > plain + MORE["into"]


# memory of a GPU: arrays of the simulated device stand for tensors, which are asked two things more


def on_gpus(function: Callable[..., Any], stream: Any = None) -> Callable[..., Any]:
    """Give what an operator does with a function that takes an array, a number, and an array."""
    of_library = functools.partial(adapt, to="stand_in", stream=stream, readonly=False)
    wanted = Wanted(function, "stand_in", of_library, lambda f: f, None, True, None, stream)
    return with_tensors(wanted, function, [0, 2])


def tensor_on(cuda: Any, producer: Any, value: float) -> Any:
    x = made_on(cuda, producer, value)
    x.is_cuda, x.requires_grad = True, False
    return x


@pytest.mark.parametrize("of", ["library", "stream", "callback"])
def test_arrays_of_a_gpu_come_and_go_in_order(
    of: str, cuda: Any, library: StandIn, producer: Any
) -> None:
    own = library.streams[0] if of == "library" else cuda.stream("own")
    x, y = tensor_on(cuda, producer, 7.0), tensor_on(cuda, producer, 1.0)
    read, kept = [], []

    def function(x: Any, by: float, y: Any) -> None:
        assert (type(x), by, type(y)) == (Array, 2.0, Array)
        read.append(own.read(x.view, name="the function's read"))
        own.fill(y.view, 14.0, name="the function's write")
        kept.extend((x, y))  # in order all the same

    stream = {"library": None, "stream": own, "callback": lambda: own}[of]
    on_gpus(function, stream)(x, 2.0, y)
    seen = producer.read(y)
    producer.fill(x, 9.0, name="the producer's next write")
    cuda.synchronize()
    assert (read[0].value, seen.value) == ([7.0] * 4, [14.0] * 4)


def test_one_event_orders_all_of_them(cuda: Any, library: StandIn, producer: Any) -> None:
    x, y = tensor_on(cuda, producer, 7.0), tensor_on(cuda, producer, 1.0)

    def function(x: Any, by: float, y: Any) -> None:
        assert count(cuda, "cuEventRecord") == count(cuda, "cuStreamWaitEvent") == 1

    cuda.clear_calls()
    on_gpus(function)(x, 2.0, y)
    cuda.synchronize()


def test_what_is_refused_is_named(cuda: Any, library: StandIn, producer: Any) -> None:
    x, y = tensor_on(cuda, producer, 7.0), tensor_on(cuda, producer, 1.0)
    library.refused.add(y.ptr)
    with pytest.raises(BufferError, match=r"^strides: got odd ones(?s:.)*at y"):
        on_gpus(lambda x, by, y: None)(x, 2.0, y)


def test_what_the_function_raises_leaves_the_memory_in_order(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    x, y = tensor_on(cuda, producer, 7.0), tensor_on(cuda, producer, 1.0)

    def function(x: Any, by: float, y: Any) -> None:
        y.write(14.0)
        raise OddError

    with pytest.raises(OddError):
        on_gpus(function)(x, 2.0, y)
    seen = producer.read(y)
    cuda.synchronize()
    assert seen.value == [14.0] * 4
