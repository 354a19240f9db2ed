"""How a copy's memory goes back, and the memory that it was made of."""

import gc
import threading
import weakref

import numpy as np
import pytest
from copies import NEWEST, ends, named, taken
from found import kinds

from cai_bridge import from_cai, to_cai

# --- how the memory goes back ---------------------------------------------------------------------


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("stream", [None, 1, 2, "object"])
def test_memory_goes_back_in_the_order_of_the_consumers_stream(stream, pending, cuda):
    p, c = cuda.stream("p"), cuda.stream("c")
    view = from_cai(cuda.array([1.0], speaks="cai", memory="pool", stream=p if pending else None))
    works_on = {None: cuda.legacy, 1: cuda.legacy, 2: cuda.per_thread}.get(stream, c)
    copy = taken(view, stream=c if stream == "object" else stream)
    gone, ptr = weakref.ref(c), copy.fields.ptr
    del c
    works_on.launch(reads=[(ptr, 4)], name="late")
    cuda.clear_calls()
    copy.delete()
    assert ends(cuda) == [("cuMemFreeAsync", works_on.handle)]
    assert cuda.pending > 0, "the host does not wait"
    again = taken(view, stream=works_on)
    assert again.fields.ptr == ptr, "the stream's pool hands it out again"
    again.delete()
    cuda.synchronize()
    if stream == "object":
        del works_on
        assert gone() is None, "the stream is held no longer than the memory"


def test_with_minus_one_memory_goes_back_after_the_streams_that_can_be_named(cuda):
    p, mine = cuda.stream("p"), cuda.stream("mine")
    x = cuda.array([1.0], speaks="cai", memory="pool", stream=p)
    copy = taken(from_cai(x), stream=-1)
    p.synchronize()
    with cuda.current_stream(mine):
        for works_on in (cuda.legacy, cuda.stream("blocking", blocking=True), mine):
            works_on.launch(reads=[(copy.fields.ptr, 4)], name="late")
        cuda.clear_calls()
        copy.delete()
    assert ends(cuda) == [("cuMemFreeAsync", 1)]
    cuda.synchronize()


@pytest.mark.parametrize("stream", ["bare", "of the other GPU"])
def test_memory_waits_for_the_device_where_the_consumers_stream_may_be_dead(stream, cuda):
    view = from_cai(cuda.array([1.0], speaks="cai", memory="pool"))
    c = cuda.stream("c")
    copy = taken(view, stream=c.handle, dl_device=(2, int(stream == "of the other GPU")))
    c.launch(reads=[(copy.fields.ptr, 4)], name="late")
    if stream == "of the other GPU":
        # Its context is not the memory's: the consumer has to be done by itself.
        cuda.synchronize()
    del c
    cuda.clear_calls()
    copy.delete()
    assert ends(cuda) == [("cuModuleUnload", None), ("cuMemFreeAsync", 1)]
    asked = [stream for _, stream in named(cuda, "cuStreamIsCapturing", "cuStreamGetCaptureInfo")]
    # Whether the free would end its capture.
    assert asked == [1]
    assert cuda.pending == 1, "the free alone"


@pytest.mark.unchecked
@pytest.mark.parametrize("waits", [False, True])
def test_without_the_wait_the_free_races_with_the_consumer(waits, cuda):
    view = from_cai(cuda.array([1.0], speaks="cai", memory="pool"))
    c = cuda.stream("c")
    copy = taken(view, stream=c.handle)
    c.launch(reads=[(copy.fields.ptr, 4)], name="late")
    if not waits:
        cuda.suppress("cuModuleUnload")
    copy.delete()
    assert kinds(cuda) == ([] if waits else ["race"])


def test_a_bare_handle_is_known_by_the_library_that_works_on_it(cuda):
    c = cuda.stream("c")
    with cuda.current_stream(c):
        view = from_cai(cuda.array([1.0], speaks="cai", memory="pool"))
        copy = taken(view, stream=c.handle)
    cuda.clear_calls()
    copy.delete()
    assert ends(cuda) == [("cuMemFreeAsync", c.handle)]
    cuda.synchronize()


@pytest.mark.parametrize("stream", [1, 2, "object"])
def test_a_copy_may_be_deleted_by_any_thread(stream, cuda):
    c = cuda.stream("c")
    copy = taken(
        from_cai(cuda.array([1.0], speaks="cai", memory="pool")),
        stream=c if stream == "object" else stream,
    )
    cuda.clear_calls()
    thread = threading.Thread(target=copy.delete)
    thread.start()
    thread.join()
    # Another thread's per-thread stream has no name; the legacy one follows it.
    wanted = {1: 1, 2: 1}.get(stream, c.handle)
    assert ends(cuda) == [("cuMemFreeAsync", wanted)]
    cuda.synchronize()


def test_an_unused_capsule_gives_its_memory_back(cuda):
    view = from_cai(cuda.array([1.0], speaks="cai", memory="pool"))
    cuda.clear_calls()
    for wishes in ({}, {"dl_device": (2, 1)}):
        view.__dlpack__(copy=True, **wishes)
    assert ends(cuda) == [("cuMemFreeAsync", 1)] * 2
    cuda.synchronize()


def test_a_copy_to_another_gpu_goes_back_there(cuda):
    copy = taken(from_cai(cuda.array([1.0], speaks="cai", memory="pool")), dl_device=(2, 1))
    ptr = copy.fields.ptr
    cuda.default_stream(1).launch(reads=[(ptr, 4)], name="late")
    copy.delete()
    cuda.synchronize()
    assert cuda.current_device == 0
    assert cuda.array(shape=1, memory="pool", device=1).ptr == ptr, "the pool has it again"


# --- the source -----------------------------------------------------------------------------------


@pytest.mark.unchecked
@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("left_out", [None, "before", "after"])
def test_the_producer_is_let_go_at_once_and_waits_before_it_uses_its_memory_again(
    left_out, device, cuda
):
    p, c = cuda.stream("p"), cuda.stream("c", device=device)
    x = cuda.array([0.0], speaks="cai", memory="pool", stream=p)
    p.fill(x, 7.0)
    view, gone, ptr = from_cai(x), weakref.ref(x), x.ptr
    if left_out:
        cuda.suppress("cuStreamWaitEvent", nth=1 if left_out == "before" else 2)
    capsule = view.__dlpack__(stream=c, dl_device=(2, device), copy=True, max_version=NEWEST)
    del x, view
    gc.collect()
    assert gone() is None
    y = cuda.array(shape=1, memory="pool", stream=p)
    assert y.ptr == ptr, "the producer's memory is handed out again"
    p.fill(y, 9.0)
    copy = to_cai(capsule, stream=-1)
    seen = c.read(copy)
    cuda.synchronize()
    assert (seen.value == [7.0]) == (left_out is None)
    assert set(kinds(cuda)) == ({"race"} if left_out else set())


@pytest.mark.parametrize("memory", ["pinned", "managed"])
def test_memory_that_the_host_may_use_next_is_held_by_its_copy(memory, cuda):
    x = cuda.array([1.0], speaks="cai", memory=memory)
    copy, gone = taken(from_cai(x), dl_device=(2, 0)), weakref.ref(x)
    del x
    gc.collect()
    assert gone() is not None
    cuda.synchronize()
    copy.delete()
    assert gone() is None


@pytest.mark.unchecked
def test_without_the_hosts_wait_the_cpu_reads_too_early(cuda):
    x = cuda.array([1234.5] * 64, speaks="cai", stream=cuda.stream("p"))
    cuda.suppress("cuStreamSynchronize")
    early = np.from_dlpack(from_cai(x), device="cpu")
    assert early.tolist() != [1234.5] * 64
    del early
    cuda.synchronize()


# --- whose memory it was --------------------------------------------------------------------------


@pytest.mark.unchecked
@pytest.mark.parametrize("left_out", [False, True])
def test_the_first_producer_waits_and_not_who_handed_it_on(left_out, cuda):
    p, told, c = cuda.stream("p"), cuda.stream("told"), cuda.stream("c")
    x = cuda.array([7.0], speaks="cai", memory="pool", stream=p)
    view = from_cai(to_cai(x, stream=told))
    assert view.stream == told.handle
    if left_out:
        cuda.suppress("cuStreamWaitEvent", nth=2)
    capsule = view.__dlpack__(stream=c, copy=True)
    p.fill(x, 9.0)
    read = c.read(copy := to_cai(capsule, stream=-1))
    cuda.synchronize()
    assert (read.value == [7.0]) == (not left_out)
    assert set(kinds(cuda)) == ({"race"} if left_out else set())
    del copy


@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("writes", ["p", "declared"])
def test_the_memorys_own_stream_and_the_declared_one_wait_for_the_copy(writes, device, cuda):
    p, declared, c = cuda.stream("p"), cuda.stream("declared"), cuda.stream("c", device=device)
    x = cuda.array([7.0], speaks="cai", memory="pool", stream=p)
    declared.wait(p.record())
    view = from_cai(to_cai(x), stream=declared)
    capsule = view.__dlpack__(stream=c, dl_device=(2, device), copy=True)
    {"p": p, "declared": declared}[writes].fill(x, 9.0)
    read = c.read(copy := to_cai(capsule, stream=-1))
    cuda.synchronize()
    assert read.value == [7.0]
    del copy


def test_a_stream_object_that_was_closed_is_not_used(cuda):
    class Closable:
        def __init__(self, stream):
            self.stream = stream

        def __cuda_stream__(self):
            return (0, self.stream.handle if self.stream else 0)

    closable = Closable(cuda.stream("c"))
    copy = taken(from_cai(cuda.array([1.0], speaks="cai", memory="pool")), stream=closable)
    closable.stream = None
    cuda.clear_calls()
    copy.delete()
    made = ends(cuda)
    assert made[-1] == ("cuMemFreeAsync", 1)
    assert set(made[:-1]) == {("cuModuleUnload", None)}
