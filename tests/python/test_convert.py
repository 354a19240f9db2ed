"""`convert` of one array: the same memory, in order both ways, or a refusal."""

import gc
import sys
import types
import weakref

import numpy as np
import pytest
import stand_in
import tvm_ffi
from contract import assert_refused, each
from fakes import torch_like
from scenes import done
from stand_in import Array, StandIn, library, made_on, no_libraries, producer

from cai_bridge import (
    CaiView,
    DLPackView,
    Library,
    _libraries,
    adapt,
    convert,
    from_cai,
    register,
    to_cai,
    to_dlpack,
)

__all__ = ["library", "no_libraries", "producer"]

# Those that name the stream that is to wait at the end; ``__dlpack__`` names none.
NAME = ["exchange", "cai3", ("exchange", "cai2")]
SPEAKS = [*NAME, "dlpack", "dlpack-legacy"]


@pytest.mark.parametrize("speaks", SPEAKS)
@pytest.mark.parametrize("ends", ["released", "dropped"])
def test_the_array_has_what_was_written_late_and_the_producer_waits_at_the_end(
    cuda, library, producer, speaks, ends
):
    x = made_on(cuda, producer, 7.0, speaks)
    made = convert(x, "stand_in")
    assert (type(made), made.view.ptr, made.stream) == (Array, x.ptr, library.streams[0])
    assert library.asked == [0]
    seen = made.read()
    if speaks in NAME:
        made.write(5.0)
        if ends == "released":
            made.view.release()
        del made
        after = producer.read(x)
        producer.fill(x, 9.0, name="the producer's next write")
        assert done(after) == [5.0] * 4
    assert done(seen) == [7.0] * 4


def test_an_array_of_another_device_is_usable_on_its_devices_stream(cuda, library):
    x = made_on(cuda, cuda.stream("producer", device=1), 7.0, "cai3")
    made = convert(x, "stand_in")
    assert (library.asked, made.stream) == ([1], library.streams[1])
    assert done(made.read()) == [7.0] * 4


@pytest.mark.parametrize("tree", [False, True])
def test_a_stream_object_is_asked_once(cuda, library, tree):
    mine, asked, x = cuda.stream("mine"), [], cuda.array([1.0])

    class Asked:
        def __cuda_stream__(self):
            asked.append(self)
            return (0, mine.handle)

    stream = Asked()
    convert([None], "stand_in")
    made = convert([x, x] if tree else x, "stand_in", stream=stream)
    assert (asked, library.asked) == ([stream], [])
    del made


def test_an_array_of_the_library_is_itself_and_ordered_for_a_stream_that_is_said(
    cuda, library, producer
):
    made, mine = convert(made_on(cuda, producer), "stand_in"), cuda.stream("mine")
    made.write(7.0)
    cuda.clear_calls()
    assert convert(made, "stand_in") is made
    assert not cuda.calls
    assert convert(made, "stand_in", stream=mine) is made
    seen = mine.read(made.view)
    mine.synchronize()
    assert seen.value == [7.0] * 4


def test_a_tensor_of_the_library_is_ordered_though_it_requires_a_gradient(cuda, library, producer):
    x, mine = made_on(cuda, producer, 7.0), cuda.stream("mine")
    tensor = torch_like(x, _grad=True, detach=lambda: x)
    library.types = (type(tensor),)
    assert convert(tensor, library, stream=mine) is tensor
    assert convert([tensor], library, stream=mine)[0] is tensor
    seen = mine.read(x)
    mine.synchronize()
    assert seen.value == [7.0] * 4


@pytest.mark.parametrize("own", [False, True])
def test_a_copy_is_apart_from_its_source(cuda, library, producer, own):
    x = made_on(cuda, producer, 7.0)
    made = convert(convert(x, "stand_in") if own else x, "stand_in", copy=True)
    assert (type(made), made.view.ptr not in (0, x.ptr)) == (Array, True)
    producer.fill(x, 9.0)
    assert done(made.read()) == [7.0] * 4


@pytest.mark.parametrize("to", ["cai", "dlpack"])
@pytest.mark.parametrize("how", [{}, {"readonly": True}, {"copy": True}, {"stream": 1}])
def test_a_released_view_is_refused(to, how, cuda):
    view = {"cai": to_cai, "dlpack": to_dlpack}[to](cuda.array([1.0]))
    view.release()
    with pytest.raises(BufferError, match=r"^view: got a released view"):
        convert(view, to, **how)
    with pytest.raises(BufferError, match=r"^x\[1\]: view: got a released view"):
        convert([cuda.array([1.0]), view], to, **how)


@each("refusals", "object", object="read-only array")
@pytest.mark.parametrize("to", ["stand_in", "tvm_ffi"])
@pytest.mark.parametrize("speaks", ["exchange", "dlpack", "cai3"])
def test_read_only_memory_is_refused_for_a_library_that_writes(cuda, library, row, to, speaks):
    x = cuda.array([1.0] * 4, speaks=speaks, readonly=True)
    assert_refused(row, convert, x, to)
    assert x.exports == 0
    assert convert(x, to, readonly=False) is not None
    copied = convert(x, to, copy=True)
    cuda.synchronize()
    assert (copied.view.ptr if to == "stand_in" else copied.data_ptr()) != x.ptr


@each("refusals", "object", object="array, readonly=True")
@pytest.mark.parametrize("to", ["stand_in", "tvm_ffi"])
def test_a_library_that_writes_is_given_nothing_as_read_only(cuda, library, row, to):
    x = cuda.array(shape=4)
    assert_refused(row, convert, x, to, readonly=True)
    own = convert(x, to)
    with pytest.raises(BufferError, match=r"^readonly: got True for one of the library's own"):
        convert(own, to, readonly=True)
    with pytest.raises(BufferError, match=r'^x\["b"\]: readonly: got True'):
        convert({"a": x, "b": own}, to, readonly=True)
    assert convert(own, to, readonly=False) is own


@each("refusals", "object", object="reversed array")
def test_negative_strides_are_refused_for_a_library_that_makes_its_arrays_itself(cuda, row):
    x = cuda.array([1.0] * 4, speaks="cai3")
    last = {**x.__cuda_array_interface__, "strides": (-4,), "data": (x.ptr + 12, False)}
    view = from_cai(last, owner=x)

    class ByTable(Library):
        name, view, arrays = "by_table", None, ("by_table:Array",)
        types = (type(cuda.array([1.0], speaks="exchange")),)

    assert_refused(row, convert, view, ByTable())
    view.release()


@pytest.mark.parametrize("to", ["cai", "dlpack"])
def test_a_view_says_that_its_memory_is_read_only(cuda, to):
    x = cuda.array([1.0], readonly=True)
    assert convert(x, to).readonly
    assert not convert(x, to, readonly=False).readonly
    assert convert(cuda.array([1.0]), to, readonly=True).readonly


def test_a_library_that_only_reads_is_given_read_only_memory(cuda, no_libraries):
    class Reads(StandIn):
        writes = False

    register(Reads({0: cuda.legacy}))
    assert convert(cuda.array([1.0], readonly=True), "stand_in").view.readonly


def test_a_tensor_that_requires_a_gradient_is_detached_where_that_is_asked_for(cuda):
    x = cuda.array([1.0])
    tensor = torch_like(cuda.array([1.0]), _grad=True, detach=lambda: x)
    with pytest.raises(BufferError, match=r"^requires_grad: got True; allowed: "):
        convert(tensor, "cai")
    for given in (tensor, x):
        assert convert(given, "cai", detach=True).owner is x
        assert convert([given], "cai", detach=True)[0].owner is x


def test_what_fails_gives_everything_back(cuda, library, producer):
    x = made_on(cuda, producer)
    for call in ("cuEventRecord", "cuStreamWaitEvent"):
        cuda.fail(call)
        with pytest.raises(RuntimeError, match=rf"^{call}: got "):
            convert(x, "stand_in")
        assert x.exports == 0
    library.refused.add(x.ptr)
    with pytest.raises(BufferError, match=r"^strides: got odd ones"):
        convert(x, "stand_in")
    gc.collect()
    assert x.exports == 0


@pytest.mark.parametrize("x", [3, object(), np.zeros(4), None])
def test_what_is_no_array_of_a_gpu_is_refused(cuda, library, x):
    with pytest.raises((TypeError, BufferError), match=r": got .+; allowed: "):
        convert(x, "stand_in")


@pytest.mark.parametrize("speaks", SPEAKS)
def test_numpy_is_given_a_copy_in_order(cuda, producer, speaks):
    x = made_on(cuda, producer, 7.0, speaks)
    copies = [convert(x, to) for to in ("numpy", np, np.ndarray)]
    producer.fill(x, 9.0)
    cuda.synchronize()
    for made in copies:
        assert (type(made), made.dtype, made.tolist()) == (np.ndarray, np.float32, [7.0] * 4)
    assert x.exports == 0


def test_numpys_own_arrays_stay(cuda):
    x = np.ones(4)
    assert convert(x, np) is x
    assert convert(x, np, stream=1) is x


@pytest.mark.parametrize("speaks", SPEAKS)
@pytest.mark.parametrize("said", [False, True])
def test_tvm_ffi_is_given_the_array_on_its_environments_stream_or_the_one_that_is_said(
    cuda, producer, speaks, said
):
    mine, x = cuda.stream("mine"), made_on(cuda, producer, 7.0, speaks)
    if said:
        made = convert(x, "tvm_ffi.core", stream=mine)
    else:
        with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", 0), mine.handle):
            made = convert(x, tvm_ffi)
    assert (type(made), made.data_ptr()) == (tvm_ffi.Tensor, x.ptr)
    seen = mine.read(to_cai(made, stream=-1))
    del made
    if said and speaks in NAME:
        producer.fill(x, 9.0, name="the producer's next write")
    assert done(seen) == [7.0] * 4


def test_tvm_ffis_arrays_go_to_another_library(cuda, library, producer):
    x = made_on(cuda, producer, 7.0)
    with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", 0), producer.handle):
        made = convert(convert(x, tvm_ffi), "stand_in")
    assert (done(made.read()), made.view.ptr) == ([7.0] * 4, x.ptr)


class Subclass(Array):
    """An array of a subclass, from another module."""


PART = types.ModuleType("stand_in.part")
NAMES = [stand_in, "stand_in", "stand_in.part", PART, Array, Subclass]


@pytest.mark.parametrize("to", NAMES, ids=lambda to: repr(to)[:30])
def test_a_library_is_named_by_module_name_or_type(cuda, library, to, monkeypatch):
    monkeypatch.setitem(sys.modules, PART.__name__, PART)
    assert type(convert(cuda.array([1.0]), to)) is Array


def test_a_library_that_nobody_has_any_more_goes(cuda):
    library = StandIn({0: cuda.legacy})
    assert len(library.converter.lend([cuda.array([1.0])])[0]) == 1
    gone = weakref.ref(library)
    del library
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(("to", "kind"), [("cai", CaiView), ("dlpack", DLPackView)])
def test_views_are_named_too(cuda, to, kind):
    x = cuda.array([1.0])
    for named in (to, kind):
        view = convert(x, named)
        assert (type(view), view.ptr, view.owner) == (kind, x.ptr, x)
        assert convert(view, named) is view
    for other, kind in (("cai", CaiView), ("dlpack", DLPackView)):
        assert type(convert(view, other)) is type(convert([view], other)[0]) is kind


UNKNOWN = {
    "nobody": "'nobody'",
    "tensorflow": "'tensorflow'",
    None: "None",
    types: "<module 'types'",
    int: "the type builtins.int",
    StandIn: "the type stand_in.StandIn",
    np.float32: "the type numpy.float32",
}


@pytest.mark.parametrize(("to", "got"), UNKNOWN.items(), ids=lambda value: repr(value)[:20])
def test_a_library_that_is_not_known_is_refused(cuda, library, to, got):
    x = cuda.array([1.0])
    allowed = "the module, .+ type of cai, cuda, .+, stand_in, torch, .+, or of a library"
    with pytest.raises(TypeError, match=rf"^to: got {got}.*; allowed: {allowed}") as refused:
        convert(x, to)
    assert "did you mean" not in str(refused.value)
    assert x.exports == 0


MEANT = {"pytorch": "torch", "CuPy": "cupy", "tvm-ffi": "tvm_ffi", "jaxx": "jax", "jnp": "jax"}


@pytest.mark.parametrize("to", MEANT)
def test_a_name_that_is_nearly_one_says_which(cuda, to):
    with pytest.raises(TypeError, match=rf"; did you mean '{MEANT[to]}'\?$"):
        convert(cuda.array([1.0]), to)


def test_a_library_that_is_not_installed_says_so(cuda, no_libraries):
    class Absent(Library):
        name, arrays, view = "absent", ("absent_from_here:Array",), None

    register(Absent())
    with pytest.raises(ModuleNotFoundError, match="absent_from_here"):
        convert(cuda.array([1.0]), "absent")


def test_a_type_of_another_distribution_with_that_name_is_of_no_library(monkeypatch):
    """cuda.bindings without cuda.core, whose arrays' module is missing then."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "cuda"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setattr(_libraries, "FOUND", {})
    monkeypatch.delitem(vars(_libraries._named("cuda")), "types", raising=False)
    handle = type("CUstream", (), {"__module__": "cuda.bindings.driver"})()
    assert adapt(lambda x: x, to="cai")(handle) is handle
    with pytest.raises(TypeError, match=r"^to: got the type cuda\.bindings\.driver\.CUstream"):
        convert(1, type(handle))
