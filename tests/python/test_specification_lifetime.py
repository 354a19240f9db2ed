"""What the specification's "Lifetime management" asks, of whoever reads a dict and of views."""

from __future__ import annotations

import gc
import weakref

import pytest
from fakes import only_cai
from scenes import again, done
from specification import as_consumer, as_producer, each_door, each_producer, taken_on, view_of

from cai_bridge import from_cai, to_cai
from cai_bridge._core import _settle

SEEN = [7.0] * 8


# --- data -----------------------------------------------------------------------------------------


@as_producer("data-no-effect")
@each_producer
def test_who_holds_a_views_dict_holds_nothing(cuda, speaks):
    x = cuda.array([1.0], speaks=speaks)
    view, gone = to_cai(x), weakref.ref(x)
    made = view.__cuda_array_interface__
    before, (alive,) = view.owner is not None, [weakref.ref(view)]
    del x, view
    cuda.synchronize()
    gc.collect()
    assert (before, alive(), gone()) == (True, None, None)
    assert made["shape"] == (1,)


@as_consumer("data-no-effect", "data-no-owner")
def test_a_dict_alone_is_not_taken_but_with_its_owner_which_is_then_kept(cuda):
    x = cuda.array(SEEN, speaks="cai3", memory="pool", stream=cuda.stream("producer's"))
    made, gone = x.__cuda_array_interface__, weakref.ref(x)
    with pytest.raises(ValueError, match=r"^owner: got None; .* a dict holds no reference"):
        from_cai(made)
    view = from_cai(made, owner=x)
    del x
    assert gone() is not None
    seen = taken_on(cuda, view)
    del view
    assert gone() is not None
    seen.release()
    cuda.synchronize()
    _settle()  # nobody vouches for a bare dict's stream, so the end comes when the work is done
    gc.collect()
    assert gone() is None
    assert seen.value == SEEN


@as_producer("data-no-owner")
@each_producer
def test_a_views_dict_has_no_entry_for_the_owner_and_the_view_has_it(cuda, speaks):
    x = cuda.array([1.0], speaks=speaks)
    view = to_cai(x)
    known = {"shape", "typestr", "data", "version", "strides", "descr", "mask", "stream"}
    assert set(view.__cuda_array_interface__) <= known
    assert not any(value is x for value in view.__cuda_array_interface__.values())
    assert view.owner is x


@as_consumer("data-preserve", "data-retain")
@each_door
def test_the_owner_lives_until_the_consumers_work_has_had_its_turn(cuda, door):
    producer, mine = cuda.stream("producer's"), cuda.stream("mine")
    scene = type("Scene", (), {"cuda": cuda, "producer": producer})()
    scene.array = cuda.array(SEEN, speaks="cai3", memory="pool", stream=producer, name="x")
    gone = weakref.ref(scene.array)
    seen = taken_on(cuda, door(scene.array), mine)
    ptr, scene.array = scene.array.ptr, None
    gc.collect()
    assert gone() is not None
    seen.release()
    gc.collect()
    assert gone() is None
    scene.array = type("Gone", (), {"ptr": ptr})()
    again(scene)  # the block is handed out again, and written to
    assert done(seen) == SEEN


@as_producer("data-preserve")
@each_producer
def test_a_view_keeps_the_owner_for_who_keeps_the_view(cuda, speaks):
    producer = cuda.stream("producer's")
    x = cuda.array(SEEN, speaks=speaks, memory="pool", stream=producer, name="x")
    exports = getattr(x, "exports", 0)
    view = view_of(cuda, x, producer)
    kept, ptr = weakref.ref(x), x.ptr
    del x
    gc.collect()
    assert kept() is not None
    assert (kept().exports, kept().ptr) == (exports + (speaks != "cai3"), ptr)
    seen = cuda.consumer("cai-waits", cuda.stream()).read(view)
    assert done(seen) == SEEN
    del view
    seen.release()
    cuda.synchronize()
    gc.collect()
    assert kept() is None


# --- streams --------------------------------------------------------------------------------------


@as_producer("streams", "streams-finite")
@each_producer
def test_a_view_keeps_the_stream_that_its_dict_names(cuda, speaks):
    producer, mine = cuda.stream("producer's"), cuda.stream("mine")
    x = cuda.array(SEEN, speaks=speaks, memory="pool", stream=producer, name="x")
    view = view_of(cuda, x, producer, stream=mine)
    gone = weakref.ref(mine)
    del mine
    gc.collect()
    assert gone().handle == view.__cuda_array_interface__["stream"]
    seen = cuda.consumer("cai-enqueues", cuda.stream()).read(view)
    seen.release()
    del view
    cuda.synchronize()
    _settle()  # an end that nobody's stream could wait for comes when the work is done
    gc.collect()
    assert gone() is None
    assert seen.value == SEEN


@as_consumer("streams", "streams-finite")
@each_door
@pytest.mark.parametrize("end", ["view first", "consumer first"])
def test_the_exporter_is_kept_and_with_it_its_stream_for_as_long_as_that_is_used(cuda, door, end):
    producer = cuda.stream("producer's")
    x = cuda.array(SEEN, speaks=(), memory="pool", stream=producer)
    exporter = only_cai(x, shape=(8,), stream=producer.handle)
    exporter.stream = producer  # as the specification asks of it
    gone = weakref.ref(producer)
    view = door(exporter)
    del exporter, producer, x
    gc.collect()
    assert gone() is not None
    seen = taken_on(cuda, view)
    if end == "view first":
        del view
        assert gone() is not None
        seen.release()
    else:
        seen.release()
        assert gone() is not None
        del view
    gc.collect()
    assert gone() is None
    cuda.synchronize()
    assert (seen.value, cuda.reports) == (SEEN, [])
