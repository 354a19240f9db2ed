"""`convert` between the libraries themselves: in order at both ends."""

from __future__ import annotations

import pytest

from .converting import (
    PAIRS,
    ROUNDS,
    RUNS,
    WORKERS,
    check_end,
    check_late,
)


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
