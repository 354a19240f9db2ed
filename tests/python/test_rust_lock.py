"""Rust's arrays and the interpreter's lock, by an extension of the tests' own.

Skipped where it is not built: ``make extensions``.
"""

import gc
import threading
import time
import weakref

import pytest

from cai_bridge import DriverError, to_cai, to_dlpack

extension = pytest.importorskip("tested_extension", reason="not built: make extensions")


def open_when_waited_for(gate):
    while not gate.is_waited_for():
        time.sleep(0.001)
    gate.open()


@pytest.mark.parametrize("end", ["the array", "a view", "a capsule"])
def test_an_owner_that_waits_at_its_end_does_not_stop_other_threads(cuda, end):
    gate = extension.Gate()
    x = extension.waiting(gate)
    if end == "a view":
        x = x.__dlpack__(stream=1)
    elif end == "a capsule":
        x = x.__dlpack__(stream=1, max_version=(1, 0))
    thread = threading.Thread(target=open_when_waited_for, args=(gate,))
    thread.start()
    del x
    thread.join()
    cuda.synchronize()
    assert gate.was_seen_open()


@pytest.mark.parametrize("speaks", ["dlpack", "dlpack-legacy"])
def test_an_extension_keeps_what_it_read_until_the_device_has_worked(cuda, speaks):
    x = cuda.array([1.0] * 4, dtype="float32", speaks=speaks)  # names no stream that could wait
    alive = weakref.ref(x)
    extension.by_turns(x)
    del x
    gc.collect()
    assert alive()
    cuda.synchronize()
    assert not alive()


@pytest.mark.parametrize("speaks", ["exchange", "dlpack", "cai3"])
@pytest.mark.parametrize("to", [to_cai, to_dlpack])
def test_a_scope_goes_on_after_what_python_did_with_its_array(cuda, speaks, to):
    other, seen = cuda.stream("other"), []

    def read(x):
        with to(x, stream=other) as view:
            seen.append(other.read(view))

    x = cuda.array([1.0] * 4, dtype="float32", speaks=speaks)
    extension.written_around(x, read)
    cuda.synchronize()
    assert seen[0].value == [2.0] * 4
    cuda.check()


class Interrupting:
    """An array whose stream is asked for again, and which raises then."""

    def __init__(self, cuda, raises):
        self.array = cuda.array([1.0], speaks="cai3", stream=cuda.stream("its own"))
        cuda.synchronize()
        self.raises, self.asked = raises, 0

    @property
    def __cuda_array_interface__(self):
        self.asked += 1
        if self.asked > 1:
            raise self.raises
        return self.array.__cuda_array_interface__


def test_an_exception_of_pythons_arrives_as_itself_and_not_as_an_earlier_one(cuda):
    first, second = KeyboardInterrupt("the first"), SystemExit("the second")
    with pytest.raises(KeyboardInterrupt) as caught:
        extension.used_in_a_thread(Interrupting(cuda, first))
    assert caught.value is first
    with pytest.raises(SystemExit) as caught:
        extension.second_failure(Interrupting(cuda, first), Interrupting(cuda, second))
    assert caught.value is second


def test_an_error_without_an_exception_is_not_raised_as_an_earlier_one(cuda):
    broken = cuda.array([1.0], speaks="cai3", stream=cuda.stream("its own"))
    cuda.fail("cuStreamWaitEvent", error="CUDA_ERROR_OUT_OF_MEMORY")
    with pytest.raises(DriverError, match="OUT_OF_MEMORY"):
        extension.second_failure(Interrupting(cuda, KeyboardInterrupt()), broken)
    cuda.clear_faults()


def test_threads_take_turns_although_one_of_them_has_the_lock(cuda):
    x = cuda.array([0.0] * 4, speaks="exchange", name="x")
    extension.by_turns(x)
    cuda.synchronize()
    assert cuda.read(x) == [2.0] * 4
