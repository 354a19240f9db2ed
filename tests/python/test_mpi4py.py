"""mpi4py itself over the MPI that is installed here, on memory of the simulated device.

The device's memory is the host's, so that any MPI moves it. MPI reads and writes when it is called
and orders nothing: the stream that the array is ready on has to be waited for before. Skipped where
mpi4py or an MPI is missing: ``pip install mpi4py mpich``.
"""

from __future__ import annotations

import gc
import weakref

import pytest

from cai_bridge import to_cai, to_dlpack

try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as missing:
    pytest.skip(f"mpi4py: {missing}", allow_module_level=True)

DOORS = {"CAI": to_cai, "DLPack": to_dlpack}
each_door = pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)


@each_door
def test_it_takes_the_memory_and_keeps_it_until_the_buffer_is_released(cuda, door):
    x = cuda.array([1.0] * 4, speaks="exchange")
    ptr, gone = x.ptr, weakref.ref(x)
    buffer = MPI.buffer(door(x))
    del x
    gc.collect()
    assert (buffer.address, buffer.nbytes, buffer.readonly) == (ptr, 16, False)
    assert gone() is not None
    buffer.release()
    gc.collect()
    assert gone() is None


@each_door
@pytest.mark.parametrize("waited", [True, False])
def test_it_sends_what_was_waited_for_and_else_what_was_there_before(cuda, door, waited):
    producer = cuda.stream("producer's")
    x, y = (cuda.array([v] * 4, speaks="exchange", stream=producer) for v in (0.0, 5.0))
    producer.synchronize()
    producer.fill(x, 7.0)
    with cuda.current_stream(producer), door(x) as sent, door(y) as received:
        if waited:
            producer.synchronize()
        MPI.COMM_SELF.Sendrecv(sent, dest=0, recvbuf=received, source=0)
    producer.fill(x, 9.0)
    seen = producer.read(y)  # what is queued after the call sees what was received
    cuda.synchronize()
    assert seen.value == [7.0 if waited else 0.0] * 4


def test_read_only_memory_is_sent_but_not_received_into(cuda):
    x, y = (cuda.array([v] * 4, speaks="exchange") for v in (1.0, 2.0))
    MPI.COMM_SELF.Sendrecv(to_cai(x, readonly=True), dest=0, recvbuf=to_cai(y), source=0)
    assert y.tolist() == [1.0] * 4
    with pytest.raises(BufferError, match="not writable"):
        MPI.COMM_SELF.Sendrecv(to_cai(y), dest=0, recvbuf=to_cai(x, readonly=True), source=0)
