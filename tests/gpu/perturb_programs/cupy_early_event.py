"""The event that a consumer waits for was recorded before the work, and not behind it."""

import cupy
from common import WORDS, run

writer, reader = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
x = cupy.zeros(WORDS, dtype="f4")
cupy.cuda.Device().synchronize()
with reader:
    x.max().get()
cupy.cuda.Device().synchronize()


def read(number: int, *, early: bool) -> float:
    with writer:
        if early:
            mark = writer.record()
        x.fill(number)  # the write
        if not early:
            mark = writer.record()
    reader.wait_event(mark)
    with reader:
        got = x.max().get()  # the read
    writer.wait_event(reader.record())
    return got


run(lambda number: read(number, early=True), lambda number: read(number, early=False))
