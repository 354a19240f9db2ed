import my_kernels
import pytest

from cai_bridge import to_cai
from cai_bridge.testing import RaceError, simulated_cuda


def doubled(without=None):
    with simulated_cuda() as cuda:  # a report raises at the end
        if without:
            cuda.suppress(without, nth=1)
        theirs, mine = cuda.stream("theirs"), cuda.stream("mine")
        x = cuda.array([0.0] * 4, dtype="float32", speaks="exchange", name="x")
        with cuda.current_stream(theirs):
            theirs.fill(x, 3.0)  # queued; runs late
            y = my_kernels.double(x)
        seen = mine.read(to_cai(y, stream=mine))
        cuda.synchronize()
        return seen.value


def test_the_kernel_waits_for_what_was_queued():
    assert doubled() == [6.0] * 4


def test_a_wait_that_is_left_out_is_found():
    with pytest.raises(RaceError, match="'double'"):
        doubled(without="cuStreamWaitEvent")
