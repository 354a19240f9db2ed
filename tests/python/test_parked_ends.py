"""Ends that wait for work on the device, over the driver of stubs, and the thread that asks."""

from __future__ import annotations

import textwrap
import time

import pytest
from test_cuda_door import pytestmark as needs_the_driver_of_stubs
from test_cuda_door import run

pytestmark = needs_the_driver_of_stubs

PARKED = """
    import threading, time
    from cai_bridge import _core
    from cai_bridge.testing._kit.dlpack_abi import ManagedTensor

    class Owner:
        # A library that says nothing of its stream: its memory stays until its consumers are done.
        gone, begun = 0, threading.Event()

        def __dlpack_device__(self):
            return (2, 0)

        def __dlpack__(self, **_):
            return ManagedTensor(0x7000_0000).capsule()

        def __del__(self):
            Owner.gone += 1
            Owner.begun.set()
            self.end()

        def end(self):
            pass

    def park(stream=OTHER, owner=Owner):
        # An object of its own for each, which ends with the view.
        to_cai(owner(), stream=Stream(stream)).release()

    def until_gone(number, seconds):
        until = time.monotonic() + seconds
        while Owner.gone < number and time.monotonic() < until:
            time.sleep(0.01)
        assert Owner.gone == number

    say("reached", 0)
"""


def parked(body: str) -> str:
    return run(textwrap.dedent(PARKED) + textwrap.dedent(body))


def test_it_ends_them_when_the_work_is_done_and_nobody_calls() -> None:
    parked("""
        for _ in range(10):
            park()
        time.sleep(0.1)
        assert Owner.gone == 0
        say("reached", 1)
        until_gone(10, seconds=20)
    """)


ENDING = """
    class Ends(Owner):
        def end(self):
            {end}

    held = threading.Lock()
    held.acquire()
    park(owner=Ends)
    say("reached", 1)
    assert Owner.begun.wait(20)
"""


@pytest.mark.parametrize("blocks", ["time.sleep(3600)", "held.acquire()"])
def test_a_destructor_that_blocks_there_does_not_keep_the_process(blocks: str) -> None:
    told = parked(ENDING.format(end=blocks) + "    print(time.time())\n")
    assert time.time() - float(told) < 5


def test_a_destructor_that_takes_a_while_is_waited_for() -> None:
    # The bridge is there for it, too.
    end = "time.sleep(0.2); from_cai(Array()).__dlpack__(); print('done')"
    assert parked(ENDING.format(end=end)) == "done\n"


@pytest.mark.parametrize("streams", [1, 1000])
def test_a_backlog_costs_neither_calls_nor_the_thread_more_than_a_few_questions(
    streams: int,
) -> None:
    """5,000 ends wait for work on one stream, or on a thousand."""
    parked(f"""
        def queries(what):
            before = calls("cuEventQuery")
            what()
            return calls("cuEventQuery") - before

        def others():
            for _ in range(200):
                from_cai(Array()).__dlpack__()

        made = queries(lambda: [park(OTHER + 16 * (n % {streams})) for n in range(5_000)])
        # Each call asks four at most, and the thread 256 at a time, once in 50 ms.
        asked = queries(others)
        assert asked < 200 * 2 * 4 + 256 * 40, asked
        idle = queries(lambda: time.sleep(2))
        assert idle < min({streams} + 1, 256) * 60, idle
        assert made < 5_000 * 8 + min({streams}, 256) * 40 * 60, made
        say("reached", 1)
        asked = queries(lambda: until_gone(5_000, seconds=60))
        assert asked < 5_000 + 2_000, asked
    """)
