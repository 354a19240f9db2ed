"""`convert` of one array: the same memory, in order both ways, or a refusal."""

from __future__ import annotations

import gc
import importlib.metadata
import sys
import types
import weakref
from typing import Any, assert_type

import numpy as np
import pytest
import stand_in
import tvm_ffi
from fakes import StreamObject, assert_refused, each, only_cai, torch_like
from stand_in import Array, StandIn, count, library, made_on, no_libraries, producer

from cai_bridge import (
    CaiView,
    DLPackView,
    DriverError,
    Library,
    convert,
    from_cai,
    register,
    to_cai,
    to_dlpack,
)
from cai_bridge._libraries._library import Quick

__all__ = ["library", "no_libraries", "producer"]

SPEAKS = ["exchange", "dlpack", "dlpack-legacy", "cai3", ("exchange", "cai2")]
# Those that name the stream that is to wait at the end; ``__dlpack__`` names none.
NAME = ["exchange", "cai3", ("exchange", "cai2")]
DEVICE = tvm_ffi.device("cuda", 0)


# values and order


@pytest.mark.parametrize("speaks", SPEAKS)
def test_the_array_has_what_was_written_late_and_is_no_copy(
    cuda: Any, library: StandIn, producer: Any, speaks: Any
) -> None:
    x = made_on(cuda, producer, 7.0, speaks)
    made = convert(x, "stand_in")
    assert type(made) is Array
    assert (made.view.ptr, made.stream) == (x.ptr, library.streams[0])
    assert library.asked == [0]
    seen = made.read()
    cuda.synchronize()
    assert seen.value == [7.0] * 4


@pytest.mark.unchecked
@pytest.mark.parametrize("speaks", SPEAKS)
def test_without_the_wait_at_the_hand_over_there_is_a_race(
    cuda: Any, library: StandIn, producer: Any, speaks: Any
) -> None:
    x = made_on(cuda, producer, 7.0, speaks)
    cuda.suppress("cuStreamWaitEvent")
    convert(x, "stand_in").read()
    cuda.synchronize()
    assert [report.kind for report in cuda.reports] == ["race"]


@pytest.mark.parametrize("speaks", NAME)
@pytest.mark.parametrize("ends", ["released", "dropped"])
def test_the_producer_waits_for_the_consumer_at_the_end(
    cuda: Any, library: StandIn, producer: Any, speaks: Any, ends: str
) -> None:
    x = made_on(cuda, producer, 7.0, speaks)
    made = convert(x, "stand_in")
    seen = made.read()
    if ends == "released":
        made.view.release()
    else:
        del made
    producer.fill(x, 9.0, name="the producer's next write")
    cuda.synchronize()
    assert seen.value == [7.0] * 4


@pytest.mark.unchecked
def test_without_the_wait_at_the_end_there_is_a_race(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    x = made_on(cuda, producer)
    made = convert(x, "stand_in")
    made.read()
    cuda.suppress("cuStreamWaitEvent")
    del made
    producer.fill(x, 9.0, name="the producer's next write")
    cuda.synchronize()
    assert [report.kind for report in cuda.reports] == ["race"]


def test_what_the_consumer_wrote_is_there_for_the_producer(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    x = made_on(cuda, producer)
    convert(x, "stand_in").write(5.0)
    seen = producer.read(x)
    cuda.synchronize()
    assert seen.value == [5.0] * 4


@pytest.mark.parametrize("how", ["an object", "a handle"])
def test_a_stream_that_is_said_goes_before_the_current_one(
    cuda: Any, library: StandIn, producer: Any, how: str
) -> None:
    mine = cuda.stream("mine")
    x = made_on(cuda, producer, 7.0)
    made = convert(x, "stand_in", stream=mine if how == "an object" else mine.handle)
    assert library.asked == []
    assert made.view.stream == mine.handle
    seen = mine.read(made.view)
    if how == "an object":
        del made
        producer.fill(x, 9.0)
    cuda.synchronize()
    assert seen.value == [7.0] * 4


def test_nobody_waits_on_one_stream(cuda: Any, library: StandIn, producer: Any) -> None:
    x = made_on(cuda, producer)
    cuda.clear_calls()
    convert(x, "stand_in", stream=producer)
    assert count(cuda, "cuEventRecord") == count(cuda, "cuStreamWaitEvent") == 0


def test_the_array_keeps_the_producer_alive_and_lets_go_of_it(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    x = made_on(cuda, producer, 7.0)
    gone = weakref.ref(x)
    made = convert(x, "stand_in")
    del x
    gc.collect()
    assert gone() is not None
    seen = made.read()
    cuda.synchronize()
    assert seen.value == [7.0] * 4
    del made
    gc.collect()
    assert gone() is None


def test_an_array_of_another_device_is_usable_on_its_devices_stream(
    cuda: Any, library: StandIn
) -> None:
    there = cuda.stream("producer", device=1)
    x = cuda.array([7.0] * 4, speaks="cai3", stream=there)
    made = convert(x, "stand_in")
    assert (library.asked, made.stream) == ([1], library.streams[1])
    seen = made.read()
    cuda.synchronize()
    assert seen.value == [7.0] * 4


def test_a_way_back_is_ordered_by_the_stream_of_the_first_consumer(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    x = made_on(cuda, producer)
    made = convert(x, "stand_in")
    made.write(7.0)
    back = convert(made, "cai", stream=producer)
    assert back.ptr == x.ptr
    seen = producer.read(back)
    cuda.synchronize()
    assert seen.value == [7.0] * 4


# an array of the library itself


def test_an_array_of_the_library_is_itself(cuda: Any, library: StandIn, producer: Any) -> None:
    made = convert(made_on(cuda, producer), "stand_in")
    cuda.clear_calls()
    assert convert(made, "stand_in") is made
    assert not cuda.calls


def test_an_array_of_the_library_is_ordered_for_a_stream_that_is_said(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    made, mine = convert(made_on(cuda, producer), "stand_in"), cuda.stream("mine")
    made.write(7.0)
    assert convert(made, "stand_in", stream=mine) is made
    seen = mine.read(made.view)
    mine.synchronize()
    assert seen.value == [7.0] * 4


def test_a_tensor_of_the_library_is_ordered_though_it_requires_a_gradient(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    x, mine = made_on(cuda, producer, 7.0), cuda.stream("mine")
    tensor = torch_like(x, _grad=True, detach=lambda: x)
    library.types = (type(tensor),)
    assert convert(tensor, library, stream=mine) is tensor
    assert convert([tensor], library, stream=mine)[0] is tensor
    seen = mine.read(x)
    mine.synchronize()
    assert seen.value == [7.0] * 4


@pytest.mark.unchecked
def test_without_that_order_there_is_a_race(cuda: Any, library: StandIn, producer: Any) -> None:
    made, mine = convert(made_on(cuda, producer), "stand_in"), cuda.stream("mine")
    made.write(7.0)
    assert convert(made, "stand_in") is made
    mine.read(made.view)
    mine.synchronize()
    assert [report.kind for report in cuda.reports] == ["race"]


def test_an_array_of_the_library_is_copied_where_a_copy_is_asked_for(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    x = made_on(cuda, producer, 7.0)
    made = convert(x, "stand_in")
    copied = convert(made, "stand_in", copy=True)
    assert type(copied) is Array
    assert copied.view.ptr not in (0, x.ptr)
    seen = copied.read()
    cuda.synchronize()
    assert seen.value == [7.0] * 4


# arguments


def test_a_copy_is_apart_from_its_source(cuda: Any, library: StandIn, producer: Any) -> None:
    x = made_on(cuda, producer, 7.0)
    made = convert(x, "stand_in", copy=True)
    assert made.view.ptr != x.ptr
    producer.fill(x, 9.0)
    seen = made.read()
    cuda.synchronize()
    assert seen.value == [7.0] * 4


@each("refusals", "object", object="read-only array")
@pytest.mark.parametrize("to", ["stand_in", "tvm_ffi"])
@pytest.mark.parametrize("speaks", ["exchange", "dlpack", "cai3"])
def test_read_only_memory_is_refused_for_a_library_that_writes(
    cuda: Any, library: StandIn, row: Any, to: str, speaks: str
) -> None:
    x = cuda.array([1.0] * 4, speaks=speaks, readonly=True)
    assert_refused(row, convert, x, to)
    assert_refused(row, convert, cuda.array(shape=4), to, readonly=True)
    assert x.exports == 0
    assert convert(x, to, readonly=False) is not None
    copied = convert(x, to, copy=True)
    cuda.synchronize()
    assert (copied.view.ptr if to == "stand_in" else copied.data_ptr()) != x.ptr


@each("refusals", "object", object="reversed array")
def test_negative_strides_are_refused_for_a_library_that_makes_its_arrays_itself(
    cuda: Any, row: Any
) -> None:
    x = cuda.array([1.0] * 4, speaks="cai3")
    last = {**x.__cuda_array_interface__, "strides": (-4,), "data": (x.ptr + 12, False)}
    view = from_cai(last, owner=x)

    class ByTable(Library):
        name, view, types = "by_table", None, (type(cuda.array([1.0], speaks="exchange")),)

    assert_refused(row, convert, view, ByTable())
    view.release()


@pytest.mark.parametrize("to", ["cai", "dlpack"])
def test_a_view_says_that_its_memory_is_read_only(cuda: Any, to: str) -> None:
    x = cuda.array([1.0], readonly=True)
    assert convert(x, to).readonly
    assert not convert(x, to, readonly=False).readonly
    assert convert(cuda.array([1.0]), to, readonly=True).readonly


def test_a_library_that_only_reads_is_given_read_only_memory(cuda: Any, no_libraries: Any) -> None:
    class Reads(StandIn):
        writes = False

    register(Reads({0: cuda.legacy}))
    x = cuda.array([1.0], readonly=True)
    assert convert(x, "stand_in").view.readonly


def test_a_tensor_that_requires_a_gradient_is_detached_where_that_is_asked_for(cuda: Any) -> None:
    x = cuda.array([1.0])
    tensor = torch_like(cuda.array([1.0]), _grad=True, detach=lambda: x)
    with pytest.raises(BufferError, match=r"^requires_grad: got True; allowed: "):
        convert(tensor, "cai")
    assert convert(tensor, "cai", detach=True).owner is x
    assert convert([tensor], "cai", detach=True)[0].owner is x
    assert convert(x, "cai", detach=True).owner is x


def test_a_call_of_the_driver_that_fails_gives_everything_back(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    x = made_on(cuda, producer)
    for call in ("cuEventRecord", "cuStreamWaitEvent"):
        cuda.fail(call)
        with pytest.raises(RuntimeError, match=rf"^{call}: got "):
            convert(x, "stand_in")
        assert x.exports == 0


def test_what_the_library_raises_passes_through_and_gives_the_memory_back(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    x = made_on(cuda, producer)
    library.refused.add(x.ptr)
    with pytest.raises(BufferError, match=r"^strides: got odd ones"):
        convert(x, "stand_in")
    gc.collect()
    assert x.exports == 0


@pytest.mark.parametrize("x", [3, object(), np.zeros(4), None])
def test_what_is_no_array_of_a_gpu_is_refused(cuda: Any, library: StandIn, x: Any) -> None:
    with pytest.raises((TypeError, BufferError), match=r": got .+; allowed: "):
        convert(x, "stand_in")


# which library


class Subclass(Array):
    """An array of a subclass, from another module."""


@pytest.mark.parametrize(
    "to", [stand_in, "stand_in", "stand_in.part", Array, Subclass], ids=lambda to: repr(to)[:30]
)
def test_a_library_is_named_by_module_name_or_type(cuda: Any, library: StandIn, to: Any) -> None:
    assert type(convert(cuda.array([1.0]), to)) is Array


def test_a_library_can_be_given_itself(cuda: Any, no_libraries: Any) -> None:
    assert type(convert(cuda.array([1.0]), StandIn({0: cuda.legacy}))) is Array


def test_a_part_of_a_package_names_the_package(
    cuda: Any, library: StandIn, monkeypatch: Any
) -> None:
    part = types.ModuleType("stand_in.part")
    monkeypatch.setitem(sys.modules, part.__name__, part)
    assert type(convert(cuda.array([1.0]), part)) is Array


@pytest.mark.parametrize(
    ("to", "kind"),
    [("cai", CaiView), ("dlpack", DLPackView), (CaiView, CaiView), (DLPackView, DLPackView)],
)
def test_views_are_named_too(cuda: Any, to: Any, kind: type) -> None:
    x = cuda.array([1.0])
    view = convert(x, to)
    assert type(view) is kind
    assert (view.ptr, view.owner) == (x.ptr, x)
    assert convert(view, to) is view


UNKNOWN = [
    ("nobody", "'nobody'"),
    (3, "3"),
    (None, "None"),
    ([1], r"\[1\]"),
    (types, "<module 'types'"),
    (int, "the type builtins.int"),
    (stand_in.StandIn, "the type stand_in.StandIn"),
    (np.float32, "the type numpy.float32"),
]


@pytest.mark.parametrize(("to", "got"), UNKNOWN, ids=lambda value: repr(value)[:20])
def test_a_library_that_is_not_known_is_refused(
    cuda: Any, library: StandIn, to: Any, got: str
) -> None:
    x = cuda.array([1.0])
    allowed = "a library of cai, cuda, .+, stand_in, torch, tvm_ffi, as a module, by its name"
    with pytest.raises(TypeError, match=rf"^to: got {got}.*; allowed: {allowed}"):
        convert(x, to)
    assert x.exports == 0


def test_a_library_that_is_not_installed_says_so(cuda: Any, no_libraries: Any) -> None:
    class Absent(Library):
        name = "absent"
        arrays = ("absent_from_here:Array",)

    register(Absent())
    with pytest.raises(ModuleNotFoundError, match="absent_from_here"):
        convert(cuda.array([1.0]), "absent")


@pytest.mark.parametrize("library", [Library(), 3, "stand_in", StandIn], ids=repr)
def test_only_libraries_with_a_name_are_registered(library: Any) -> None:
    with pytest.raises(TypeError, match=r"^library: got .+; allowed: a cai_bridge.Library with"):
        register(library)


def test_one_of_the_same_name_replaces_the_other(cuda: Any, library: StandIn) -> None:
    x = cuda.array([1.0])
    convert(x, "stand_in")
    convert(x, Array)
    other = StandIn({0: cuda.legacy})
    register(other)
    convert(x, "stand_in")
    convert(x, Array)
    assert (library.asked, other.asked) == ([0, 0], [0, 0])


def test_a_type_of_another_module_is_found_by_what_was_registered(
    cuda: Any, no_libraries: Any
) -> None:
    class Elsewhere(StandIn):
        name = "elsewhere"

    register(Elsewhere({0: cuda.legacy}))
    assert type(convert(cuda.array([1.0]), Array)) is Array


class EntryPoints:
    """What stands in for the installed packages' entry points."""

    def __init__(self, loaded: Any) -> None:
        self.loaded, self.asked = loaded, []

    def __call__(self, **wanted: str) -> Any:
        self.asked.append(wanted)
        if wanted != {"group": "cai_bridge.libraries", "name": "stand_in"}:
            return []
        return [types.SimpleNamespace(load=lambda: self.loaded)]


@pytest.mark.parametrize("made_by", ["a library", "a function"])
def test_a_package_adds_its_library_by_an_entry_point(
    cuda: Any, no_libraries: Any, monkeypatch: Any, made_by: str
) -> None:
    made = StandIn({0: cuda.legacy})
    points = EntryPoints(made if made_by == "a library" else lambda: made)
    monkeypatch.setattr(importlib.metadata, "entry_points", points)
    x = cuda.array([1.0])
    for to in (stand_in, "stand_in", Array):
        assert type(convert(x, to)) is Array
    assert len(points.asked) == 1
    with pytest.raises(TypeError, match=r"^to: got 'nobody'"):
        convert(x, "nobody")


# NumPy


@pytest.mark.parametrize("to", ["numpy", np, np.ndarray])
@pytest.mark.parametrize("speaks", SPEAKS)
def test_numpy_is_given_a_copy_in_order(cuda: Any, producer: Any, speaks: Any, to: Any) -> None:
    x = made_on(cuda, producer, 7.0, speaks)
    made = convert(x, to)
    assert type(made) is np.ndarray
    assert made.dtype == np.float32
    assert made.tolist() == [7.0] * 4
    producer.fill(x, 9.0)
    cuda.synchronize()
    assert made.tolist() == [7.0] * 4
    assert x.exports == 0


@pytest.mark.unchecked
def test_without_the_hosts_wait_numpy_is_given_what_was_there_before(
    cuda: Any, producer: Any
) -> None:
    x = made_on(cuda, producer, 91.5)
    for call in ("cuStreamWaitEvent", "cuStreamSynchronize", "cuEventSynchronize"):
        cuda.suppress(call)
    made = convert(x, "numpy")
    assert cuda.reports or made.tolist() != [91.5] * 4
    cuda.clear_faults()


def test_numpy_takes_what_layout_there_is(cuda: Any) -> None:
    for shape in ((), (0, 3), (2, 2)):
        items = int(np.prod(shape))
        values = np.arange(items, dtype=np.float32).reshape(shape)
        made = convert(cuda.array(values.tolist() if items else None, shape=shape), "numpy")
        assert made.shape == shape
        assert np.array_equal(made, values)
    columns = cuda.array([[1.0, 2.0], [3.0, 4.0]], strides="F")
    assert convert(columns, "numpy").tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_numpy_is_never_without_a_copy(cuda: Any) -> None:
    x = cuda.array([1.0])
    with pytest.raises(ValueError, match=r"^copy: got False; allowed: None or True, for NumPy"):
        convert(x, "numpy", copy=False)
    with pytest.raises(ValueError, match=r"^x\[1\]: copy: got False"):
        convert([1, x], "numpy", copy=False)
    assert convert(x, "numpy", copy=True).tolist() == [1.0]
    assert x.exports == 0


def test_numpys_own_arrays_stay(cuda: Any) -> None:
    x = np.ones(4)
    assert convert(x, np) is x
    assert convert(x, np, stream=1) is x


# tvm-ffi


def tensors_memory(tensor: Any) -> CaiView:
    """The memory of a tensor, with no order made."""
    return to_cai(tensor, stream=-1)


@pytest.mark.parametrize("speaks", SPEAKS)
def test_tvm_ffi_is_given_the_array_on_its_environments_stream(
    cuda: Any, producer: Any, speaks: Any
) -> None:
    mine = cuda.stream("mine")
    x = made_on(cuda, producer, 7.0, speaks)
    with tvm_ffi.use_raw_stream(DEVICE, mine.handle):
        made = convert(x, tvm_ffi)
    assert type(made) is tvm_ffi.Tensor
    assert made.data_ptr() == x.ptr
    seen = mine.read(tensors_memory(made))
    mine.synchronize()
    assert seen.value == [7.0] * 4
    del made
    gc.collect()
    cuda.synchronize()
    assert x.exports == 0


def test_tvm_ffi_and_a_stream_that_is_said(cuda: Any, producer: Any) -> None:
    mine = cuda.stream("mine")
    x = made_on(cuda, producer, 7.0)
    made = convert(x, "tvm_ffi.core", stream=mine)
    seen = mine.read(tensors_memory(made))
    del made
    producer.fill(x, 9.0, name="the producer's next write")
    cuda.synchronize()
    assert seen.value == [7.0] * 4


@pytest.mark.unchecked
def test_without_a_wait_tvm_ffis_array_is_a_race(cuda: Any, producer: Any) -> None:
    mine = cuda.stream("mine")
    x = made_on(cuda, producer)
    for nth in (1, 2):
        cuda.suppress("cuStreamWaitEvent", nth=nth)
    made = convert(x, tvm_ffi, stream=mine)
    mine.read(tensors_memory(made))
    mine.synchronize()
    assert cuda.reports
    cuda.clear_faults()


def test_tvm_ffis_arrays_go_to_another_library(cuda: Any, library: StandIn, producer: Any) -> None:
    x = made_on(cuda, producer, 7.0)
    with tvm_ffi.use_raw_stream(DEVICE, producer.handle):
        made = convert(convert(x, tvm_ffi), "stand_in")
    seen = made.read()
    cuda.synchronize()
    assert (seen.value, made.view.ptr) == ([7.0] * 4, x.ptr)


def test_a_library_that_nobody_has_any_more_goes(cuda: Any) -> None:
    library = StandIn({0: cuda.legacy})
    assert library.maker.convert([cuda.array([1.0])])
    gone = weakref.ref(library)
    del library
    gc.collect()
    assert gone() is None


# types


def test_the_type_of_the_array_follows_from_what_it_is_converted_to(cuda: Any) -> None:
    view = to_cai(cuda.array([1.0]))
    assert_type(convert(view, "cai"), CaiView)
    assert_type(convert(view, "dlpack"), DLPackView)
    assert_type(convert(view, DLPackView), DLPackView)
    assert_type(convert([view], "dlpack"), Any)


# a quick route


@pytest.mark.parametrize("fails", ["it raises", "it makes another array"])
def test_a_quick_route_that_does_not_do_the_same_is_not_taken(fails: str, caplog: Any) -> None:
    calls = []

    def quick(view: Any, stream: Any) -> Any:
        calls.append("quick")
        if fails == "it raises":
            raise AttributeError("gone")
        return (view.size, 1)

    def public(view: Any, stream: Any) -> Any:
        calls.append("public")
        return (view.size, 2)

    route = Quick("library", quick, public, lambda one, other: one == other)
    view = types.SimpleNamespace(size=4)
    with caplog.at_level("DEBUG", logger="cai_bridge"):
        assert route(view, None) == (4, 2)
    assert "library: the public route is taken: " in caplog.text
    calls.clear()
    assert route(view, None) == (4, 2)
    assert calls == ["public"]


def test_a_quick_route_that_does_the_same_is_taken_from_then_on() -> None:
    calls = []
    quick = lambda view, stream: calls.append("quick") or view.size  # noqa: E731
    public = lambda view, stream: calls.append("public") or view.size  # noqa: E731
    route = Quick("library", quick, public, lambda one, other: one == other)
    sizes = [0, 4, 3, 2]
    assert [route(types.SimpleNamespace(size=size), None) for size in sizes] == sizes
    # Arrays of nothing go by the public route, and tell nothing of the other.
    assert calls == ["public", "quick", "public", "quick", "quick", "quick"]


# to_dlpack


@pytest.mark.parametrize("speaks", NAME)
def test_to_dlpack_takes_either_protocol_in_order(cuda: Any, producer: Any, speaks: Any) -> None:
    mine = cuda.stream("mine")
    x = made_on(cuda, producer, 7.0, speaks)
    view = to_dlpack(x, stream=mine)
    assert (type(view), view.ptr, view.stream, view.owner) == (DLPackView, x.ptr, mine.handle, x)
    seen = mine.read(view)
    view.release()
    producer.fill(x, 9.0)
    cuda.synchronize()
    assert seen.value == [7.0] * 4


@pytest.mark.parametrize("speaks", ["exchange", "dlpack", "cai3"])
def test_to_dlpacks_view_is_ordered_for_whoever_asks(cuda: Any, producer: Any, speaks: Any) -> None:
    x = made_on(cuda, producer, 7.0, speaks)
    consumer = cuda.consumer("dlpack", cuda.stream("mine"))
    seen = consumer.read(to_dlpack(x))
    cuda.synchronize()
    assert seen.value == [7.0] * 4


def test_to_dlpack_minds_read_only_memory(cuda: Any) -> None:
    x = cuda.array([1.0], readonly=True)
    assert to_dlpack(x).readonly
    assert not to_dlpack(x, readonly=False).readonly
    assert to_dlpack(only_cai(cuda.array(shape=4)), readonly=True).readonly


def test_to_dlpack_refuses_a_stream_that_is_none(cuda: Any) -> None:
    with pytest.raises(ValueError, match=r"^stream: got .+; allowed: "):
        to_dlpack(cuda.array([1.0]), stream=0)
    with pytest.raises((TypeError, ValueError), match=r": got .+; allowed: "):
        to_dlpack(cuda.array([1.0]), stream=StreamObject((0,)))


def test_a_library_on_the_legacy_stream_may_work_on_blocking_ones_as_well(
    cuda: Any, library: StandIn
) -> None:
    """As Numba: its default stream is the legacy one, and its others are blocking."""
    mine, theirs = cuda.stream("mine", blocking=True), cuda.stream("theirs", blocking=True)
    library.streams[0] = cuda.legacy
    x = made_on(cuda, mine, 7.0, "cai3")
    made = convert(x, "stand_in")
    seen = theirs.read(made.view, name="the read")
    view = made.view
    del made, view
    mine.fill(x, 9.0)
    cuda.synchronize()
    assert seen.value == [7.0] * 4
    assert not cuda.reports


@pytest.mark.parametrize("wrong", ["a capture", "read-only"])
def test_a_capsule_that_is_refused_is_as_it_was(cuda: Any, library: StandIn, wrong: str) -> None:
    stream = cuda.stream("captured", blocking=True)
    x = cuda.array([1.0] * 4, speaks="dlpack", readonly=wrong == "read-only")
    capsule = x.__dlpack__(stream=1, max_version=(1, 3))
    if wrong == "a capture":
        with cuda.capture(stream, "relaxed"), pytest.raises(DriverError, match="graph capture"):
            convert(capsule, "stand_in", stream=stream)
    else:
        with pytest.raises(BufferError, match="readonly"):
            convert(capsule, "stand_in")
    seen = cuda.consumer("cai-waits", cuda.legacy).read(to_cai(capsule))
    cuda.synchronize()
    assert seen.value == [1.0] * 4
