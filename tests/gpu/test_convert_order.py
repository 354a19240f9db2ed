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
    Numba,
    Place,
    check_end,
    check_late,
)
from .streams import handle_of


@pytest.mark.parametrize(("source", "sink"), PAIRS)
def test_what_was_written_late_is_there(place, note, source, sink):
    # JAX orders its own import and its own export, whatever was said.
    # tvm-ffi and Numba are both on the legacy stream here.
    tried = "jax" not in (source, sink) and (source, sink) != ("tvm_ffi", "numba")
    check_late(place, note, WORKERS[source](place), WORKERS[sink](place), tried=tried)


# JAX's ends are in test_jax.py.
ENDS = [
    (source, sink)
    for source in ("torch", "cupy", "numba")
    for sink in ("torch", "cupy", "numba", "cuda", "tvm_ffi")
    if source != sink
]


@pytest.mark.parametrize(("source", "sink"), ENDS)
def test_the_producers_next_write_comes_after_the_consumers_read(place, note, source, sink):
    one, other = WORKERS[source](place), WORKERS[sink](place)
    runs = ROUNDS if {source, sink} == {"torch", "cupy"} else RUNS
    # Said, so that it is its object that is kept.
    check_end(place, note, one, other, runs, stream=other.stream)


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


def test_two_streams_of_numba_are_in_order_by_the_event_at_the_end(place, note):
    wrong = used_on_two_streams(place)
    # Said to be on the legacy stream, and on no other.
    without = used_on_two_streams(place, stream=1)
    note(f"convert(torch -> numba), two streams: wrong {wrong}/{RUNS}, {without} without the event")
    assert wrong == 0
    assert without != 0, "nothing went wrong without the event: the case shows nothing"


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_an_array_of_the_library_is_itself_in_order_for_a_stream(place, library):
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
