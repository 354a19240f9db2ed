"""What real producers do that the protocols do not say, by stand-ins that do what their sources do.

Each was shown by a program that read a wrong value, used a destroyed stream or was refused.
"""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import capsules
import numpy as np
import pytest
from fakes import only_cai

from cai_bridge import HostSyncWarning, adapt, convert, from_cai, to_cai, to_dlpack

SEEN = [7.0] * 4
WAIT = "cuModuleUnload"
silent = pytest.mark.filterwarnings("ignore::cai_bridge.HostSyncWarning")


def written(cuda: Any, on: Any, **how: Any) -> Any:
    """Memory that a stream is about to write to."""
    memory = cuda.array([0.0] * 4, speaks=(), stream=on, **how)
    on.fill(memory, 7.0, name="the producer's write")
    return memory


def named(module: str, **members: Any) -> type:
    """A type that says which library it is of."""
    return type("Array", (), {"__module__": module, **members})


def seen_by(cuda: Any, on: Any, view: Any) -> Any:
    pending = on.read(view, name="the read")
    cuda.synchronize()
    return pending.value


def dict_of(memory: Any, **how: Any) -> dict[str, Any]:
    said = {"shape": (4,), "typestr": "<f4", "data": (memory.ptr, False), "version": 3}
    return {**said, "strides": None, **how}


def capsule_of(memory: Any, owner: Any = None) -> Any:
    fields = {"form": "legacy", "shape": (4,), "owner": owner or memory}
    return capsules.HandMade(memory.ptr, **fields).capsule()


# --- a `__dlpack__` that orders nothing -----------------------------------------------------------


def a_buffer(memory: Any, module: str) -> Any:
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
def test_the_host_waits_for_a_library_whose_dlpack_orders_nothing(module: str, cuda: Any) -> None:
    """cuda.core's ``Buffer`` ignores the stream: "as if it is -1" (`_memory/_buffer.pyx`)."""
    on, mine = cuda.stream("theirs"), cuda.stream("mine")
    buffer = a_buffer(written(cuda, on), module)
    # Another type for each test, since a type is warned of once.
    type(buffer).__qualname__ = f"Buffer of {module}"
    cuda.clear_calls()
    with pytest.warns(HostSyncWarning, match=r"never names .* or pass stream=-1 if nothing"):
        view = to_cai(buffer, stream=mine)
    assert [call.call for call in cuda.calls].count(WAIT) == 1
    assert seen_by(cuda, mine, view) == SEEN


def test_it_does_not_wait_if_the_caller_asks_for_no_order(cuda: Any) -> None:
    on = cuda.stream("theirs")
    buffer = a_buffer(written(cuda, on), "cuda.core._memory._buffer")
    on.synchronize()
    cuda.clear_calls()
    to_cai(buffer, stream=-1)
    assert WAIT not in [call.call for call in cuda.calls]


def test_nor_if_convert_is_told_that_nothing_is_pending(cuda: Any) -> None:
    buffer = a_buffer(cuda.array([7.0] * 4, speaks=()), "cuda.core._memory._buffer")
    cuda.clear_calls()
    convert(buffer, "cai", stream=-1)
    assert WAIT not in [call.call for call in cuda.calls]


@silent
@pytest.mark.parametrize("how", ["to_cai", "convert", "list"])
@pytest.mark.parametrize("what", ["buffer", "stored"])
def test_a_capture_of_the_consumers_stream_is_not_ended(what: str, how: str, cuda: Any) -> None:
    on, mine = cuda.stream("theirs"), cuda.stream("mine")
    memory = written(cuda, on)
    x = (
        a_buffer(memory, "cuda.core._memory._buffer")
        if what == "buffer"
        else stored(cuda, "cuml.internals.array", on)
    )
    cuda.clear_calls()
    with cuda.capture(mine) as graph:
        made = {
            "to_cai": lambda: to_cai(x, stream=mine),
            "convert": lambda: convert(x, "cai", stream=mine),
            "list": lambda: convert([x], "cai", stream=mine)[0],
        }[how]()
        assert WAIT in [call.call for call in cuda.calls]
        seen = mine.read(made)
    graph.launch(mine)
    cuda.synchronize()
    assert seen.value == [7.0] * 4


def test_a_strided_memory_view_is_no_buffer(cuda: Any) -> None:
    """It is of another module, `cuda.core._memoryview`, and is made for a stream."""
    view = a_buffer(written(cuda, cuda.legacy), "cuda.core._memoryview")
    cuda.clear_calls()
    to_cai(view, stream=cuda.stream("mine"))
    assert WAIT not in [call.call for call in cuda.calls]


@silent
@pytest.mark.parametrize("is_written", [False, True])
def test_a_buffer_of_jaxs_callback_is_no_array_of_jaxs(is_written: bool, cuda: Any) -> None:
    """JAX's arrays never change; a result's buffer is there to be written."""
    xla, mine = cuda.stream("XLA's"), cuda.stream("mine")
    memory = written(cuda, xla)
    fields = {"form": "versioned", "shape": (4,), "owner": memory, "flags": int(not is_written)}
    buffer = named(
        "jax.experimental.buffer_callback",
        __dlpack_device__=lambda _: (2, 0),
        __dlpack__=lambda _, **wishes: capsules.HandMade(memory.ptr, **fields).capsule(),
        __cuda_array_interface__=dict_of(memory, version=2, data=(memory.ptr, not is_written)),
    )()
    for view in (to_cai(buffer, stream=mine), from_cai(buffer, stream=xla)):
        assert view.readonly is not is_written
    assert seen_by(cuda, mine, to_cai(view, stream=mine)) == SEEN


# --- classes that are derived from a library's ----------------------------------------------------


@silent
def test_a_class_that_is_derived_from_a_librarys_has_its_habits(cuda: Any) -> None:
    """As reikna's ``Array`` is from PyCUDA's ``GPUArray``, whose dict says None for its stream."""
    on, mine = cuda.stream("theirs"), cuda.stream("mine")
    memory = written(cuda, on)
    base = named("pycuda.gpuarray", __cuda_array_interface__=dict_of(memory, stream=None))
    derived = type("Array", (base,), {"__module__": "reikna.cluda.cuda"})()
    assert seen_by(cuda, mine, to_cai(derived, stream=mine)) == SEEN


def test_a_class_that_defines_its_dict_anew_is_taken_at_its_word(cuda: Any) -> None:
    on, mine = cuda.stream("theirs"), cuda.stream("mine")
    memory = written(cuda, on)
    base = named("pycuda.gpuarray", __cuda_array_interface__=dict_of(memory, stream=None))
    own = {"__module__": "somebody", "__cuda_array_interface__": dict_of(memory, stream=on.handle)}
    derived = type("Array", (base,), own)()
    cuda.clear_calls()
    view = to_cai(derived, stream=mine)
    assert WAIT not in [call.call for call in cuda.calls]
    assert seen_by(cuda, mine, view) == SEEN
    view.release()


def test_a_class_that_defines_its_dlpack_anew_is_asked_for_it(cuda: Any) -> None:
    """As one that has work of its own pending, which its ``__dlpack__`` flushes."""
    on, mine = cuda.stream("theirs"), cuda.stream("mine")
    memory = cuda.array([0.0] * 4, speaks=(), stream=on)
    base = named(
        "cupy",
        __dlpack__=lambda _, stream=None: capsule_of(memory),
        __dlpack_device__=lambda _: (2, 0),
        __cuda_array_interface__=dict_of(memory, stream=on.handle),
    )

    def flushed(_: Any, stream: Any = None) -> Any:
        on.fill(memory, 7.0, name="what was pending")
        cuda.stream_of(stream).wait(on.record())
        return capsule_of(memory)

    derived = type("Lazy", (base,), {"__module__": "somebody", "__dlpack__": flushed})()
    assert seen_by(cuda, mine, to_cai(derived, stream=mine)) == SEEN


def test_a_buffer_that_orders_itself_is_not_waited_for(cuda: Any) -> None:
    on, mine = cuda.stream("theirs"), cuda.stream("mine")
    memory = written(cuda, on)

    def ordered(_: Any, *, stream: Any = None, max_version: Any = None) -> Any:
        cuda.stream_of(stream).wait(on.record())
        return capsule_of(memory)

    buffer = type(a_buffer(memory, "cuda.core._memory._buffer"))
    derived = type("Ordered", (buffer,), {"__module__": "somebody", "__dlpack__": ordered})()
    cuda.clear_calls()
    view = to_cai(derived, stream=mine)
    assert WAIT not in [call.call for call in cuda.calls]
    assert seen_by(cuda, mine, view) == SEEN


@silent
def test_amrex_names_none_whatever_is_pending(cuda: Any) -> None:
    on, mine = cuda.stream("amrex's"), cuda.stream("mine")
    memory = written(cuda, on)
    array = named(
        "amrex.space3d.amrex_3d_pybind", __cuda_array_interface__=dict_of(memory, stream=None)
    )()
    assert seen_by(cuda, mine, to_cai(array, stream=mine)) == SEEN


# --- NumPy's own subclasses -----------------------------------------------------------------------


class Base:
    """``DeviceNDArrayBase`` of numba-cuda, `cudadrv/devicearray.py`."""

    memory: Any

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return dict_of(self.memory, stream=1)


class ManagedNDArray(Base, np.ndarray):  # type: ignore[type-arg]
    """``cuda.managed_array()`` and ``mapped_array()``: NumPy's array, with a dict."""


def managed(cuda: Any, kind: str) -> Any:
    memory = cuda.array([1.0] * 4, speaks=(), memory=kind)
    numbers = np.frombuffer((ctypes.c_float * 4).from_address(memory.ptr), "<f4")
    array = numbers.view(ManagedNDArray)
    array.memory = memory
    cuda.legacy.fill(memory, 7.0, name="a kernel")
    return array


KINDS = pytest.mark.parametrize("kind", ["managed", "pinned"])


@KINDS
@pytest.mark.parametrize("door", [to_cai, to_dlpack, from_cai])
def test_numbas_managed_and_mapped_arrays_are_taken_by_their_dict(
    kind: str, door: Any, cuda: Any
) -> None:
    mine = cuda.stream("mine")
    view = door(managed(cuda, kind))
    assert view.device[0] in {3, 13}
    capsule_or_view = to_cai(view, stream=mine)
    assert seen_by(cuda, mine, capsule_or_view) == SEEN


@KINDS
@pytest.mark.parametrize("how", ["alone", "copy", "list", "adapt"])
def test_as_a_numpy_array_their_pending_work_is_waited_for(kind: str, how: str, cuda: Any) -> None:
    array = managed(cuda, kind)
    got: Any = []
    if how == "adapt":
        adapt(got.append, to="numpy")(array)
    elif how == "list":
        got = convert([array], "numpy")
    else:
        got = [convert(array, "numpy", copy=True if how == "copy" else None)]
    assert type(got[0]) is np.ndarray
    assert got[0].tolist() == SEEN


def test_an_adapted_function_gets_what_it_asks_for_of_them(cuda: Any) -> None:
    got: list[Any] = []
    array = managed(cuda, "managed")
    adapt(got.append, to="cai")(array)
    assert type(got[0]).__name__ == "CaiView"
    got.clear()
    cuda.synchronize()


class Without(np.ndarray):  # type: ignore[type-arg]
    """``ManagedNDArray`` again: what NumPy made of one, as by ``x * 2``, has no ``gpu_data``."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise AttributeError("gpu_data")


def test_what_numpy_made_of_them_is_numpys_own(cuda: Any) -> None:
    made, x = np.ones(3).view(Without), cuda.array([1.0], speaks="cai3")
    assert convert(made, "numpy") is made
    assert convert([made], "numpy")[0] is made
    tree = convert({"x": x, "made": made}, "cai")
    assert tree["made"] is made
    assert type(tree["x"]).__name__ == "CaiView"
    got: list[Any] = []
    adapt(lambda *all: got.extend(all), to="cai")(x, made)
    assert got[1] is made
    got.clear()
    with pytest.raises(BufferError, match="CPU memory"):
        to_cai(made)
    for array in (managed(cuda, "managed"), made):
        assert (convert(array, "numpy") is array) == (array is made)
    cuda.synchronize()


def test_the_results_of_a_function_that_got_one_first_are_no_copies(cuda: Any) -> None:
    x, array = cuda.array([1.0], speaks="cai3"), managed(cuda, "managed")
    assert type(adapt(lambda _, x: x, to="cai")(array, x)).__name__ == "CaiView"
    cuda.synchronize()


def test_arrays_of_numpys_own_stay_themselves() -> None:
    mine = np.ones(3)
    assert convert(mine, "numpy") is mine
    assert convert([mine], "numpy")[0] is mine


# --- objects that stand for an array --------------------------------------------------------------


class Param:
    """``nnx.Variable`` of flax, which has every attribute of the array in it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "value"), name)


@pytest.mark.parametrize("way", ["to_cai", "to_dlpack", "tree"])
def test_a_variable_around_an_immutable_array_is_read_only(way: str, cuda: Any) -> None:
    memory = cuda.array([7.0] * 4, speaks=())
    asked = {
        "__dlpack_device__": lambda _: (2, 0),
        "__dlpack__": lambda _, stream=None, max_version=None: capsule_of(memory),
    }
    param = Param(named("jaxlib._jax", **asked)())
    made = {
        "to_cai": lambda: to_cai(param),
        "to_dlpack": lambda: to_dlpack(param),
        "tree": lambda: convert([param], "cai")[0],
    }[way]()
    assert made.readonly


@pytest.mark.parametrize("named", [True, False])
def test_a_variable_around_a_view_is_ready_where_the_view_is(named: bool, cuda: Any) -> None:
    """The view's table names a stream that it does not make wait for `__dlpack__`."""
    producer, mine = cuda.stream("the producer's"), cuda.stream("mine")
    x = cuda.array([0.0] * 4, speaks="cai3", stream=producer, name="x")
    producer.fill(x, 7.0)
    view = to_cai(Param(from_cai(x)), stream=mine if named else None)
    if not named:
        mine = cuda.stream_of(view.__cuda_array_interface__["stream"])
    seen = mine.read(view)
    cuda.synchronize()
    assert seen.value == [7.0] * 4


def test_what_stands_for_an_array_is_the_owner(cuda: Any) -> None:
    """Its end may give the memory to others."""
    x = cuda.array([7.0] * 4, speaks="dlpack", name="x")
    param = Param(x)
    gone = weakref.ref(param)
    view = to_cai(param)
    assert view.owner is param
    del param, x
    gc.collect()
    assert gone() is not None
    assert seen_by(cuda, cuda.legacy, view) == SEEN
    view.release()
    gc.collect()
    assert gone() is None


def test_what_stands_for_an_array_says_where_it_is_itself(cuda: Any) -> None:
    class OnTheHost(Param):
        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    with pytest.raises(BufferError, match="CPU memory"):
        to_cai(OnTheHost(cuda.array([7.0], speaks="dlpack")))


# --- dicts that were stored -----------------------------------------------------------------------


def stored(cuda: Any, module: str, on: Any) -> Any:
    """A ``CumlArray`` keeps the dict that it read of a CuPy array, and not CuPy's stream."""
    memory = written(cuda, on, memory="pool")
    dictionary = dict_of(memory, stream=on.handle)
    return named(module, __cuda_array_interface__=dictionary, memory=memory)()


@pytest.mark.parametrize("when", ["before", "between", "never"])
@pytest.mark.parametrize("blocking", [False, True], ids=["non-blocking", "blocking"])
@pytest.mark.parametrize("module", ["cuml.internals.array", "pylibcudf.gpumemoryview"])
@pytest.mark.parametrize("door", [to_cai, from_cai])
def test_a_stored_dicts_stream_is_not_touched(
    door: Any, module: str, blocking: bool, when: str, cuda: Any
) -> None:
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


def test_of_a_stored_dict_a_default_stream_is_waited_for_without_the_host(cuda: Any) -> None:
    mine = cuda.stream("mine")
    memory = written(cuda, cuda.legacy)
    array = named("cuml.internals.array", __cuda_array_interface__=dict_of(memory, stream=1))()
    cuda.clear_calls()
    view = to_cai(array, stream=mine)
    assert WAIT not in [call.call for call in cuda.calls]
    assert seen_by(cuda, mine, view) == SEEN


@pytest.mark.parametrize("handle_again", [False, True])
def test_a_stored_dicts_stream_is_not_taken_for_a_librarys_current_one(
    handle_again: bool, cuda: Any
) -> None:
    on, mine = cuda.stream("CuPy's"), cuda.stream("mine")
    array = stored(cuda, "cuml.internals.array", on)
    if handle_again:
        on.destroy()
        on = cuda.stream("CuPy's next", handle_of=on)
    with cuda.current_stream(on):
        view = to_cai(array, stream=mine)
        assert seen_by(cuda, mine, view) == SEEN


# --- TensorFlow, nvImageCodec ---------------------------------------------------------------------


@pytest.mark.parametrize("stream", ["unsaid", "mine", "none"])
def test_a_tensor_that_refuses_streams_is_asked_for_the_default_one(stream: str, cuda: Any) -> None:
    """TensorFlow's: any stream but None is refused (`python/framework/ops.py`)."""
    memory, mine = written(cuda, cuda.legacy), cuda.stream("mine")

    def export(_: Any, *, stream: Any = None) -> Any:
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
    assert seen_by(cuda, cuda.legacy if stream == "unsaid" else mine, view) == SEEN


def test_an_image_that_makes_one_capsule_is_taken_by_its_dict(cuda: Any) -> None:
    """nvImageCodec's ``Image``: a second export is refused, a dict is not (`python/image.cpp`)."""
    on, mine = cuda.stream("decoder's"), cuda.stream("mine")
    memory = written(cuda, on)

    def export(_: Any, stream: Any = None) -> Any:
        raise AssertionError("its only capsule")

    image = named(
        "nvidia.nvimgcodec.nvimgcodec_impl",
        __dlpack_device__=lambda _: (2, 0),
        __dlpack__=export,
        __cuda_array_interface__=dict_of(memory, stream=on.handle),
    )()
    for _ in range(2):
        assert seen_by(cuda, mine, to_cai(image, stream=mine)) == SEEN


# --- dicts with a stream that names none ----------------------------------------------------------


@pytest.mark.parametrize(("version", "named_there"), [(2, 0), (3, 0), (3, -1)])
def test_a_stream_that_is_said_goes_before_one_that_names_none(
    version: int, named_there: int, cuda: Any
) -> None:
    """SPDL's ``CUDABuffer`` says 0 for the default stream; later CV-CUDAs -1 for nothing."""
    on, mine = cuda.stream("theirs"), cuda.stream("mine")
    array = only_cai(written(cuda, on), stream=named_there, version=version)
    with pytest.raises(ValueError, match=r"^stream: got"):
        from_cai(array)
    assert seen_by(cuda, mine, to_cai(from_cai(array, stream=on), stream=mine)) == SEEN
    assert from_cai(array, stream=-1).stream is None
