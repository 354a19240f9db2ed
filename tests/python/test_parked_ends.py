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
    from cai_bridge.testing._kit.dlpack_capsule import new_capsule

    class Owner:
        # A library that says nothing of its stream: its memory stays until its consumers are done.
        gone = 0

        def __dlpack_device__(self):
            return (2, 0)

        def __dlpack__(self, **_):
            return ManagedTensor(0x7000_0000).capsule()

        def __del__(self):
            type(self).gone += 1

    def park(stream=OTHER, owner=Owner):
        # An object of its own for each, which ends with the view.
        to_cai(owner(), stream=Stream(stream)).release()
"""


def parked(body: str) -> str:
    return run(textwrap.dedent(PARKED) + textwrap.dedent(body))


def test_it_ends_them_when_the_work_is_done_and_nobody_calls() -> None:
    parked("""
        say("reached", 0)
        for _ in range(10):
            park()
        time.sleep(0.1)
        assert Owner.gone == 0
        say("reached", 1)
        until = time.monotonic() + 20
        while Owner.gone < 10 and time.monotonic() < until:
            time.sleep(0.01)
        assert Owner.gone == 10
    """)


@pytest.mark.parametrize(
    "blocks", ["time.sleep(3600)", "threading.Lock().acquire() and held.acquire()"]
)
def test_a_destructor_that_blocks_there_does_not_keep_the_process(blocks: str) -> None:
    began = time.monotonic()
    told = parked(f"""
        held, begun = threading.Lock(), threading.Event()
        held.acquire()

        class Blocks(Owner):
            def __del__(self):
                begun.set()
                {blocks}

        say("reached", 0)
        park(owner=Blocks)
        say("reached", 1)
        assert begun.wait(20)
        print(time.time())
    """)
    left = time.time() - float(told)
    assert left < 5, f"{left} s of exit, of {time.monotonic() - began}"


def test_a_destructor_that_takes_a_while_is_waited_for() -> None:
    told = parked("""
        begun = threading.Event()

        class Slow(Owner):
            def __del__(self):
                begun.set()
                time.sleep(0.2)
                # The bridge is there for it, too.
                from_cai(Array()).__dlpack__()
                print("done")

        say("reached", 0)
        park(owner=Slow)
        say("reached", 1)
        assert begun.wait(20)
    """)
    assert told == "done\n"


MANY = """
    def queries(what):
        before = calls("cuEventQuery")
        what()
        return calls("cuEventQuery") - before

    def others():
        for _ in range(200):
            from_cai(Array()).__dlpack__()

    STREAMS = [OTHER + 16 * number for number in range(1000)]
    say("reached", 0)
"""


@pytest.mark.parametrize("streams", [1, 1000])
def test_a_backlog_costs_neither_calls_nor_the_thread_more_than_a_few_questions(
    streams: int,
) -> None:
    """5,000 ends wait for work on one stream, or on a thousand."""
    parked(
        MANY
        + f"""
    made = queries(lambda: [park(STREAMS[number % {streams}]) for number in range(5_000)])
    # Each call asks four at most, and the thread 256 at a time, once in 50 ms.
    asked, began = queries(others), time.monotonic()
    assert asked < 200 * 2 * 4 + 256 * 40, asked
    idle = queries(lambda: time.sleep(2))
    assert idle < min({streams} + 1, 256) * 60, idle
    assert made < 5_000 * 8 + min({streams}, 256) * 40 * 60, made
    say("reached", 1)
    until = time.monotonic() + 60
    def finish():
        while Owner.gone < 5_000 and time.monotonic() < until:
            time.sleep(0.01)
    asked = queries(finish)
    assert Owner.gone == 5_000
    assert asked < 5_000 + 2_000, asked
    """
    )
