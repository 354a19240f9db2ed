"""What `adapt(op=)` is asked for, and what a call of an operator does: plain, or followed."""

import functools
import gc

import numpy as np
import pytest
from compiled_operators import (
    MARKS,
    compiled,
    gradient,
    made,
    nothing_is_compiled,
    second_op,
    written,
)
from stand_in import Array, OddError, count, library, made_on, no_libraries, producer
from test_gradients import cube, same, x
from tests.gpu.compiled_cost import FORMS, calls_in, programs

from cai_bridge import adapt
from cai_bridge._compiled import Wanted

torch = pytest.importorskip("torch", reason="no PyTorch: make test-clients installs it")
from cai_bridge._compiled_calls import with_tensors  # noqa: E402 - it imports PyTorch

pytestmark = MARKS
__all__ = ["library", "no_libraries", "nothing_is_compiled", "producer", "x"]

CUBE = "cai_test::b(Tensor x, float by) -> Tensor"
WRITES = "t::a(Tensor(a!) x) -> ()"
WRONG = {
    "no name": ({"op": "cube"}, "op: got 'cube'; allowed: 'namespace::name', alone or"),
    "no text": ({"op": 3}, "op: got 3; allowed: 'namespace::name'"),
    "no schema": ({"op": "t::a(Tenor x) -> Tensor"}, "op: got 't::a.Tenor x. -> Tensor"),
    "a list": ({"op": "t::a(Tensor[] x) -> Tensor"}, "op: got "),
    "optional": ({"op": "t::a(Tensor? x) -> Tensor"}, "op: got "),
    "by name": ({"op": "t::a(Tensor x, *, int y) -> Tensor"}, "op: got y behind "),
    "no tensor": ({"op": "t::a(int x) -> Tensor"}, "op: got .*; allowed: one Tensor"),
    "an alias": ({"op": "t::a(Tensor(a) x) -> Tensor(a)"}, "op: got -> Tensor.a.; all"),
    "nothing": ({"op": "t::a(Tensor x) -> ()"}, "op: got .*; allowed: a result, or"),
    "both": ({"op": "t::a(Tensor(a!) x) -> Tensor"}, "op: got .*; allowed: results, or"),
    "a float": ({"op": "t::a(Tensor x) -> float"}, "op: got -> float; allowed: -> Ten"),
    "another library's": ({"op": "aten::sin(Tensor x, float by) -> Tensor"}, "op: got 'aten::sin'"),
    "its overloads'": ({"op": "aten::add(Tensor x, float by) -> Tensor"}, "op: got 'aten::add'"),
    "a backward of what writes": (
        {"op": WRITES, "backward": cube},
        "backward: got a callable for a function that writes x; allowed: None",
    ),
    "into and writes": (
        {"op": WRITES, "into": True},
        "into: got True for a function without results",
    ),
    "into of jax": (
        {"op": "t::a(Tensor x) -> Tensor", "into": True, "to": "jax"},
        "into: got True with to='jax', which never writes",
    ),
    "like": ({"op": "t::a", "like": 3}, "like: got 3; allowed: a function of what"),
    "readonly": ({"op": "t::a", "readonly": True}, "readonly: got True; allowed"),
    "returns": ({"op": "t::a", "returns": "cupy"}, "returns: got 'cupy'; allowed: 'like'"),
    "another's backward": (
        {"op": CUBE, "backward": second_op},
        r"backward: got cai_test::second\(.*; allowed: an operator that takes and returns as many",
    ),
}


@pytest.mark.parametrize("case", [*WRONG])
def test_what_is_asked_for_is_refused_by_adapt_itself(case):
    how, said = WRONG[case]
    with pytest.raises((TypeError, ValueError), match=f"^{said}"):
        adapt(cube, **{"to": "numpy", **how})


async def later(x):
    return x


SO = "function: got one that cannot be called so: "
MISTAKEN = {
    "into without a result": (
        lambda x, by: None,
        {"op": CUBE, "into": True},
        f"{SO}too many positional arguments; allowed: one that takes 3 arguments: x, by, result 0, "
        "which the function writes with into=True",
    ),
    "a result without into": (
        lambda x, by, y: None,
        {"op": CUBE},
        f"{SO}missing a required argument: 'y'; allowed: one that takes 2 arguments: x, by; into=T",
    ),
    "a write without an argument": (
        lambda: None,
        {"op": WRITES},
        f"{SO}too many positional arguments; allowed: one that takes 1 arguments: x",
    ),
    "no parameters": (lambda *x: x[0], {"op": "t::a"}, "op: got 't::a' for a function whose para"),
    "a coroutine": (later, {"op": "t::a"}, "function: got a coroutine function; allowed: with op="),
}


@pytest.mark.parametrize("case", [*MISTAKEN])
def test_a_function_that_takes_other_arguments_than_the_schema_says_is_refused(case):
    function, how, said = MISTAKEN[case]
    with pytest.raises((TypeError, ValueError), match=f"^{said}"):
        adapt(function, "numpy", **how)


def test_what_is_passed_behind_the_arguments_is_refused(x):
    for f in (written, made):
        with pytest.raises(TypeError, match="got 3 arguments; allowed: 2: x, by, without the res"):
            f(x, 2.0, x)


@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_results_that_a_kernel_writes_are_not_guessed_from_several_shapes(backend, x):
    def function(x, y, out):
        np.multiply(x, y, out=out)

    def called(op, y, like=None):
        op = f"cai_test::{op}(Tensor x, Tensor y) -> Tensor"
        f = adapt(function, "numpy", op=op, into=True, like=like)
        return (f if backend is None else compiled(f, backend))(x, y)

    error = ValueError if backend is None else torch._dynamo.exc.TorchDynamoException
    said = r"like: got None with into=True, and arrays of several shapes: x has"
    for wrong in (x[0], torch.cat([x, x])):
        with pytest.raises(error, match=said):
            called("guessed", wrong)
    same(called("guessed", x + 1), x * (x + 1))
    same(called("guessed", torch.tensor(2.0).double()), x * 2)
    same(called("said", x[0], lambda x, y: x), x * x[0])


def test_the_schema_is_made_of_the_parameters():
    def scaled(x, by: float, times: int = 2, up: bool = True):
        return x * by

    f = adapt(scaled, "numpy", op="cai_test::scaled")
    assert f.__name__ == "scaled"
    schema = str(torch.ops.cai_test.scaled.default._schema)
    assert schema == "cai_test::scaled(Tensor x, float by, SymInt times=2, bool up=True) -> Tensor"
    same(f(torch.ones(2), by=3.0), torch.full((2,), 3.0))
    for wrong, said in (({}, "by: got no argument"), ({"by": 1.0, "on": 2}, "on: got an argument")):
        with pytest.raises(TypeError, match=f"^{said}"):
            f(torch.ones(2), **wrong)


def test_a_size_may_be_an_argument(x):
    def rows(x, count: int = 1):
        return np.repeat(x[:1], count, axis=0)

    def backward(g, x, count):
        return np.pad(g.sum(0, keepdims=True), ((0, len(x) - 1), (0, 0))), None

    like = lambda x, count: ((count, x.shape[1]), x.dtype)  # noqa: E731
    f = adapt(rows, "numpy", op="cai_test::rows", like=like, backward=backward)
    program = compiled(lambda x: f(x, x.shape[0] + 1), "aot_eager", dynamic=True)
    for size in (1, 2):
        same(program(x[:size]), x[:1].expand(size + 1, 3))
        wanted = torch.zeros(size, 3, dtype=torch.float64)
        wanted[0] = size + 1
        same(gradient(program, x[:size]), wanted)


def test_defaults_of_every_type_are_left_out_of_the_backward():
    f = adapt(
        lambda x, a, p, f: x * f,
        "numpy",
        op='cai_test::many(Tensor x, str a="b, c", int[2] p=[0, 1], float f=1e-3) -> Tensor',
        backward=lambda g, x, a, p, f: (g * f, None, None, None),
    )
    same(gradient(f, torch.ones(2)), torch.full((2,), 1e-3))


def test_an_operator_may_be_defined_again(x):
    again = "cai_test::again(Tensor x) -> Tensor"
    for by in (2.0, 3.0):
        f = adapt(lambda x, by=by: x * by, "numpy", op=again)
        same(compiled(f, "aot_eager")(x), x * by)
    said = r"which is there with \(Tensor x\) -> Tensor and into=False"
    with pytest.raises(ValueError, match=said):
        adapt(lambda x, y: None, "numpy", op=again, into=True)


def test_arrays_of_others_go_the_plain_way():
    assert made(np.full(2, 2.0), 1.0).tolist() == [8.0, 8.0]
    with pytest.raises(TypeError, match=r"^into: got a call with ndarray, float; allowed: PyTorch"):
        written(np.ones(2), 1.0)


def in_mode(base, hook):
    """Call the operator in a mode of PyTorch's, and give what the mode saw."""

    def follow(x):
        seen = []

        def called(self, f, _, args=(), kwargs=None):
            seen.append(str(f))
            return f(*args, **(kwargs or {}))

        with type("Mode", (base,), {hook: called})():
            made(x, 3.0)
        return seen

    return follow


def in_a_profile(x):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        made(x, 3.0)
    return [one.name for one in profile.events()]


def traced(x):
    return [str(torch.jit.trace(lambda x: made(x, 3.0), (x,), check_trace=False).graph)]


def made_fx(x):
    from torch.fx.experimental.proxy_tensor import make_fx

    return [str(make_fx(lambda x: made(x, 3.0))(x).graph)]


def of_a_subclass(x):
    seen = []

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, f, types, args=(), kwargs=None):
            seen.append(str(f))
            return super().__torch_function__(f, types, args, kwargs or {})

    made(x.as_subclass(Own), 3.0)
    return seen


def cast(x):
    f = adapt(lambda x: x * 2, "numpy", op="cai_test::cast(Tensor x) -> Tensor")
    torch.library.register_autocast("cai_test::cast", "cpu", torch.bfloat16)
    with torch.autocast("cpu"):
        return [str(f(x.float()).dtype)]


DISPATCH = torch.utils._python_dispatch.TorchDispatchMode
FOLLOWERS = {
    "a mode": (in_mode(DISPATCH, "__torch_dispatch__"), "cai_test.cube.default"),
    "a function mode": (
        in_mode(torch.overrides.TorchFunctionMode, "__torch_function__"),
        "cai_test.cube.default",
    ),
    "a profiler": (in_a_profile, "cai_test::cube"),
    "a trace": (traced, "cai_test::cube"),
    "a graph": (made_fx, "cai_test.cube.default"),
    "autocast": (cast, "bfloat16"),
    "a subclass": (of_a_subclass, "cai_test.cube.default"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [*FOLLOWERS])
def test_who_follows_a_call_sees_it(case, x):
    follow, named = FOLLOWERS[case]
    assert any(named in one for one in follow(x))


def fake(x):
    with torch._subclasses.FakeTensorMode() as mode:
        return made(mode.from_tensor(x), 3.0).shape


i = torch.tensor([1 + 2j, 3 - 1j])
no_grad, inference = torch.no_grad(), torch.inference_mode()
UNUSUAL = {
    "a conjugate": (lambda x: made(i.conj(), 1.0), lambda x: cube(i.conj(), 1.0)),
    "a negative": (lambda x: made(i.conj().imag, 1.0), lambda x: cube(i.conj().imag, 1.0)),
    "meta": (lambda x: made(x.to("meta"), 1.0).is_meta, lambda x: True),
    "a fake": (fake, lambda x: x.shape),
    "inference": (inference(lambda x: made(x + 1, 1.0) + 1), lambda x: cube(x + 1, 1.0) + 1),
    "a parameter": (no_grad(lambda x: made(torch.nn.Parameter(x), 1.0)), lambda x: cube(x, 1.0)),
    "under no_grad": (
        no_grad(lambda x: made(x.clone().requires_grad_(), 1.0).requires_grad),
        lambda x: False,
    ),
}


@pytest.mark.parametrize("case", [*UNUSUAL])
def test_a_call_that_is_not_plain_is_right(case, x):
    seen, wanted = UNUSUAL[case]
    made(x, 1.0)  # a plain one before
    same(seen(x), wanted(x))


def test_the_function_gets_the_types_of_the_schema(x):
    seen = []

    def function(x, by, n, on):
        seen.append((type(by), type(n), type(on)))
        return x + 1

    f = adapt(function, "numpy", op="cai_test::typed(Tensor x, float by, int n, bool on) -> Tensor")
    for by in (2.0, 2, np.float64(2)):
        f(x, by, 3, True)
    assert set(seen) == {(float, int, bool)}
    for values in ((2.0, 3.5, True), ("2", 3, True)):
        with pytest.raises(RuntimeError, match=r"[Ee]xpected"):
            f(x, *values)


def test_a_function_with_tensors_of_its_own_is_no_part_of_autograd(x):
    weight = torch.ones_like(x, requires_grad=True)
    weighted = adapt(lambda x: x * weight, "torch", op="cai_test::weighted(Tensor x) -> Tensor")
    assert not weighted(x).requires_grad


MORE = {"into": 6, "returned": 8}
"""How many functions more than by hand are called in a call, by Python and in C."""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_compiled", [False, True], ids=["plain", "compiled"])
def test_a_call_costs_little_more_than_one_by_hand(form, is_compiled, x):
    gc.disable()
    try:
        programs_of = programs("cpu", f"counted_{is_compiled}", is_compiled=is_compiled)[form]
        took = {who: calls_in(lambda f=f: f(x)) for who, f in programs_of.items()}
    finally:
        gc.enable()
    assert took["ours"] <= took["by hand"] + MORE[form], took


def on_gpus(function, stream=None):
    """Give what an operator does with a function that takes an array, a number, and an array."""
    of_library = functools.partial(adapt, to="stand_in", stream=stream, readonly=False)
    wanted = Wanted(function, "stand_in", of_library, lambda f: f, None, True, None, stream)
    return with_tensors(wanted, function, [0, 2])


@pytest.fixture
def tensors(cuda, producer):
    made = [made_on(cuda, producer, value) for value in (7.0, 1.0)]
    for one in made:
        one.is_cuda, one.requires_grad = True, False
    return made


@pytest.mark.parametrize("of", ["library", "stream", "callback"])
@pytest.mark.parametrize("raises", [False, True])
def test_arrays_of_a_gpu_come_and_go_in_order(of, raises, cuda, library, producer, tensors):
    own = library.streams[0] if of == "library" else cuda.stream("own")
    (x, y), read, kept = tensors, [], []

    def function(x, by, y):
        assert (type(x), by, type(y)) == (Array, 2.0, Array)
        assert count(cuda, "cuEventRecord") == count(cuda, "cuStreamWaitEvent") == 1
        read.append(own.read(x.view, name="the function's read"))
        own.fill(y.view, 14.0, name="the function's write")
        kept.extend((x, y))  # in order all the same
        if raises:
            raise OddError

    stream = {"library": None, "stream": own, "callback": lambda: own}[of]
    cuda.clear_calls()
    try:
        on_gpus(function, stream)(x, 2.0, y)
    except OddError:
        assert raises
    seen = producer.read(y)
    producer.fill(x, 9.0, name="the producer's next write")
    cuda.synchronize()
    assert (read[0].value, seen.value) == ([7.0] * 4, [14.0] * 4)


def test_what_is_refused_is_named(library, tensors):
    x, y = tensors
    library.refused.add(y.ptr)
    with pytest.raises(BufferError, match=r"^strides: got odd ones(?s:.)*at y"):
        on_gpus(lambda x, by, y: None)(x, 2.0, y)
