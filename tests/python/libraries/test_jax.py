"""A real JAX on CPUs, as far as it needs no GPU: what it hands out and what it takes."""

import numpy as np
import pytest
import tvm_ffi
from test_hosts import SaysPinned

from cai_bridge import CaiView, convert, from_cai

jax = pytest.importorskip("jax", reason="JAX is not installed: make test-clients installs it")

SIXTEEN = np.arange(16, dtype="float32")


@pytest.fixture
def x():
    return jax.device_put(SIXTEEN, jax.devices("cpu")[0])


class OnCpu:
    """A view of memory that the CPU reaches, handed out as the CPU's; notes what it was asked."""

    def __init__(self, view):
        self.view = view
        self.asked = []

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **wishes):
        self.asked.append(wishes)
        return self.view.__dlpack__(**{**wishes, "dl_device": (1, 0), "copy": False})


def test_jaxs_array_goes_to_numpy_without_a_copy_and_is_not_written(x, cuda):
    for made in (convert(x, "numpy"), convert({"a": [x]}, "numpy")["a"][0]):
        assert made.tolist() == SIXTEEN.tolist()
        assert made.ctypes.data == x.unsafe_buffer_pointer()
        assert not made.flags.writeable
    copied = convert(x, "numpy", copy=True)
    assert copied.flags.writeable
    assert copied.ctypes.data != x.unsafe_buffer_pointer()


def test_jaxs_array_is_never_handed_to_who_may_write(x, cuda):
    for tree in (x, [x]):
        with pytest.raises(BufferError, match="readonly: got read-only memory"):
            convert(tree, "tvm_ffi")
    made = convert(x, "tvm_ffi", copy=True)
    assert made.data_ptr() != x.unsafe_buffer_pointer()
    vouched = convert(x, "tvm_ffi", readonly=False)
    assert vouched.data_ptr() == x.unsafe_buffer_pointer()
    for tensor in (made, vouched):
        assert np.from_dlpack(tensor).tolist() == SIXTEEN.tolist()


def test_pinned_memory_that_a_capsule_says_is_the_cpus_goes_to_jax(cuda):
    x = SaysPinned(SIXTEEN)
    with pytest.raises(Exception, match=r"cuda|device"):
        jax.dlpack.from_dlpack(x)
    for made in (convert(x, "jax"), convert([x], "jax")[0], convert(x, "jax", copy=True)):
        assert made.tolist() == SIXTEEN.tolist()


def test_jaxs_array_goes_to_a_gpu_by_a_copy(x, cuda):
    with pytest.raises(BufferError, match=r"device: got CPU memory.*pass copy=True"):
        convert(x, "cai")
    mine = cuda.stream("mine")
    for made in (convert(x, "cai", copy=True), convert([x], "cai", copy=True, stream=mine)[0]):
        assert isinstance(made, CaiView)
        assert convert(made, "numpy").tolist() == SIXTEEN.tolist()


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "bool", "complex64", "int8"])
def test_jaxs_types_go_to_a_gpu_as_they_are(dtype, cuda):
    x = jax.numpy.ones((2, 3), dtype=dtype)
    made = convert(x, "cai", copy=True)
    assert (made.dtype, made.shape) == (np.dtype(x.dtype), (2, 3))
    assert (convert(made, "numpy") == np.ones((2, 3), dtype=np.dtype(x.dtype))).all()


@pytest.mark.parametrize("copy", [None, True])
def test_jax_gets_an_array_on_the_host(copy, cuda):
    host = SIXTEEN.copy()
    for given in (host, tvm_ffi.from_dlpack(host)):
        for made in (convert(given, "jax", copy=copy), convert([given], "jax", copy=copy)[0]):
            assert isinstance(made, jax.Array)
            assert made.tolist() == SIXTEEN.tolist()
            if copy:
                before, host[0] = host[0], -1.0
                assert made[0] == before
                host[0] = before


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64", "complex128"])
@pytest.mark.parametrize("copy", [None, True, False])
def test_a_type_that_jax_would_make_narrower_is_refused(dtype, copy, cuda):
    # On a boundary of 64 bytes, or JAX copies.
    block = np.zeros(512, "u1")
    start = -block.ctypes.data % 64
    host = block[start : start + 256].view(dtype)
    host[:] = 3
    said = rf"dtype: got {dtype}, of which JAX makes \w+; allowed: .+jax_enable_x64"
    # tvm-ffi has no complex types.
    others = [] if dtype == "complex128" else [tvm_ffi.from_dlpack(host)]
    for given in (host, *others):
        for tree in (given, [given]):
            with pytest.raises(BufferError, match=said):
                convert(tree, "jax", copy=copy)
        with jax.enable_x64(True):
            made = convert(given, "jax", copy=copy)
            assert (made.dtype, made[0]) == (dtype, 3)


def test_jax_is_told_where_a_copy_is_not_wanted(cuda):
    block = np.zeros(256, "u1")
    start = -block.ctypes.data % 64
    aligned, odd = (block[at : at + 64].view("float32") for at in (start, start + 4))
    assert convert(aligned, "jax", copy=False).unsafe_buffer_pointer() == aligned.ctypes.data
    assert convert(odd, "jax").tolist() == [0.0] * 16
    with pytest.raises(BufferError, match=r"copy: got False for memory at 0x\w+, which the libr"):
        convert(odd, "jax", copy=False)
    assert convert(aligned, "jax", readonly=True).tolist() == [0.0] * 16


def test_jaxs_own_array_stays_or_is_copied(x, cuda):
    assert convert(x, "jax") is x
    assert convert([x], jax)[0] is x
    made = convert(x, jax.Array, copy=True)
    assert made.tolist() == SIXTEEN.tolist()
    assert made.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()


def test_jax_takes_read_only_memory_where_its_version_can_say_so(cuda):
    """JAX never writes. Since 0.12 it asks for a version, whose capsules have a flag."""
    memory = cuda.array(SIXTEEN.tolist(), memory="managed", speaks="cai")
    handed = OnCpu(from_cai(memory, readonly=True))
    versioned = tuple(map(int, jax.__version__.split(".")[:2])) >= (0, 12)
    if versioned:
        assert jax.dlpack.from_dlpack(handed).tolist() == SIXTEEN.tolist()
    else:
        with pytest.raises(BufferError, match=r"readonly: got read-only memory and a consumer"):
            jax.dlpack.from_dlpack(handed)
    (wishes,) = handed.asked
    assert ("max_version" in wishes) == versioned
    vouched = OnCpu(from_cai(memory, readonly=False))
    assert jax.dlpack.from_dlpack(vouched).tolist() == SIXTEEN.tolist()
