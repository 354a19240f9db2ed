"""`convert` between the libraries themselves: the same memory, values, types and layouts."""

from __future__ import annotations

from typing import Any

import pytest

from cai_bridge import DLPackView, convert

from .converting import PAIRS, SEEN, TO, WORKERS, make, needs, pointer
from .libraries import STANDARD, host_values, pointer_of, same_bits
from .streams import handle_of
from .test_values import COMPACT, LAYOUTS, REVERSED, check_layout, layouts


@pytest.mark.parametrize("dtype", STANDARD)
@pytest.mark.parametrize(("source", "sink"), PAIRS)
def test_every_dtype_goes_from_each_library_to_each_without_a_copy(driver, source, sink, dtype):
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
def test_every_layout_that_the_library_has(driver, source, sink, layout):
    needs(source, sink)
    if source == sink or (layout in REVERSED and "torch" in (source, sink)):
        pytest.skip("torch has no negative strides")
    if sink == "jax" and layout not in COMPACT:
        pytest.skip("JAX takes compact layouts only")
    array, host = layouts(source)[layout]
    driver.synchronize()
    seen = SEEN[sink](convert(array, sink))
    check_layout(seen, host, pointer_of(array, source), strides=sink != "jax")


def test_libraries_are_named_by_their_modules_and_types(driver):
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


def test_containers_of_the_libraries_are_taken_apart(driver):
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
    with pytest.raises(BufferError, match=r'^x\["weight"\]: requires_grad: '):
        convert(parameters, "cupy")
    weights = convert(parameters, "cupy", detach=True)
    assert weights["weight"].data.ptr == parameters["weight"].data_ptr()


@pytest.mark.parametrize("to", ["torch", "cupy"])
def test_a_stream_of_another_library_can_be_said(place, to):
    """Numba's arrays name a stream of another's, by its handle."""
    pytest.importorskip("numba.cuda")
    one = WORKERS[to](place)
    array = one.written(7.0)
    with one.working():
        made = convert(array, "numba", stream=one.stream)
    assert made.__cuda_array_interface__["stream"] == handle_of(one.stream)
    assert isinstance(convert(made, "dlpack"), DLPackView)
