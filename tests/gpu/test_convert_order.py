"""`convert` between the libraries themselves: in order at both ends."""

from __future__ import annotations

from typing import Any

import pytest

from cai_bridge import convert

from . import streams
from .converting import (
    LATE_MS,
    PAIRS,
    ROUNDS,
    RUNS,
    WORKERS,
    Cupy,
    Numba,
    Place,
    Torch,
    handed_over,
    overtaken,
    place,
    wrong_runs,
)
from .streams import handle_of

__all__ = ["place"]


@pytest.mark.parametrize(("source", "sink"), PAIRS)
def test_what_was_written_late_is_there(place: Place, note: Any, source: str, sink: str) -> None:
    one, other = WORKERS[source](place), WORKERS[sink](place)
    wrong_runs(place, one, other, 3)
    wrong = wrong_runs(place, one, other, RUNS)
    # JAX orders its own import and its own export, whatever was said.
    # tvm-ffi and Numba are both on the legacy stream here.
    tried = "jax" not in (source, sink) and (source, sink) != ("tvm_ffi", "numba")
    without = wrong_runs(place, one, other, RUNS, stream=-1) if tried else None
    note(f"convert({source} -> {sink}): wrong {wrong}/{RUNS}, {without} without the order")
    assert wrong == 0
    assert without != 0, "nothing went wrong without the order: the case shows nothing"


@pytest.mark.parametrize("stream", ["said", "current"])
@pytest.mark.parametrize(("source", "sink"), [("torch", "cupy"), ("cupy", "torch")])
def test_many_rounds_between_torch_and_cupy(
    place: Place, note: Any, source: str, sink: str, stream: str
) -> None:
    one, other = WORKERS[source](place), WORKERS[sink](place)
    how = {"stream": other.stream} if stream == "said" else {}
    wrong = wrong_runs(place, one, other, ROUNDS, **how)
    note(f"convert({source} -> {sink}), stream {stream}: wrong {wrong}/{ROUNDS}")
    assert wrong == 0


# JAX's ends are in test_jax_ends.py.
ENDS = [
    (source, sink)
    for source in ("torch", "cupy", "numba")
    for sink in ("torch", "cupy", "numba", "cuda", "tvm_ffi")
    if source != sink
]


@pytest.mark.parametrize(("source", "sink"), ENDS)
def test_the_producers_next_write_comes_after_the_consumers_read(
    place: Place, note: Any, source: str, sink: str
) -> None:
    one, other = WORKERS[source](place), WORKERS[sink](place)
    # Said, so that it is its object that is kept.
    how = {"stream": other.stream}
    hand_over = lambda array: handed_over(one, other, array, **how)  # noqa: E731
    runs = ROUNDS if {source, sink} == {"torch", "cupy"} else RUNS
    wrong = overtaken(place, one, other, runs, hand_over)
    note(f"convert({source} -> {sink}), at the end: wrong {wrong}/{runs}")
    assert wrong == 0


@pytest.mark.parametrize(
    ("source", "sink"), [("torch", "cupy"), ("cupy", "torch"), ("torch", "numba")]
)
def test_of_the_librarys_own_way_the_next_write_overtakes_the_read(
    place: Place, source: str, sink: str
) -> None:
    one, other = WORKERS[source](place), WORKERS[sink](place)

    def native(array: Any) -> Any:
        with one.working(), other.working():
            return other.native(array)

    assert overtaken(place, one, other, RUNS, native) > 0


def used_on_two_streams(place: Place, **how: Any) -> int:
    """Write late on one stream of Numba's, read on another; count the runs that read too early.

    Torch is on the legacy default stream, which both follow, and queues nothing there in between.
    """
    torch = pytest.importorskip("torch")
    one, other = Numba(place), Numba(place)
    x = torch.zeros(streams.WORDS, device="cuda")
    wrong, values = 0, streams.fresh_values()
    for _ in range(RUNS):
        value = float(next(values))
        place.driver.synchronize()
        one.array = convert(x, "numba", **how)
        place.driver.spin(handle_of(one.stream), LATE_MS)
        one.write(value)
        one.array = None
        other.read(convert(x, "numba", **how))
        wrong += not bool((other.seen() == value).all())
    return wrong


def test_two_streams_of_numba_are_in_order_by_the_event_at_the_end(place: Place, note: Any) -> None:
    wrong = used_on_two_streams(place)
    # Said to be on the legacy stream, and on no other.
    without = used_on_two_streams(place, stream=1)
    note(f"convert(torch -> numba), two streams: wrong {wrong}/{RUNS}, {without} without the event")
    assert wrong == 0
    assert without != 0, "nothing went wrong without the event: the case shows nothing"


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_an_array_of_the_library_is_itself_in_order_for_a_stream(
    place: Place, library: str
) -> None:
    one, other = WORKERS[library](place), WORKERS[library](place)
    values = streams.fresh_values()
    for _ in range(RUNS):
        place.driver.synchronize()
        value = float(next(values))
        array = one.written(value)
        with one.working():
            assert convert(array, library, stream=other.stream) is array
        other.read(array)
        assert (other.seen() == value).all()


def test_a_thousand_tensors_go_to_cupy_in_order(place: Place) -> None:
    one, other = Torch(place), Cupy(place)
    value = float(next(streams.fresh_values()))
    array = one.written(value)
    with one.working():
        tensors = [row.clone() for row in array[:4000].reshape(1000, 4)]
    made = handed_over(one, other, {"all": tensors})["all"]
    with other.working():
        total = other.cupy.concatenate(made)
        assert (total.get() == value).all()
    pairs = zip(made, tensors, strict=True)
    assert all(new.data.ptr == tensor.data_ptr() for new, tensor in pairs)
