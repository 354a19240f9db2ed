"""How a copy's memory goes back, and the memory that it was made of."""

import threading

import pytest
from copies import ends, named, taken

from cai_bridge import from_cai

# --- how the memory goes back ---------------------------------------------------------------------


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


# --- whose memory it was --------------------------------------------------------------------------


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
