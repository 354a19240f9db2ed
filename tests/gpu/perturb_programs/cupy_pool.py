"""CuPy's pool of one stream gets memory back that another stream still reads."""

import cupy
from common import WORDS, run

first, second = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
for stream in (first, second):
    with stream:
        cupy.full(WORDS, 1, dtype="f4").max().get()
out = cupy.zeros((), dtype="f4")
cupy.cuda.Device().synchronize()


def read(number: int, *, waited: bool) -> float:
    with first:
        x = cupy.full(WORDS, number, dtype="f4")
    second.wait_event(first.record())
    with second:
        cupy.copyto(out, x.max())  # the read
    if waited:
        first.wait_event(second.record())
    del x
    with first:
        u = cupy.full(WORDS, 777, dtype="f4")  # the write
    with second:
        got = out.get()
    first.wait_event(second.record())
    del u
    return got


run(lambda number: read(number, waited=False), lambda number: read(number, waited=True))
