"""Ends that others cause: in a destructor, in another end, by whoever is asked for something."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from fakes import StreamObject, interface
from scenes import done
from stand_in import Array, StandIn, no_libraries

from cai_bridge import DriverError, _core, adapt, convert, from_cai, register, to_cai, to_dlpack

__all__ = ["no_libraries"]


class Owner:
    """Says what an array says, and does something as it is asked and at its end."""

    def __init__(self, array: Any, at_end: Any = None, asked: Any = None) -> None:
        self.array, self.at_end, self.asked = array, at_end, asked

    @property
    def __cuda_array_interface__(self) -> Any:
        if self.asked:
            self.asked(self)
        return self.array.__cuda_array_interface__

    def __del__(self) -> None:
        if self.at_end:
            self.at_end()


@pytest.mark.parametrize("how", ["release", "the last reference"])
@pytest.mark.parametrize("outer", ["an end", "nothing"])
def test_whoever_ends_a_view_in_an_end_goes_on_with_its_memory_at_once(cuda, how, outer):
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


@pytest.mark.parametrize("to", ["cai", "dlpack"])
def test_a_view_that_its_owner_releases_as_garbage_is_in_order(cuda, to):
    """The owner frees its memory in the order of its own stream, once its views are released."""
    theirs, consumer = cuda.stream("frame's"), cuda.stream("consumer")
    views: list[Any] = []
    frame = Owner(
        cuda.array([1.0] * 4, speaks="cai3", stream=theirs, memory="pool"),
        lambda views=views: [view.release() for view in views],
    )
    views.append(convert(frame, to, stream=consumer))
    seen = consumer.read(views[0])
    del frame, views
    gc.collect()
    assert done(seen) == [1.0] * 4


def test_a_producer_that_makes_views_while_an_end_is_put_off_is_not_asked_for_ever(cuda):
    captured, busy = cuda.stream("captured", blocking=True), []

    def again(owner: Owner) -> None:
        if not busy:
            busy.append(1)
            assert to_cai(owner).__cuda_array_interface__
            busy.clear()

    x = cuda.array([1.0] * 4, speaks="cai3", stream=cuda.stream("theirs"))
    with cuda.capture(captured):
        assert to_cai(Owner(x, asked=again)).__cuda_array_interface__
    cuda.synchronize()
    to_cai(x).release()
    gc.collect()


@pytest.mark.parametrize("several", [False, True])
def test_work_that_a_getter_queues_is_waited_for(cuda, several):
    theirs, consumer = cuda.stream("theirs"), cuda.stream("consumer")
    asked, over = list[Any](), list[bool]()

    def work(owner: Owner) -> None:
        if not over:
            asked.append(owner)
            theirs.fill(owner.array, float(asked.count(owner)))

    arrays = [
        Owner(cuda.array([0.0] * 4, speaks="cai3", stream=theirs), asked=work) for _ in range(2)
    ]
    if several:
        views = convert(arrays, "cai", stream=consumer)
    else:
        views = [convert(x, "cai", stream=consumer) for x in arrays]
    read = [consumer.read(view) for view in views]
    over.append(True)
    del views
    assert [done(seen) for seen in read] == [[float(asked.count(x))] * 4 for x in arrays]


def test_no_stream_is_lost_between_the_question_and_the_order(cuda):
    theirs, consumer, other = (cuda.stream(name) for name in ("theirs", "consumer", "other"))
    x = cuda.array([1.0] * 4, speaks="dlpack")

    class Holds:
        """An owner whose end destroys a stream."""

        __dlpack__, __dlpack_device__ = x.__dlpack__, x.__dlpack_device__

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


# Whoever is asked may drop a view of another array where its order fails. That end is left for
# later, and is carried out by the end of the call around it.


class Leaves:
    """An array to be asked for, and another whose view ends meanwhile."""

    def __init__(self, cuda: Any) -> None:
        self.cuda, self.asked = cuda, 0
        self.x, self.speaking = cuda.array([1.0] * 4), cuda.array([1.0], speaks="dlpack")
        other = cuda.array([1.0] * 4, speaks="cai3", memory="pool", stream=cuda.stream("producer"))
        self.gone, self.held = weakref.ref(other), [to_cai(other, stream=cuda.stream("consumer"))]

    def leave(self, *_: Any, **__: Any) -> None:
        """End that view where its order fails."""
        self.asked += 1
        if self.held:
            self.cuda.fail("cuEventRecord")
            self.held.clear()
            assert self.cuda.clear_faults() == 0, "the end was not tried"
            assert self.gone() is not None

    def doing(self, act: Any) -> Any:
        """A method or a property that leaves, and then does what `act` does."""

        def method(*arguments: Any, **keywords: Any) -> Any:
            self.leave()
            return act(*arguments, **keywords)

        return method

    def speaker(self, asked: str) -> Any:
        """An object that speaks DLPack, and leaves as it is asked for that."""
        members = {
            "__dlpack__": lambda _, **how: to_dlpack(self.x).__dlpack__(**how),
            "__dlpack_device__": lambda _: (2, 0),
        }
        return type("Speaker", (), {**members, asked: self.doing(members[asked])})()

    def owner(self) -> Any:
        described = type("X", (), {"__cuda_array_interface__": interface(self.x, stream=1)})
        return Owner(described, asked=self.leave)

    def stream(self) -> Any:
        return type("Asked", (StreamObject,), {"__cuda_stream__": self.doing(lambda _: (0, 1))})(0)

    def library(self, method: str) -> str:
        members = {"current_stream": StandIn.current_stream, "make": lambda _, *made: Array(*made)}
        kind = type("Asked", (StandIn,), {**members, method: self.doing(members[method])})
        register(kind({0: self.cuda.legacy}))
        return "stand_in"


ASKED: dict[str, Any] = {
    "__dlpack__, by to_cai": lambda s: to_cai(s.speaker("__dlpack__")),
    "__dlpack__, by convert": lambda s: convert([s.speaker("__dlpack__")], "cai"),
    "__dlpack_device__": lambda s: to_cai(s.speaker("__dlpack_device__")),
    "the dict": lambda s: from_cai(s.owner()),
    "the dict, by to_dlpack": lambda s: to_dlpack(s.owner()),
    "a stream object": lambda s: to_cai(s.speaking, stream=s.stream()),
    "a stream object, by a view": lambda s: to_dlpack(s.speaking).__dlpack__(stream=s.stream()),
    "a library's stream": lambda s: convert(s.speaking, s.library("current_stream")),
    "a library's array": lambda s: convert(s.speaking, s.library("make")),
    "a function": lambda s: adapt(s.leave, to="cai")(s.speaking),
}


@pytest.mark.usefixtures("no_libraries")
@pytest.mark.parametrize("who", ASKED)
def test_an_end_that_was_left_is_carried_out_by_the_end_of_the_call(cuda, who):
    scene = Leaves(cuda)
    made = ASKED[who](scene)
    assert scene.asked
    assert scene.gone() is None, "left until somebody calls again"
    del made
    assert _core._settle() == 0
