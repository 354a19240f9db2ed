"""Ends that others cause: in a destructor, in another end, by a stream that was closed."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from scenes import done

from cai_bridge import DriverError, convert, from_cai, to_cai

# --- in the destructor of an owner ----------------------------------------------------------------


class Owner:
    """Says what an array says, and does something at its end."""

    def __init__(self, array: Any, at_end: Any) -> None:
        self.array, self.at_end = array, at_end

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.array.__cuda_array_interface__

    def __del__(self) -> None:
        self.at_end()


@pytest.mark.parametrize("how", ["release", "the last reference"])
@pytest.mark.parametrize("outer", ["an end", "nothing"])
def test_whoever_ends_a_view_in_an_end_goes_on_with_its_memory_at_once(
    cuda: Any, how: str, outer: str
) -> None:
    streams = [cuda.stream(name) for name in ("theirs", "reader", "mine", "consumer")]
    theirs, reader, mine, consumer = streams
    x = cuda.array([1.0] * 4, speaks="cai3", stream=theirs, name="x")
    y = cuda.array([1.0] * 4, speaks="cai3", stream=mine, name="y")
    cuda.synchronize()
    views = [to_cai(x, stream=reader)]
    seen = reader.read(views[0])

    def go_on() -> None:
        if how == "release":
            views[0].release()
        views.clear()
        theirs.fill(x, 9.0)

    owner = Owner(y, go_on)
    if outer == "an end":
        owner = to_cai(owner, stream=consumer)
    del owner
    assert done(seen) == [1.0] * 4
    assert not views


class Frame:
    """Frees its memory in the order of its own stream, once its views are released."""

    def __init__(self, cuda: Any, stream: Any) -> None:
        self.x = cuda.array([1.0] * 4, speaks=(), stream=stream, memory="pool")
        self.stream, self.views = stream, list[Any]()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = {"shape": (4,), "typestr": "<f4", "data": (self.x.ptr, False)}
        return {**data, "version": 3, "stream": self.stream.handle}

    def __del__(self) -> None:
        for view in self.views:
            view.release()
        del self.x


@pytest.mark.parametrize("door", ["to_cai", "dlpack"])
def test_a_view_that_its_owner_releases_as_garbage_is_in_order(cuda: Any, door: str) -> None:
    theirs, consumer = cuda.stream("frame's"), cuda.stream("consumer")
    frame = Frame(cuda, theirs)
    frame.views.append(
        to_cai(frame, stream=consumer)
        if door == "to_cai"
        else convert(frame, "dlpack", stream=consumer)
    )
    seen = consumer.read(frame.views[0])
    del frame
    gc.collect()
    assert done(seen) == [1.0] * 4


# --- by whoever is asked at an end ----------------------------------------------------------------


def test_a_producer_that_makes_views_while_an_end_is_put_off_is_not_asked_for_ever(
    cuda: Any,
) -> None:
    theirs, captured = cuda.stream("theirs"), cuda.stream("captured", blocking=True)
    x = cuda.array([1.0] * 4, speaks="cai3", stream=theirs)

    class Again:
        busy = False

        @property
        def __cuda_array_interface__(self) -> Any:
            if not self.busy:
                self.busy = True
                view = to_cai(self)
                assert view.__cuda_array_interface__
                self.busy = False
                del view
            return x.__cuda_array_interface__

    with cuda.capture(captured):
        view = to_cai(Again())
        assert view.__cuda_array_interface__
        del view
    cuda.synchronize()
    to_cai(x).release()
    gc.collect()


@pytest.mark.parametrize("several", [False, True])
def test_work_that_a_getter_queues_is_waited_for(cuda: Any, several: bool) -> None:
    theirs, consumer, done = cuda.stream("theirs"), cuda.stream("consumer"), list[bool]()

    class Lazy:
        """Does its work when it is asked."""

        def __init__(self) -> None:
            self.x = cuda.array([0.0] * 4, speaks="cai3", stream=theirs)
            self.asked = 0

        @property
        def __cuda_array_interface__(self) -> Any:
            if not done:
                self.asked += 1
                theirs.fill(self.x, float(self.asked))
            return self.x.__cuda_array_interface__

    arrays = [Lazy(), Lazy()]
    if several:
        views = convert(arrays, "cai", stream=consumer)
    else:
        views = [convert(x, "cai", stream=consumer) for x in arrays]
    read = [consumer.read(view) for view in views]
    done.append(True)
    del views
    cuda.synchronize()
    assert [seen.value for seen in read] == [[float(x.asked)] * 4 for x in arrays]


def test_no_stream_is_lost_between_the_question_and_the_order(cuda: Any) -> None:
    theirs, consumer, other = (cuda.stream(name) for name in ("theirs", "consumer", "other"))
    x = cuda.array([1.0] * 4, speaks="dlpack")

    class Holds:
        """An owner whose end destroys a stream."""

        def __dlpack__(self, **wishes: Any) -> Any:
            return x.__dlpack__(**wishes)

        def __dlpack_device__(self) -> Any:
            return x.__dlpack_device__()

        def __del__(self) -> None:
            theirs.destroy()

    waits = to_cai(Holds(), stream=other)
    other.read(waits)
    view = from_cai(cuda.array([1.0] * 4, speaks="cai3"), stream=theirs)
    del waits  # it is kept until the other stream is done
    other.launch(lambda: view.__dlpack__(stream=consumer))
    with pytest.raises(DriverError, match="cuModuleUnload: got CUDA_ERROR_NOT_PERMITTED"):
        # The stream is gone before it is asked for: the host would wait, which it may not here.
        other.synchronize()
