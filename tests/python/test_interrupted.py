"""An interrupt while somebody is asked for a stream, or whether a stream is kept, is no answer.

It passes through, and what was asked for can be asked for again.
"""

from __future__ import annotations

from typing import Any

import capsules
import pytest
from capsules import HandMade
from copies import ends, taken
from fakes import StreamObject

from cai_bridge import from_cai, testing, to_cai

INTERRUPTS = [KeyboardInterrupt, SystemExit, MemoryError]


class Asked(StreamObject):
    """A stream object that raises when it is asked whether it keeps its stream."""

    error: type[BaseException] | None = None

    def answer(self) -> Any:
        if self.error is not None:
            raise self.error
        return False


class ById(Asked):
    @property
    def stream_id(self) -> int:
        return int(self.answer()) + 1


class ByFlag(Asked):
    @property
    def external(self) -> bool:
        return self.answer()


def exported(cuda: Any, speaks: str) -> Any:
    return cuda.array([1.0] * 4, speaks=speaks, stream=cuda.stream("producer"), name="x")


def views(cuda: Any, **wishes: Any) -> Any:
    view = from_cai(exported(cuda, "cai3"))
    return lambda stream: view.__dlpack__(stream=stream, **wishes)


def capsule(cuda: Any) -> Any:
    given = HandMade((kept := cuda.array([1.0] * 4, name="x")).ptr, owner=kept).capsule()

    def hand_over(stream: Any) -> Any:
        assert capsules.name_of(given) == "dltensor_versioned", "not consumed by a refusal"
        return to_cai(given, stream=stream)

    return hand_over


def to_dict(cuda: Any, speaks: str) -> Any:
    array = exported(cuda, speaks)
    return lambda stream: to_cai(array, stream=stream)


def declared(cuda: Any, *, again: bool) -> Any:
    array = exported(cuda, "cai3")
    given = to_cai(array) if again else array
    return lambda stream: from_cai(given, stream=stream)


DOORS = {
    "exchange": lambda cuda: to_dict(cuda, "exchange"),
    "__dlpack__": lambda cuda: to_dict(cuda, "dlpack"),
    "capsule": capsule,
    "dict": lambda cuda: to_dict(cuda, "cai3"),
    "declared": lambda cuda: declared(cuda, again=False),
    "declared for a view": lambda cuda: declared(cuda, again=True),
    "a view's __dlpack__": views,
    "a copy": lambda cuda: views(cuda, copy=True),
    "a copy elsewhere": lambda cuda: views(cuda, copy=True, dl_device=(2, 0)),
}


@pytest.mark.parametrize("error", INTERRUPTS)
@pytest.mark.parametrize("kind", [ById, ByFlag])
@pytest.mark.parametrize("door", DOORS)
def test_at_a_hand_over_it_passes_through_and_nothing_is_lost(door, kind, error, cuda):
    hand_over, consumer = DOORS[door](cuda), cuda.stream("consumer")
    stream = kind((0, consumer.handle))
    stream.error = error
    with pytest.raises(error):
        hand_over(stream)
    stream.error = None
    assert hand_over(stream) is not None
    cuda.synchronize()


@pytest.mark.parametrize("kind", [ById, ByFlag])
@pytest.mark.parametrize("door", DOORS)
def test_an_object_that_fails_to_say_is_taken_to_keep_nothing(door, kind, cuda):
    hand_over, consumer = DOORS[door](cuda), cuda.stream("consumer")
    stream = kind((0, consumer.handle))
    stream.error = ValueError
    held = hand_over(stream)
    cuda.synchronize()
    consumer.destroy()
    del held


@pytest.mark.parametrize("error", INTERRUPTS)
@pytest.mark.parametrize("door", [door for door in DOORS if door != "a copy elsewhere"])
def test_a_library_that_is_asked_for_its_stream_is_interrupted(door, error, cuda, monkeypatch):
    hand_over, consumer = DOORS[door](cuda), cuda.stream("consumer")

    def interrupted(ordinal: int) -> Any:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(testing, "_current_streams", interrupted)
        with pytest.raises(error):
            hand_over(consumer.handle)
    assert hand_over(consumer.handle) is not None
    cuda.synchronize()


class Interrupted:
    """A stream object that is interrupted while it is asked for its stream."""

    def __init__(self, stream: Any, error: type[BaseException]) -> None:
        self.stream, self.error, self.now = stream, error, False

    def __cuda_stream__(self) -> tuple[int, int]:
        if self.now:
            raise self.error
        return (0, self.stream.handle)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("error", INTERRUPTS)
def test_at_the_end_of_a_copy_it_is_said_and_the_memory_kept(error, cuda):
    stream = Interrupted(cuda.stream("consumer"), error)
    copy = taken(from_cai(cuda.array([1.0], speaks="cai", memory="pool")), stream=stream)
    cuda.clear_calls()
    stream.now = True
    copy.delete()
    assert ends(cuda) == []
    stream.now = False
    to_cai(cuda.array([1.0]))
    assert ends(cuda) == [("cuMemFreeAsync", stream.stream.handle)]
    cuda.synchronize()


@pytest.mark.parametrize("error", INTERRUPTS)
@pytest.mark.parametrize("side", ["consumer", "exporter"])
def test_at_release_it_passes_through_and_the_view_stays(side, error, cuda):
    array, consumer = exported(cuda, "cai3"), cuda.stream("consumer")

    class Exporter:
        now = False

        @property
        def __cuda_array_interface__(self) -> Any:
            if self.now:
                raise error
            return array.__cuda_array_interface__

    exporter, stream = Exporter(), Interrupted(consumer, error)
    view = to_cai(exporter, stream=stream)
    seen = consumer.read(view)
    asked = stream if side == "consumer" else exporter
    asked.now = True
    with pytest.raises(error):
        view.release()
    assert view.owner is exporter
    asked.now = False
    view.release()
    array.stream.fill(array, 2.0)
    cuda.synchronize()
    assert seen.value == [1.0] * 4
