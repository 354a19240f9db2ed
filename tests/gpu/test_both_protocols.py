"""Classes of one's own that speak both protocols, on a GPU: twins of the simulated tests."""

from __future__ import annotations

from typing import Any

import pytest

from cai_bridge import convert, to_cai

from .streams import handle_of

WORDS = 1 << 18
SPIN_MS = 5.0


class Frame:
    """A buffer that is used again and again, on a stream of its own or on another one."""

    def __init__(self, torch: Any, stream: Any) -> None:
        self.torch, self.stream = torch, stream
        with torch.cuda.stream(stream):
            self.tensor = torch.zeros(WORDS, device="cuda")

    def fill(self, value: float) -> None:
        with self.torch.cuda.stream(self.stream):
            self.tensor.fill_(value)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.tensor.device.index)

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        with self.torch.cuda.stream(self.stream):
            return self.tensor.__dlpack__(stream=stream)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (WORDS,),
            "typestr": "<f4",
            "data": (self.tensor.data_ptr(), False),
            "version": 3,
            "stream": self.stream.cuda_stream,
        }


def by_view(cupy: Any, frame: Frame, stream: Any) -> Any:
    return cupy.asarray(to_cai(frame, stream=stream))


def unsaid(cupy: Any, frame: Frame, stream: Any) -> Any:
    with stream:
        return cupy.asarray(to_cai(frame))


def converted(cupy: Any, frame: Frame, stream: Any) -> Any:
    return convert(frame, cupy, stream=stream)


def in_a_list(cupy: Any, frame: Frame, stream: Any) -> Any:
    return convert([frame], cupy, stream=stream)[0]


@pytest.mark.parametrize("take", [by_view, unsaid, converted, in_a_list])
@pytest.mark.parametrize("moves", [False, True])
def test_the_next_write_in_place_comes_after_the_consumers_read(
    driver: Any, torch: Any, cupy: Any, take: Any, moves: bool
) -> None:
    home, consumer = torch.cuda.Stream(), cupy.cuda.Stream(non_blocking=True)
    frame, out = Frame(torch, home), cupy.zeros(WORDS, dtype="float32")
    torch.cuda.synchronize()
    driver.spin(handle_of(home), SPIN_MS)
    frame.fill(7.0)
    taken = take(cupy, frame, consumer)
    with consumer:
        driver.spin(handle_of(consumer), 20 * SPIN_MS)
        out[:] = taken
        if moves:
            frame.stream = torch.cuda.Stream()
            frame.stream.wait_stream(home)
        del taken
    frame.fill(9.0)
    torch.cuda.synchronize()
    consumer.synchronize()
    assert (out == 7.0).all()


class Surface(Frame):
    """Its ``__dlpack__`` orders nothing, whatever stream it is asked for, as VALI's."""

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        return self.tensor.__dlpack__(stream=-1)


@pytest.mark.parametrize("take", [by_view, unsaid, converted, in_a_list])
def test_the_dicts_stream_is_waited_for_where_dlpack_ignores_its_own(
    driver: Any, torch: Any, cupy: Any, take: Any
) -> None:
    home, consumer = torch.cuda.Stream(), cupy.cuda.Stream(non_blocking=True)
    surface, out = Surface(torch, home), cupy.zeros(WORDS, dtype="float32")
    torch.cuda.synchronize()
    driver.spin(handle_of(home), 20 * SPIN_MS)
    surface.fill(7.0)
    taken = take(cupy, surface, consumer)
    with consumer:
        out[:] = taken
    consumer.synchronize()
    assert (out == 7.0).all()
    torch.cuda.synchronize()
