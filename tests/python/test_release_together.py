"""`release()` by several at once, threads or what a release runs: each returns in order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from cai_bridge import DriverError, to_cai


class Asked:
    """A stream that has something happen when it is asked, as often as it was told to."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.then: list[Callable[[], None]] = []
        self.asked = 0

    def __cuda_stream__(self) -> tuple[int, int]:
        self.asked += 1
        if self.then:
            self.then.pop()()
        return 0, self.stream.handle


def in_another_thread(cuda: Any, call: Callable[[], None]) -> None:
    def run() -> None:
        cuda.set_device(0)
        call()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(timeout=60)
    assert not thread.is_alive()


def in_this_thread(cuda: Any, call: Callable[[], None]) -> None:
    call()


EITHER = pytest.mark.parametrize("within", [in_another_thread, in_this_thread])


class Scene:
    """A view whose stream is asked at its end, and what its consumer and another stream read."""

    def __init__(self, cuda: Any) -> None:
        self.cuda, self.producer = cuda, cuda.stream("producer")
        self.mine, self.other = cuda.stream("mine"), cuda.stream("other")
        self.x = cuda.array([7.0] * 4, speaks="cai3", stream=self.producer, name="x")
        self.asked = Asked(self.mine)
        self.view = to_cai(self.x, stream=self.asked)
        self.other.wait(self.producer.record())
        self.reads = [self.mine.read(self.view), self.other.read(self.view)]

    def write(self) -> None:
        self.producer.fill(self.x, -1.0, name="the producer's next write")


@pytest.fixture
def scene(cuda: Any) -> Any:
    made = Scene(cuda)
    yield made
    cuda.synchronize()
    assert [read.value for read in made.reads] == [[7.0] * 4] * 2


@EITHER
def test_a_release_that_comes_during_another_returns_in_order(scene: Any, within: Any) -> None:
    def release() -> None:
        scene.view.release(stream=scene.other)
        scene.write()

    scene.asked.then.append(lambda: within(scene.cuda, release))
    scene.view.release()
    assert scene.view.owner is None


@EITHER
def test_one_that_comes_second_says_a_stream_and_its_first_another(scene: Any, within: Any) -> None:
    scene.asked.then.append(lambda: within(scene.cuda, scene.view.release))
    scene.view.release(stream=scene.other)
    scene.write()


@EITHER
def test_nobody_gets_at_a_view_that_is_being_released(scene: Any, within: Any) -> None:
    refused = []

    def look() -> None:
        with pytest.raises(AttributeError, match=r"^view: got a released view"):
            _ = scene.view.__cuda_array_interface__
        refused.append(True)

    scene.asked.then.append(lambda: within(scene.cuda, look))
    scene.view.release(stream=scene.other)
    assert refused == [True]
    scene.write()


@EITHER
def test_a_release_that_fails_leaves_the_view_to_the_one_that_does_not(
    scene: Any, within: Any
) -> None:
    def release() -> None:
        scene.view.release(stream=scene.other)
        scene.cuda.fail("cuEventRecord")

    scene.asked.then.append(lambda: within(scene.cuda, release))
    with pytest.raises(DriverError):
        scene.view.release()
    assert scene.view.owner is None
    scene.write()


@EITHER
def test_one_that_fails_during_another_leaves_that_to_end_the_view(scene: Any, within: Any) -> None:
    def release() -> None:
        scene.cuda.fail("cuEventRecord")
        with pytest.raises(DriverError):
            scene.view.release()

    scene.asked.then.append(lambda: within(scene.cuda, release))
    scene.view.release(stream=scene.other)
    assert scene.view.owner is None
    scene.write()


def test_a_stream_that_releases_its_view_whenever_it_is_asked_is_asked_a_few_times(
    scene: Any,
) -> None:
    scene.asked.then += [lambda: scene.view.release(stream=scene.other)] * 1000
    scene.view.release()
    assert scene.view.owner is None
    assert scene.asked.asked < 10
    scene.write()
