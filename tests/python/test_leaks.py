"""That nothing grows."""

import ctypes
import gc
import tracemalloc
from pathlib import Path

import pytest
from fakes import OnlyCai, interface

from cai_bridge import from_cai, to_cai

ROUNDS = 10_000


class Mallinfo(ctypes.Structure):
    _fields_ = [("numbers", ctypes.c_size_t * 10)]


def heap():
    """The bytes that C and Rust have allocated; where glibc does not tell, the resident bytes."""
    try:
        info = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    info.restype = Mallinfo
    numbers = info().numbers
    # `hblkhd` is mapped, `uordblks` is in use of the arenas.
    return numbers[4] + numbers[7]


def rounds_of(call, cuda):
    for turn in range(ROUNDS):
        call()
        if turn % 500 == 0:
            # The simulated device notes every call of its driver.
            cuda.clear_calls()
    cuda.clear_calls()
    gc.collect()


def refuse(x):
    try:
        to_cai(x, stream=0)
    except ValueError:
        return
    pytest.fail("taken")


CALLS = {
    "to_cai of the exchange API": ("exchange", to_cai),
    "to_cai of a method": ("dlpack", to_cai),
    "to_cai of a legacy method": ("dlpack-legacy", to_cai),
    "to_cai of CAI": ("cai", to_cai),
    "the dict": ("exchange", lambda x: to_cai(x).__cuda_array_interface__),
    "from_cai": ("cai", from_cai),
    "a capsule": ("cai", lambda x: from_cai(x).__dlpack__()),
    "a versioned capsule": ("cai", lambda x: from_cai(x).__dlpack__(max_version=(1, 3))),
    "there and back": ("exchange", lambda x: to_cai(from_cai(to_cai(x)).__dlpack__())),
    "many dimensions": ("cai", lambda x: from_cai(x).__dlpack__()),
    "a refusal": ("dlpack", refuse),
    "released": ("cai", lambda x: from_cai(x).release()),
}


@pytest.mark.some(3)
@pytest.mark.parametrize("call", CALLS)
def test_ten_thousand_conversions_leave_nothing_behind(call, cuda):
    speaks, convert = CALLS[call]
    x = cuda.array(shape=(1,) * 9 if call == "many dimensions" else 4, speaks=speaks)
    rounds_of(lambda: convert(x), cuda)
    before = heap()
    tracemalloc.start()
    try:
        python = tracemalloc.get_traced_memory()[0]
        rounds_of(lambda: convert(x), cuda)
        grown = tracemalloc.get_traced_memory()[0] - python
    finally:
        tracemalloc.stop()
    # A single pointer a round would be 80,000 bytes.
    assert grown < 20_000
    assert heap() - before < 60_000
    assert x.exports == 0


def test_types_of_producers_come_and_go(cuda):
    x = cuda.array(shape=4)

    def convert():
        kind = type("Fleeting", (OnlyCai,), {})
        return from_cai(kind(interface(x)))

    def fleeting():
        # Other tests of the process have subclasses of their own.
        return sum(kind.__name__ == "Fleeting" for kind in OnlyCai.__subclasses__())

    for _ in range(1200):
        convert()
    gc.collect()
    alive = fleeting()
    for _ in range(200):
        convert()
    gc.collect()
    # Those that were seen last are remembered (`KEPT` in src/py/by_type.rs).
    assert fleeting() <= alive <= 1024
