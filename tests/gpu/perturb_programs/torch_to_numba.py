"""A tensor that is written on a side stream is an argument of a Numba kernel."""

import torch
from common import WORDS, run
from numba import cuda

from cai_bridge import convert


@cuda.jit
def copy(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i]


side, reader = torch.cuda.Stream(), cuda.stream()
x = torch.zeros(WORDS, device="cuda")
y = cuda.device_array(WORDS, dtype="float32", stream=reader)
copy[WORDS // 256, 256, reader](cuda.as_cuda_array(x), y)
y.copy_to_host(stream=reader)
torch.cuda.synchronize()


def read(number: int, *, bridged: bool) -> float:
    with torch.cuda.stream(side):
        x.fill_(number)  # the write
        n = convert(x, "numba", stream=reader) if bridged else cuda.as_cuda_array(x)
    copy[WORDS // 256, 256, reader](n, y)  # the read
    return y.copy_to_host(stream=reader).max()


run(lambda number: read(number, bridged=False), lambda number: read(number, bridged=True))
