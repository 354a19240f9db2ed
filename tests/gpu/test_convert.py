"""`convert` and `adapt` between the libraries themselves: no copy, and order at both ends.

The producer's write waits behind a spinning kernel, and so does the consumer's read where the end
is tested: what is not ordered is seen in the values.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from cai_bridge import DLPackView, adapt, convert, from_cai, to_cai, to_dlpack
from cai_bridge._libraries import _cupy, _jax, _numba

from . import capsules, libraries, streams
from .copies import cai_of
from .libraries import PRODUCERS, STANDARD, Seen, host_values, pointer_of, same_bits
from .streams import WORDS, handle_of
from .test_values import COMPACT, LAYOUTS, REVERSED, check_layout, layouts

RUNS = 30
ROUNDS = 200
LATE_MS = 3.0
LATE = -1.0
TO = ["torch", "cupy", "numba", "jax", "cuda", "tvm_ffi"]
FROM = ["torch", "cupy", "numba", "jax", "tvm_ffi"]
PAIRS = [(source, sink) for source in FROM for sink in TO if source != sink]

SEEN: dict[str, Callable[[Any], Seen]] = {
    "torch": libraries.torch_seen,
    "cupy": libraries.cupy_seen,
    "numba": libraries.numba_seen,
    "jax": libraries.jax_seen,
    "cuda": libraries.core_seen,
    "tvm_ffi": libraries.tvm_seen,
}


def needs(*names: str) -> None:
    """Skip where one of these libraries is missing."""
    for name in names:
        if name == "jax":
            libraries.gpu_jax()
        else:
            pytest.importorskip({"numba": "numba.cuda", "cuda": "cuda.core.utils"}.get(name, name))


def make(library: str, host: np.ndarray[Any, Any]) -> Any:
    """An array of a library with these values; tvm-ffi's is one of torch's memory."""
    if library != "tvm_ffi":
        return PRODUCERS[library](host, host.dtype.name)
    tensor = PRODUCERS["torch"](host, host.dtype.name)
    return pytest.importorskip("tvm_ffi").from_dlpack(tensor)


def pointer(array: Any, library: str) -> int:
    return int(array.data_ptr()) if library == "tvm_ffi" else pointer_of(array, library)


# values


@pytest.mark.parametrize("dtype", STANDARD)
@pytest.mark.parametrize(("source", "sink"), PAIRS)
def test_every_dtype_goes_from_each_library_to_each_without_a_copy(
    driver: Any, source: str, sink: str, dtype: str
) -> None:
    needs(source, sink)
    if dtype.startswith("complex") and "tvm_ffi" in (source, sink):
        pytest.skip("tvm-ffi 0.1.15 has no complex types")
    host = host_values(dtype)
    array = make(source, host)
    driver.synchronize()
    made = convert(array, sink, readonly=False)
    seen = SEEN[sink](made)
    assert seen.ptr == pointer(array, source), "a copy"
    assert (seen.shape, seen.dtype) == (host.shape, dtype)
    assert same_bits(seen.values, host)
    assert convert(made, sink) is made


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sink", TO)
@pytest.mark.parametrize("source", ["torch", "cupy"])
def test_every_layout_that_the_library_has(
    driver: Any, source: str, sink: str, layout: str
) -> None:
    needs(source, sink)
    if source == sink or (layout in REVERSED and "torch" in (source, sink)):
        pytest.skip("torch has no negative strides")
    if sink == "jax" and layout not in COMPACT:
        pytest.skip("JAX takes compact layouts only")
    array, host = layouts(source)[layout]
    driver.synchronize()
    seen = SEEN[sink](convert(array, sink))
    check_layout(seen, host, pointer_of(array, source), strides=sink != "jax")


@pytest.mark.parametrize("source", FROM)
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_numpy_is_given_a_copy_on_the_host(driver: Any, source: str, dtype: str) -> None:
    needs(source)
    host = host_values(dtype)
    made = convert(make(source, host), np)
    assert type(made) is np.ndarray
    assert same_bits(made, host)


@pytest.mark.parametrize("sink", TO)
def test_read_only_memory_goes_to_those_that_only_read(driver: Any, words: Any, sink: str) -> None:
    needs(sink)
    x = cai_of(words(WORDS), (WORDS,))
    x.__cuda_array_interface__["data"] = (x.__cuda_array_interface__["data"][0], True)
    ptr = x.__cuda_array_interface__["data"][0]
    if sink == "jax":
        assert SEEN[sink](convert(x, sink)).ptr == ptr
        return
    with pytest.raises(BufferError, match=r"^readonly: got read-only memory; allowed: "):
        convert(x, sink)
    assert SEEN[sink](convert(x, sink, readonly=False)).ptr == ptr
    assert SEEN[sink](convert(x, sink, copy=True)).ptr != ptr


@pytest.mark.parametrize("sink", ["torch", "cupy", "numba", "tvm_ffi"])
def test_jaxs_arrays_are_read_only(driver: Any, sink: str) -> None:
    needs("jax", sink)
    with pytest.raises(BufferError, match=r"^readonly: got read-only memory; allowed: "):
        convert(make("jax", host_values("float32")), sink)


# which library


def test_libraries_are_named_by_their_modules_and_types(driver: Any) -> None:
    needs("torch", "cupy", "numba", "jax")
    import cupy
    import jax
    import torch
    from numba import cuda

    x = make("cupy", host_values("float32"))
    tensor, device_array = convert(x, torch), convert(x, cuda)
    array = convert(x, jax)
    assert isinstance(tensor, torch.Tensor)
    assert isinstance(array, jax.Array)
    assert cuda.is_cuda_array(device_array)
    assert isinstance(convert(tensor, cupy), cupy.ndarray)
    for to in (torch.Tensor, torch.nn.Parameter, type(tensor), torch.cuda, "torch.cuda"):
        assert isinstance(convert(x, to), torch.Tensor)
    for to in (jax.Array, type(array), jax.numpy, "jaxlib"):
        assert isinstance(convert(x, to), jax.Array)
    for to in (type(device_array), "numba.cuda"):
        assert type(convert(x, to)) is type(device_array)
    with pytest.raises(TypeError, match=r"^to: got the type torch"):
        convert(x, torch.nn.Module)


def test_containers_of_the_libraries_are_taken_apart(driver: Any) -> None:
    needs("torch", "jax", "cupy")
    import cupy
    import jax
    import torch

    @jax.tree_util.register_pytree_node_class
    class Node:
        def __init__(self, x: Any, name: str) -> None:
            self.x, self.name = x, name

        def tree_flatten(self) -> Any:
            return (self.x,), self.name

        @classmethod
        def tree_unflatten(cls, name: str, children: Any) -> Any:
            return cls(*children, name)

    tensor, host = torch.ones(3, device="cuda"), torch.ones(2)
    tree = {"node": Node([tensor], "mine"), "host": host, "shape": tensor.shape, "none": None}
    made = convert(tree, "cupy")
    node = made["node"]
    assert (type(node), node.name) == (Node, "mine")
    assert isinstance(node.x[0], cupy.ndarray)
    assert node.x[0].data.ptr == tensor.data_ptr()
    assert made["host"] is host
    assert made["shape"] is tree["shape"]
    parameters = dict(torch.nn.Linear(3, 2, device="cuda").named_parameters())
    with pytest.raises(BufferError, match=r"^x\['weight'\]: requires_grad: "):
        convert(parameters, "cupy")
    weights = convert(parameters, "cupy", detach=True)
    assert weights["weight"].data.ptr == parameters["weight"].data_ptr()


# order


class Named:
    """A stream by its handle, which whoever is given it keeps."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


class Torch:
    """PyTorch on a side stream."""

    to = "torch"

    def __init__(self, place: Place) -> None:
        self.torch = pytest.importorskip("torch")
        self.stream = self.torch.cuda.Stream()
        self.array = self.torch.zeros(WORDS, device="cuda")
        self.out = self.torch.zeros(WORDS, device="cuda")

    def working(self) -> Any:
        return self.torch.cuda.stream(self.stream)

    says: ClassVar[dict[str, Any]] = {}

    def written(self, value: float) -> Any:
        streams.torch_writes_late(self.array, value, self.stream, LATE_MS)
        return self.array

    def write(self, value: float) -> None:
        with self.working():
            self.array.fill_(value)

    def read(self, made: Any) -> None:
        with self.working():
            self.out.copy_(made)

    def seen(self) -> Any:
        self.stream.synchronize()
        return self.out.cpu().numpy()

    def native(self, array: Any) -> Any:
        return self.torch.from_dlpack(array)


class Cupy:
    """CuPy on a non-blocking stream."""

    to = "cupy"
    says: ClassVar[dict[str, Any]] = {}

    def __init__(self, place: Place) -> None:
        self.cupy = pytest.importorskip("cupy")
        self.stream = self.cupy.cuda.Stream(non_blocking=True)
        self.array = self.cupy.zeros(WORDS, dtype=np.float32)
        self.out = self.cupy.zeros(WORDS, dtype=np.float32)

    def working(self) -> Any:
        return self.stream

    def written(self, value: float) -> Any:
        streams.cupy_writes_late(self.array, value, self.stream, LATE_MS)
        return self.array

    def write(self, value: float) -> None:
        with self.stream:
            self.array.fill(value)

    def read(self, made: Any) -> None:
        with self.stream:
            self.out[...] = made

    def seen(self) -> Any:
        return self.cupy.asnumpy(self.out, stream=self.stream)

    def native(self, array: Any) -> Any:
        return self.cupy.from_dlpack(array)


class Numba:
    """Numba on a stream of its own, which its arrays name and kernels are told."""

    to = "numba"

    def __init__(self, place: Place) -> None:
        self.cuda = pytest.importorskip("numba.cuda")
        self.stream = self.cuda.stream()
        self.array = self.cuda.device_array(WORDS, dtype=np.float32, stream=self.stream)
        self.out = self.cuda.device_array(WORDS, dtype=np.float32)
        self.fill, self.copy = streams.numba_kernels()
        self.says = {"stream": self.stream}

    def working(self) -> Any:
        return contextlib.nullcontext()

    def written(self, value: float) -> Any:
        streams.numba_writes_late(self.array, value, self.stream, LATE_MS)
        return self.array

    def write(self, value: float) -> None:
        self.fill[(*streams.blocks_for(WORDS), self.stream)](self.array, value)

    def read(self, made: Any) -> None:
        self.copy[(*streams.blocks_for(WORDS), self.stream)](made, self.out)

    def seen(self) -> Any:
        host = self.out.copy_to_host(stream=self.stream)
        self.stream.synchronize()
        return host

    def native(self, array: Any) -> Any:
        return self.cuda.as_cuda_array(array, sync=False)


class Jax:
    """JAX, on whatever stream it runs."""

    to = "jax"
    says: ClassVar[dict[str, Any]] = {}
    MS = 10.0

    def __init__(self, place: Place) -> None:
        self.jax = libraries.gpu_jax()
        self.delay = streams.jax_delay(self.MS)
        self.copied = self.jax.jit(lambda array: array + 0)
        self.out: Any = None

    def working(self) -> Any:
        return contextlib.nullcontext()

    def written(self, value: float) -> Any:
        return self.delay(int(value))

    def read(self, made: Any) -> None:
        self.out = self.copied(made)

    def seen(self) -> Any:
        return np.asarray(self.out)


class ByDriver:
    """A library that has no work of its own: the driver copies from and writes to its arrays."""

    def __init__(self, place: Place) -> None:
        self.driver, self.stream = place.driver, Named(place.new_stream())
        self.out, self.memory = place.words(WORDS), place.words(WORDS)
        self.says: dict[str, Any] = {"stream": self.stream}

    def working(self) -> Any:
        return contextlib.nullcontext()

    def address(self, made: Any) -> int:
        raise NotImplementedError

    def read(self, made: Any) -> None:
        self.driver.copy(self.out, self.address(made), 4 * WORDS, self.stream.handle)

    def seen(self) -> Any:
        self.driver.synchronize()
        return np.frombuffer(self.driver.read(self.out, 4 * WORDS), np.float32)


class Core(ByDriver):
    """cuda.core's StridedMemoryView."""

    to = "cuda"

    def __init__(self, place: Place) -> None:
        pytest.importorskip("cuda.core.utils")
        super().__init__(place)

    def address(self, made: Any) -> int:
        return int(made.ptr)


class Tvm(ByDriver):
    """tvm-ffi, whose environment's stream is the one that its arrays are written on."""

    to = "tvm_ffi"

    def __init__(self, place: Place) -> None:
        self.tvm_ffi = pytest.importorskip("tvm_ffi")
        super().__init__(place)
        self.array = self.tvm_ffi.from_dlpack(from_cai(cai_of(self.memory, (WORDS,)), stream=-1))

    def working(self) -> Any:
        return self.tvm_ffi.use_raw_stream(self.tvm_ffi.device("cuda", 0), self.stream.handle)

    def address(self, made: Any) -> int:
        return int(made.data_ptr())

    def written(self, value: float) -> Any:
        self.driver.spin(self.stream.handle, LATE_MS)
        bits = int(np.float32(value).view(np.uint32))
        self.driver.write(self.memory, bits, WORDS, self.stream.handle)
        return self.array


WORKERS: dict[str, type[Any]] = {one.to: one for one in (Torch, Cupy, Numba, Jax, Core, Tvm)}


class Place:
    """What the workers are made with."""

    def __init__(self, driver: Any, new_stream: Any, words: Any) -> None:
        self.driver, self.new_stream, self.words = driver, new_stream, words


@pytest.fixture
def place(driver: Any, new_stream: Any, words: Any) -> Iterator[Place]:
    yield Place(driver, new_stream, words)
    gc.collect()
    driver.synchronize()


def handed_over(source: Any, sink: Any, array: Any, **how: Any) -> Any:
    """Convert, each library working on its stream."""
    with source.working(), sink.working():
        return convert(array, sink.to, **{"readonly": False, **sink.says, **how})


def wrong_runs(place: Place, source: Any, sink: Any, runs: int, **how: Any) -> int:
    """Count the runs that read anything but what was written late."""
    values, wrong = streams.fresh_values(), 0
    for _ in range(runs):
        place.driver.synchronize()
        value = float(next(values))
        array = source.written(value)
        made = handed_over(source, sink, array, **how)
        sink.read(made)
        wrong += not bool((sink.seen() == value).all())
        del made, array
    place.driver.synchronize()
    return wrong


@pytest.mark.parametrize(("source", "sink"), PAIRS)
def test_what_was_written_late_is_there(place: Place, note: Any, source: str, sink: str) -> None:
    one, other = WORKERS[source](place), WORKERS[sink](place)
    wrong_runs(place, one, other, 3)
    wrong = wrong_runs(place, one, other, RUNS)
    # JAX orders its own import and its own export, whatever was said.
    # tvm-ffi and Numba are both on the legacy stream here.
    tried = "jax" not in (source, sink) and (source, sink) != ("tvm_ffi", "numba")
    without = wrong_runs(place, one, other, RUNS, stream=-1) if tried else None
    note(f"convert({source} -> {sink}): wrong {wrong}/{RUNS}, {without} without the order")
    assert wrong == 0
    assert without != 0, "nothing went wrong without the order: the case shows nothing"


@pytest.mark.parametrize("stream", ["said", "current"])
@pytest.mark.parametrize(("source", "sink"), [("torch", "cupy"), ("cupy", "torch")])
def test_200_rounds_between_torch_and_cupy(
    place: Place, note: Any, source: str, sink: str, stream: str
) -> None:
    one, other = WORKERS[source](place), WORKERS[sink](place)
    how = {"stream": other.stream} if stream == "said" else {}
    wrong = wrong_runs(place, one, other, ROUNDS, **how)
    note(f"convert({source} -> {sink}), stream {stream}: wrong {wrong}/{ROUNDS}")
    assert wrong == 0


# JAX gives memory back when it is done with it, which may be later than its array's end.
ENDS = [
    (source, sink)
    for source in ("torch", "cupy", "numba")
    for sink in ("torch", "cupy", "numba", "cuda", "tvm_ffi")
    if source != sink
]


def overtaken(place: Place, source: Any, sink: Any, runs: int, hand_over: Any) -> int:
    """Count the runs whose late read saw the producer's next write."""
    values, wrong = streams.fresh_values(), 0
    for _ in range(runs):
        value = float(next(values))
        array = source.written(value)
        place.driver.synchronize()
        made = hand_over(array)
        place.driver.spin(handle_of(sink.stream), LATE_MS)
        sink.read(made)
        with source.working():
            del made
        source.write(LATE)
        wrong += not bool((sink.seen() == value).all())
        place.driver.synchronize()
        del array
    return wrong


@pytest.mark.parametrize(("source", "sink"), ENDS)
def test_the_producers_next_write_comes_after_the_consumers_read(
    place: Place, note: Any, source: str, sink: str
) -> None:
    one, other = WORKERS[source](place), WORKERS[sink](place)
    # Said, so that it is its object that is kept.
    how = {"stream": other.stream}
    hand_over = lambda array: handed_over(one, other, array, **how)  # noqa: E731
    wrong = overtaken(place, one, other, RUNS, hand_over)
    note(f"convert({source} -> {sink}), at the end: wrong {wrong}/{RUNS}")
    assert wrong == 0


@pytest.mark.parametrize(
    ("source", "sink"), [("torch", "cupy"), ("cupy", "torch"), ("torch", "numba")]
)
def test_of_the_librarys_own_way_the_next_write_overtakes_the_read(
    place: Place, source: str, sink: str
) -> None:
    one, other = WORKERS[source](place), WORKERS[sink](place)

    def native(array: Any) -> Any:
        with one.working(), other.working():
            return other.native(array)

    assert overtaken(place, one, other, RUNS, native) > 0


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_an_array_of_the_library_is_itself_in_order_for_a_stream(
    place: Place, library: str
) -> None:
    one, other = WORKERS[library](place), WORKERS[library](place)
    values = streams.fresh_values()
    for _ in range(RUNS):
        place.driver.synchronize()
        value = float(next(values))
        array = one.written(value)
        with one.working():
            assert convert(array, library, stream=other.stream) is array
        other.read(array)
        assert (other.seen() == value).all()


def test_a_thousand_tensors_go_to_cupy_in_order(place: Place) -> None:
    one, other = Torch(place), Cupy(place)
    value = float(next(streams.fresh_values()))
    array = one.written(value)
    with one.working():
        tensors = [row.clone() for row in array[:4000].reshape(1000, 4)]
    made = handed_over(one, other, {"all": tensors})["all"]
    with other.working():
        total = other.cupy.concatenate(made)
        assert (total.get() == value).all()
    pairs = zip(made, tensors, strict=True)
    assert all(new.data.ptr == tensor.data_ptr() for new, tensor in pairs)


# the quick routes

QUICK = {"cupy": _cupy, "numba": _numba}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("library", QUICK)
def test_the_quick_route_makes_what_the_public_one_makes(
    driver: Any, library: str, layout: str
) -> None:
    array, _ = layouts("cupy")[layout]
    needs(library)
    routes, view = QUICK[library]._routes(), to_cai(array, stream=-1)
    if not view.size:
        pytest.skip("arrays without elements go by the public route")
    quick, public = routes.quick(view, 0), routes.public(view, 0)
    assert routes.same(quick, public)
    assert (quick.shape, quick.dtype) == (public.shape, public.dtype)
    assert str(quick.flags) == str(public.flags)
    check_layout(SEEN[library](quick), SEEN[library](public).values, view.ptr, strides=False)
    routes(view, 0)
    assert routes.chosen is routes.quick


@pytest.mark.parametrize("dtype", STANDARD)
@pytest.mark.parametrize("library", QUICK)
def test_the_quick_route_has_every_dtype(driver: Any, library: str, dtype: str) -> None:
    needs(library)
    routes = QUICK[library]._routes()
    view = to_cai(make("cupy", host_values(dtype)), stream=-1)
    assert routes.same(routes.quick(view, 0), routes.public(view, 0))


@pytest.mark.parametrize("dtype", STANDARD)
def test_jaxs_quick_route_makes_what_the_public_one_makes(driver: Any, dtype: str) -> None:
    needs("jax", "cupy")
    routes, view = _jax._routes(), to_dlpack(make("cupy", host_values(dtype)))
    quick, public = routes.quick(view, None), routes.public(view, None)
    assert routes.same(quick, public)
    assert same_bits(np.asarray(quick), np.asarray(public))
    assert quick.dtype.name != dtype or quick.unsafe_buffer_pointer() == view.ptr
    routes(view, None)
    assert routes.chosen is routes.quick is not routes.public


# adapt

SOURCE = r"""
extern "C" __global__ void scale(const float* x, float* y, float by, int n)
{
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) y[i] = by * x[i];
}
"""


def test_a_raw_kernel_of_cupy_works_on_tensors(place: Place, cupy: Any) -> None:
    one = Torch(place)
    kernel = cupy.RawKernel(SOURCE, "scale")

    @adapt(to="cupy")
    def scaled(x: Any, by: float) -> Any:
        y = cupy.empty_like(x)
        kernel(streams.blocks_for(x.size)[:1], (128,), (x, y, np.float32(by), np.int32(x.size)))
        return y

    values = streams.fresh_values()
    for _ in range(RUNS):
        value = float(next(values))
        tensor = one.written(value)
        with one.working():
            made = scaled(tensor, 2.0)
            assert type(made) is one.torch.Tensor
            one.out.copy_(made)
            tensor.fill_(LATE)
        assert (one.seen() == 2.0 * value).all()


def test_a_kernel_of_numba_works_on_tensors(place: Place) -> None:
    one = Torch(place)
    pytest.importorskip("numba.cuda")
    _, kernel = streams.numba_kernels()

    @adapt(to="numba")
    def copied(x: Any, y: Any) -> None:
        kernel[streams.blocks_for(x.size)](x, y)

    values = streams.fresh_values()
    for _ in range(RUNS):
        value = float(next(values))
        tensor = one.written(value)
        with one.working():
            copied(tensor, one.out)
            tensor.fill_(LATE)
        assert (one.seen() == value).all()


def test_the_functions_stream_is_asked_for_at_each_call(place: Place, cupy: Any) -> None:
    one, other = Torch(place), Cupy(place)
    asked = []

    @adapt(to="cupy", stream=lambda: asked.append(1) or other.stream)
    def copied(x: Any) -> None:
        other.read(x)

    for _ in range(3):
        value = float(next(streams.fresh_values()))
        tensor = one.written(value)
        with one.working():
            copied(tensor)
            tensor.fill_(LATE)
        assert (other.seen() == value).all()
    assert len(asked) == 3


def test_gradients_of_cupys_functions_are_right(driver: Any, torch: Any, cupy: Any) -> None:
    def forward(x: Any, power: int, y: Any) -> Any:
        return x**power * y

    def backward(gradient: Any, x: Any, power: int, y: Any) -> Any:
        assert all(isinstance(one, cupy.ndarray) for one in (gradient, x, y))
        return gradient * power * x ** (power - 1) * y, None, gradient * x**power

    function = adapt(forward, "cupy", backward=backward)
    random = [torch.rand(3, 4, dtype=torch.float64, device="cuda") + 0.5 for _ in range(2)]
    inputs = [one.requires_grad_() for one in random]
    assert torch.autograd.gradcheck(lambda x, y: function(x, 3, y), inputs)
    result = function(inputs[0], 3, inputs[1])
    assert torch.allclose(result, inputs[0] ** 3 * inputs[1])
    assert result.requires_grad


def test_gradients_are_in_order_on_a_side_stream(driver: Any, torch: Any, cupy: Any) -> None:
    function = adapt(lambda x: x * x, "cupy", backward=lambda gradient, x: 2 * gradient * x)
    side, values = torch.cuda.Stream(), streams.fresh_values()
    for _ in range(RUNS):
        value = float(next(values))
        x = torch.zeros(WORDS, dtype=torch.float64, device="cuda")
        driver.synchronize()
        with torch.cuda.stream(side):
            driver.spin(handle_of(side), LATE_MS)
            x.fill_(value)
            x.requires_grad_()
            function(x).sum().backward()
            seen = x.grad.clone()
        side.synchronize()
        assert (seen.cpu() == 2 * value).all()


def test_gradients_are_not_differentiated_again(driver: Any, torch: Any, cupy: Any) -> None:
    function = adapt(lambda x: x * x, "cupy", backward=lambda gradient, x: 2 * gradient * x)
    x = torch.ones(3, dtype=torch.float64, device="cuda", requires_grad=True)
    seed = torch.ones(3, dtype=torch.float64, device="cuda", requires_grad=True)
    (gradient,) = torch.autograd.grad(function(x), x, seed, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        gradient.sum().backward()


@pytest.mark.parametrize("to", ["torch", "cupy"])
def test_a_stream_of_another_library_can_be_said(place: Place, to: str) -> None:
    """Numba's arrays name a stream of another's, by its handle."""
    pytest.importorskip("numba.cuda")
    one = WORKERS[to](place)
    array = one.written(7.0)
    with one.working():
        made = convert(array, "numba", stream=one.stream)
    assert made.__cuda_array_interface__["stream"] == handle_of(one.stream)
    assert isinstance(convert(made, "dlpack"), DLPackView)


def test_what_speaks_by_a_dict_only_goes_to_any_library(driver: Any, words: Any) -> None:
    address = words(WORDS)
    x = capsules.OnlyCai(capsules.interface(address, (WORDS,)))
    for sink in TO:
        with contextlib.suppress(pytest.skip.Exception):
            needs(sink)
            assert SEEN[sink](convert(x, sink)).ptr == address
