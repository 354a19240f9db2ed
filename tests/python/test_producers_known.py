"""What real producers do that the protocols do not say, by stand-ins that do what their sources do.

Each was shown by a program that read a wrong value, used a destroyed stream or was refused.
"""

import ctypes
import gc
import weakref

import capsules
import numpy as np
import pytest
from fakes import interface, only_cai
from moving import host_waits

from cai_bridge import HostSyncWarning, adapt, convert, from_cai, to_cai, to_dlpack
from cai_bridge.testing import SimulatedCuda

SEEN = [7.0] * 4
silent = pytest.mark.filterwarnings("ignore::cai_bridge.HostSyncWarning")


@pytest.fixture
def on(cuda):
    """The producer's stream."""
    return cuda.stream("theirs")


@pytest.fixture
def mine(cuda):
    return cuda.stream("mine")


def written(cuda, on, **how):
    """Memory that a stream is about to write to."""
    memory = cuda.array([0.0] * 4, speaks=(), stream=on, **how)
    on.fill(memory, 7.0, name="the producer's write")
    return memory


def named(module, **members):
    """A type that says which library it is of."""
    return type("Array", (), {"__module__": module, **members})


def read_on(stream, view):
    """What work on the stream sees of the memory."""
    pending = stream.read(view, name="the read")
    SimulatedCuda.current().synchronize()
    return pending.value


def capsule_of(memory, owner=None):
    fields = {"form": "legacy", "shape": (4,), "owner": owner or memory}
    return capsules.HandMade(memory.ptr, **fields).capsule()


def a_buffer(memory, module):
    asked = {
        "__dlpack_device__": lambda _: (2, 0),
        "__dlpack__": lambda self, *, stream=None, max_version=None: capsule_of(memory, self),
    }
    return named(module, **asked)()


@pytest.mark.parametrize(
    "module",
    [
        "cuda.core._memory._buffer",
        "cuda.core.experimental._memory",
        "nvcv",
        "jax.experimental.buffer_callback",
        "jaxlib._jax.ffi",
    ],
)
def test_the_host_waits_for_a_library_whose_dlpack_orders_nothing(module, on, mine, cuda):
    """cuda.core's ``Buffer`` ignores the stream: "as if it is -1" (`_memory/_buffer.pyx`)."""
    buffer = a_buffer(written(cuda, on), module)
    # Another type for each test, since a type is warned of once.
    type(buffer).__qualname__ = f"Buffer of {module}"
    with pytest.warns(HostSyncWarning, match=r"never names .* or pass stream=-1 if nothing"):
        view = to_cai(buffer, stream=mine)
    assert host_waits(cuda) == 1
    assert read_on(mine, view) == SEEN


@pytest.mark.parametrize("take", [to_cai, lambda x, stream: convert(x, "cai", stream=stream)])
def test_it_does_not_wait_if_the_caller_says_that_nothing_is_pending(take, on, cuda):
    buffer = a_buffer(written(cuda, on), "cuda.core._memory._buffer")
    on.synchronize()
    take(buffer, stream=-1)
    assert host_waits(cuda) == 0


def ordered(cuda, on, memory):
    """A `__dlpack__` that orders."""

    def export(_, *, stream=None, max_version=None):
        cuda.stream_of(stream).wait(on.record())
        return capsule_of(memory)

    return export


# What orders by itself, or names a stream that it works on, of libraries that do not.
ORDERED = {
    # It is of another module, and is made for a stream.
    "cuda.core's strided view": lambda cuda, on, x: a_buffer(x, "cuda.core._memoryview"),
    "a default stream in a stored dict": lambda cuda, on, x: named(
        "cuml.internals.array", __cuda_array_interface__=interface(x, stream=1)
    )(),
    "a dict defined anew": lambda cuda, on, x: type(
        "Array",
        (named("pycuda.gpuarray", __cuda_array_interface__=interface(x, stream=None)),),
        {"__module__": "my", "__cuda_array_interface__": interface(x, stream=on.handle)},
    )(),
    "a __dlpack__ defined anew": lambda cuda, on, x: type(
        "Ordered",
        (type(a_buffer(x, "cuda.core._memory._buffer")),),
        {"__module__": "my", "__dlpack__": ordered(cuda, on, x)},
    )(),
}


@pytest.mark.parametrize("kind", ORDERED)
def test_what_is_ordered_is_not_waited_for(kind, on, mine, cuda):
    on = on if "anew" in kind else cuda.legacy
    memory = written(cuda, on)
    view = to_cai(ORDERED[kind](cuda, on, memory), stream=mine)
    assert host_waits(cuda) == 0
    assert read_on(mine, view) == SEEN


TAKEN = {
    "to_cai": to_cai,
    "convert": lambda x, **how: convert(x, "cai", **how),
    "list": lambda x, **how: convert([x], "cai", **how)[0],
}


@silent
@pytest.mark.parametrize("how", TAKEN)
@pytest.mark.parametrize("what", ["buffer", "stored"])
def test_a_capture_of_the_consumers_stream_is_not_ended(what, how, on, mine, cuda):
    x = stored(cuda, "cuml.internals.array", on)
    if what == "buffer":
        x = a_buffer(x.memory, "cuda.core._memory._buffer")
    with cuda.capture(mine) as graph:
        made = TAKEN[how](x, stream=mine)
        assert host_waits(cuda)
        seen = mine.read(made)
    graph.launch(mine)
    cuda.synchronize()
    assert seen.value == SEEN


@silent
@pytest.mark.parametrize("is_written", [False, True])
def test_a_buffer_of_jaxs_callback_is_no_array_of_jaxs(is_written, on, mine, cuda):
    """JAX's arrays never change; a result's buffer is there to be written."""
    memory = written(cuda, on)
    fields = {"form": "versioned", "shape": (4,), "owner": memory, "flags": int(not is_written)}
    buffer = named(
        "jax.experimental.buffer_callback",
        __dlpack_device__=lambda _: (2, 0),
        __dlpack__=lambda _, **wishes: capsules.HandMade(memory.ptr, **fields).capsule(),
        __cuda_array_interface__=interface(memory, version=2, data=(memory.ptr, not is_written)),
    )()
    for view in (to_cai(buffer, stream=mine), from_cai(buffer, stream=on)):
        assert view.readonly is not is_written
    assert read_on(mine, to_cai(view, stream=mine)) == SEEN


@silent
@pytest.mark.parametrize("derived", [False, True], ids=["amrex", "reikna, from PyCUDA"])
def test_a_class_that_is_derived_from_a_librarys_has_its_habits(derived, on, mine, cuda):
    """PyCUDA's dict says None for its stream, and pyAMReX's, whatever is pending."""
    memory = written(cuda, on)
    module = "pycuda.gpuarray" if derived else "amrex.space3d.amrex_3d_pybind"
    kind = named(module, __cuda_array_interface__=interface(memory, stream=None))
    if derived:
        kind = type("Array", (kind,), {"__module__": "reikna.cluda.cuda"})
    assert read_on(mine, to_cai(kind(), stream=mine)) == SEEN


def test_a_class_that_defines_its_dlpack_anew_is_asked_for_it(on, mine, cuda):
    """As one that has work of its own pending, which its ``__dlpack__`` flushes."""
    memory = cuda.array([0.0] * 4, speaks=(), stream=on)
    base = named(
        "cupy",
        __dlpack__=lambda _, stream=None: capsule_of(memory),
        __dlpack_device__=lambda _: (2, 0),
        __cuda_array_interface__=interface(memory, stream=on.handle),
    )

    def flushed(_, stream=None):
        on.fill(memory, 7.0, name="what was pending")
        cuda.stream_of(stream).wait(on.record())
        return capsule_of(memory)

    derived = type("Lazy", (base,), {"__module__": "somebody", "__dlpack__": flushed})()
    assert read_on(mine, to_cai(derived, stream=mine)) == SEEN


class Base:
    """``DeviceNDArrayBase`` of numba-cuda, `cudadrv/devicearray.py`."""

    @property
    def __cuda_array_interface__(self):
        return interface(self.memory, stream=1)


class ManagedNDArray(Base, np.ndarray):
    """``cuda.managed_array()`` and ``mapped_array()``: NumPy's array, with a dict."""


def managed(cuda, kind):
    memory = cuda.array([1.0] * 4, speaks=(), memory=kind)
    numbers = np.frombuffer((ctypes.c_float * 4).from_address(memory.ptr), "<f4")
    array = numbers.view(ManagedNDArray)
    array.memory = memory
    cuda.legacy.fill(memory, 7.0, name="a kernel")
    return array


KINDS = pytest.mark.parametrize("kind", ["managed", "pinned"])


@KINDS
@pytest.mark.parametrize("door", [to_cai, to_dlpack, from_cai])
def test_numbas_managed_and_mapped_arrays_are_taken_by_their_dict(kind, door, cuda):
    mine = cuda.stream("mine")
    view = door(managed(cuda, kind))
    assert view.device[0] in {3, 13}
    capsule_or_view = to_cai(view, stream=mine)
    assert read_on(mine, capsule_or_view) == SEEN


@KINDS
@pytest.mark.parametrize("how", ["alone", "copy", "list", "adapt"])
def test_as_a_numpy_array_their_pending_work_is_waited_for(kind, how, cuda):
    array = managed(cuda, kind)
    got = []
    if how == "adapt":
        adapt(got.append, to="numpy")(array)
    elif how == "list":
        got = convert([array], "numpy")
    else:
        got = [convert(array, "numpy", copy=True if how == "copy" else None)]
    assert type(got[0]) is np.ndarray
    assert got[0].tolist() == SEEN


def test_an_adapted_function_gets_what_it_asks_for_of_them(cuda):
    got, x, array = [], cuda.array([1.0], speaks="cai3"), managed(cuda, "managed")
    got.append(adapt(lambda a, x: got.append(a) or x, to="cai")(array, x))
    assert [type(one).__name__ for one in got] == ["CaiView"] * 2
    got.clear()
    cuda.synchronize()


class Without(np.ndarray):
    """``ManagedNDArray`` again: what NumPy made of one, as by ``x * 2``, has no ``gpu_data``."""

    @property
    def __cuda_array_interface__(self):
        raise AttributeError("gpu_data")


def test_what_numpy_made_of_them_is_numpys_own(cuda):
    made, x = np.ones(3).view(Without), cuda.array([1.0], speaks="cai3")
    assert convert(made, "numpy") is made
    assert convert([made], "numpy")[0] is made
    tree = convert({"x": x, "made": made}, "cai")
    assert tree["made"] is made
    assert type(tree["x"]).__name__ == "CaiView"
    got = []
    adapt(lambda *all: got.extend(all), to="cai")(x, made)
    assert got[1] is made
    got.clear()
    with pytest.raises(BufferError, match="CPU memory"):
        to_cai(made)
    for array in (managed(cuda, "managed"), made):
        assert (convert(array, "numpy") is array) == (array is made)
    cuda.synchronize()


class Param:
    """``nnx.Variable`` of flax, which has every attribute of the array in it."""

    def __init__(self, value):
        self.value = value

    def __getattr__(self, name):
        return getattr(object.__getattribute__(self, "value"), name)


@pytest.mark.parametrize("take", [to_cai, to_dlpack, TAKEN["list"]])
def test_a_variable_around_an_immutable_array_is_read_only(take, cuda):
    memory = cuda.array(SEEN, speaks=())
    assert take(Param(a_buffer(memory, "jaxlib._jax"))).readonly


@pytest.mark.parametrize("is_named", [True, False])
def test_a_variable_around_a_view_is_ready_where_the_view_is(is_named, on, mine, cuda):
    """The view's table names a stream that it does not make wait for `__dlpack__`."""
    x = cuda.array([0.0] * 4, speaks="cai3", stream=on, name="x")
    on.fill(x, 7.0)
    view = to_cai(Param(from_cai(x)), stream=mine if is_named else None)
    if not is_named:
        mine = cuda.stream_of(view.__cuda_array_interface__["stream"])
    assert read_on(mine, view) == SEEN


def test_what_stands_for_an_array_is_the_owner(cuda):
    """Its end may give the memory to others."""
    x = cuda.array([7.0] * 4, speaks="dlpack", name="x")
    param = Param(x)
    gone = weakref.ref(param)
    view = to_cai(param)
    assert view.owner is param
    del param, x
    gc.collect()
    assert gone() is not None
    assert read_on(cuda.legacy, view) == SEEN
    view.release()
    gc.collect()
    assert gone() is None


def test_what_stands_for_an_array_says_where_it_is_itself(cuda):
    class OnTheHost(Param):
        def __dlpack_device__(self):
            return 1, 0

    with pytest.raises(BufferError, match="CPU memory"):
        to_cai(OnTheHost(cuda.array([7.0], speaks="dlpack")))


def stored(cuda, module, on):
    """A ``CumlArray`` keeps the dict that it read of a CuPy array, and not CuPy's stream."""
    memory = written(cuda, on, memory="pool")
    dictionary = interface(memory, stream=on.handle)
    return named(module, __cuda_array_interface__=dictionary, memory=memory)()


@pytest.mark.parametrize("when", ["before", "between", "never"])
@pytest.mark.parametrize("blocking", [False, True], ids=["non-blocking", "blocking"])
@pytest.mark.parametrize("module", ["cuml.internals.array", "pylibcudf.gpumemoryview"])
@pytest.mark.parametrize("door", [to_cai, from_cai])
def test_a_stored_dicts_stream_is_not_touched(door, module, blocking, when, cuda):
    on, mine = cuda.stream("CuPy's", blocking=blocking), cuda.stream("mine")
    array = stored(cuda, module, on)
    if when == "before":
        on.destroy()
    view = to_cai(door(array), stream=mine)
    pending = mine.read(view, name="the read")
    if when == "between":
        on.destroy()
    view.release()
    cuda.synchronize()
    assert pending.value == SEEN


@pytest.mark.parametrize("handle_again", [False, True])
def test_a_stored_dicts_stream_is_not_taken_for_a_librarys_current_one(handle_again, cuda):
    on, mine = cuda.stream("CuPy's"), cuda.stream("mine")
    array = stored(cuda, "cuml.internals.array", on)
    if handle_again:
        on.destroy()
        on = cuda.stream("CuPy's next", handle_of=on)
    with cuda.current_stream(on):
        view = to_cai(array, stream=mine)
        assert read_on(mine, view) == SEEN


@pytest.mark.parametrize("stream", ["unsaid", "mine", "none"])
def test_a_tensor_that_refuses_streams_is_asked_for_the_default_one(stream, mine, cuda):
    """TensorFlow's: any stream but None is refused (`python/framework/ops.py`)."""
    memory = written(cuda, cuda.legacy)

    def export(_, *, stream=None):
        if stream is not None:
            raise RuntimeError("no DLPack export with a non-None stream")
        return capsule_of(memory)

    asked = {"__dlpack_device__": lambda _: (2, 0), "__dlpack__": export}
    tensor = named("tensorflow.python.framework.ops", **asked)()
    if stream == "none":
        cuda.synchronize()
    how = {"unsaid": {}, "mine": {"stream": mine}, "none": {"stream": -1}}[stream]
    view = to_cai(tensor, **how)
    assert view.readonly
    assert read_on(cuda.legacy if stream == "unsaid" else mine, view) == SEEN


def test_an_image_that_makes_one_capsule_is_taken_by_its_dict(on, mine, cuda):
    """nvImageCodec's ``Image``: a second export is refused, a dict is not (`python/image.cpp`)."""
    memory = written(cuda, on)

    def export(_, stream=None):
        raise AssertionError("its only capsule")

    image = named(
        "nvidia.nvimgcodec.nvimgcodec_impl",
        __dlpack_device__=lambda _: (2, 0),
        __dlpack__=export,
        __cuda_array_interface__=interface(memory, stream=on.handle),
    )()
    for _ in range(2):
        assert read_on(mine, to_cai(image, stream=mine)) == SEEN


@pytest.mark.parametrize(("version", "there"), [(2, 0), (3, 0), (3, -1)])
def test_a_stream_that_is_said_goes_before_one_that_names_none(version, there, on, mine, cuda):
    """SPDL's ``CUDABuffer`` says 0 for the default stream; later CV-CUDAs -1 for nothing."""
    array = only_cai(written(cuda, on), stream=there, version=version)
    with pytest.raises(ValueError, match=r"^stream: got"):
        from_cai(array)
    assert read_on(mine, to_cai(from_cai(array, stream=on), stream=mine)) == SEEN
    assert from_cai(array, stream=-1).stream is None
