"""The check of a record, as the command calls it: a pure function of the record's bytes."""

import json
import random
import sys
import time
from array import array

import pytest
from perturbing import driver, needs, run

from cai_bridge._cli import perturbed, recorded
from cai_bridge._cli.exits import UsageError
from cai_bridge._cli.perturbed import Program

__all__ = ["driver", "run"]

pytestmark = needs

AT = 8192
CALL, BEGIN, KERNEL = 1, 2, 5
MEMORY, BLOCK = 0x7F0000000000, 1 << 21


class Record:
    """A record that is written by hand: the words of perturb/src/record.rs."""

    def __init__(self, head):
        self.head = head
        self.rows = {name: row for row, name in enumerate(json.loads(head))}
        self.words = array("Q")

    def put(self, kind, *words):
        self.words.append(kind << 48 | len(words))
        self.words.extend(words)

    def call(self, symbol, arguments, extra=(), stack=0):
        self.put(CALL, 0, self.rows[symbol], stack, 0, *arguments, *extra)

    def kernel(self, handle, name):
        text = int.from_bytes(name.ljust(8, b"\0"), "little")
        self.put(KERNEL, handle, 1, len(name), text)

    def launch(self, stream, kernel, *addresses, stack=0):
        given = [word for at, address in enumerate(addresses) for word in (at << 32, address)]
        arguments = [kernel, *[1] * 6, 0, stream, 0, 0]
        self.call("cuLaunchKernel", arguments, [stream, kernel, *given], stack)

    def stream(self, handle):
        self.call("cuStreamCreate", [0, 1], [handle, 0])

    def memory(self, low, size):
        self.call("cuMemAlloc_v2", [0, size], [low, 0])

    def synchronize(self, stream):
        self.put(BEGIN, 0, self.rows["cuStreamSynchronize"], stream)
        self.call("cuStreamSynchronize", [stream])

    def __bytes__(self):
        return self.head + self.words.tobytes()


@pytest.fixture
def record(run, tmp_path):
    """Returns an empty record, whose first line is that of a real one."""
    heads = []

    def look(folder):
        heads.extend(path.read_bytes()[:AT] for path in folder.glob("*.record"))
        return []

    program = tmp_path / "program.py"
    program.write_text("from soft import *\nlaunch('fill', stream(), word(), 1)")
    command = (sys.executable, str(program))
    perturbed.run_and_look(Program(command), "record", {}, look)
    return Record(heads[0])


def test_a_pair_is_said_with_its_streams_bytes_and_launches(record):
    record.memory(MEMORY, BLOCK)
    for stream in (101, 102):
        record.stream(stream)
        record.kernel(1000 + stream, b"k%d" % stream)
    record.call("cuMemcpyDtoDAsync_v2", [MEMORY, MEMORY + 4096, 64, 101])
    record.launch(102, 1102, MEMORY + 32)
    found = recorded.check(bytes(record), every=True)
    assert (found["calls"], found["operations"], found["each"]) == (5, 2, [[0, 1, 0]])
    (pair,) = found["pairs"]
    assert (pair["verdict"], pair["writes"], pair["count"]) == ("suspect", True, 1)
    assert (pair["low"], pair["high"]) == (MEMORY + 32, MEMORY + 64)
    assert pair["first"]["stream"] == [1, "non-blocking stream 0x65", []]
    assert pair["second"]["name"] == "k102"
    (wanted,) = pair["wanted"]
    assert wanted.split()[1:] == ["0", "0", "32"]


def test_the_end_that_a_process_did_not_write_is_left_out(record):
    record.memory(MEMORY, BLOCK)
    for _ in range(3):
        record.call("cuMemsetD8Async", [MEMORY, 1, 64, 1])
    whole = bytes(record)
    for cut in (1, 8, 20, len(whole) - AT):
        assert recorded.check(whole[:-cut])["calls"] < 4
    assert recorded.check(whole)["calls"] == 4


def test_a_record_of_another_build_is_refused(record):
    with pytest.raises(UsageError, match="of another build"):
        recorded.check(bytes(record).replace(b"cuLaunchKernel", b"cuLaunchKernol", 1))
    with pytest.raises(UsageError, match="of another build"):
        recorded.check(b"")


def timed(record):
    """Check a record, and return what is found and the processor's seconds.

    A million calls are to take two, on a machine that has nothing else to do.
    """
    whole = bytes(record)
    began = time.process_time()
    found = recorded.check(whole)
    return found, time.process_time() - began


def test_a_hundred_thousand_calls_take_a_fifth_of_a_second(record):
    streams, kernels = range(101, 109), range(1000, 1020)
    for block in range(64):
        record.memory(MEMORY + block * BLOCK, BLOCK)
    for stream in streams:
        record.stream(stream)
    for kernel in kernels:
        record.kernel(kernel, b"k%d" % kernel)
    for event in range(8):
        record.call("cuEventCreate", [0, 2], [5000 + event, 0])
    for number in range(100_000):
        at = number % len(streams)
        own = MEMORY + at * 8 * BLOCK
        if number % 10 < 7:
            addresses = [own + number * step % 512 * 4096 for step in (1, 3, 7)]
            record.launch(streams[at], 1000 + number % 20, *addresses, stack=number % 50)
        elif number % 10 == 7:
            record.call("cuEventRecord", [5000 + at, streams[at]])
        elif number % 10 == 8:
            record.call("cuStreamWaitEvent", [streams[at], 5000 + number % 8, 0])
        elif number % 100 == 9:
            record.synchronize(streams[at])
    found, seconds = timed(record)
    assert seconds < 0.4
    assert (found["operations"], found["pairs"]) == (70_000, [])


def test_calls_at_random_for_which_nobody_waits_take_less_than_a_second(record):
    """Nothing is over, so that each address keeps as many accesses as the check compares."""
    choice = random.Random(0)
    for block in range(64):
        record.memory(MEMORY + block * BLOCK, BLOCK)
    for stream in range(101, 109):
        record.stream(stream)
        record.call("cuEventCreate", [0, 2], [5000 + stream, 0])
    for number in range(100_000):
        stream = choice.randrange(101, 109)
        pages = [choice.randrange(64) * BLOCK + choice.randrange(8) * 4096 for _ in range(3)]
        if number % 10 < 7:
            addresses = [MEMORY + page for page in pages]
            record.launch(stream, 1000, *addresses, stack=choice.randrange(1000))
        elif number % 2:
            record.call("cuEventRecord", [5000 + stream, stream])
        else:
            record.call("cuStreamWaitEvent", [stream, choice.randrange(5101, 5109), 0])
    found, seconds = timed(record)
    assert seconds < 0.9
    assert (found["operations"], found["count"] > 2000) == (70_000, True)
