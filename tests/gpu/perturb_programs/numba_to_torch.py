"""An array that a Numba kernel writes on its own stream goes to torch's side stream."""

import torch
from common import WORDS, run
from numba import cuda

from cai_bridge import convert


@cuda.jit
def fill(x, number):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = number


writer, reader = cuda.stream(), torch.cuda.Stream()
x = cuda.device_array(WORDS, dtype="float32", stream=writer)
fill[WORDS // 256, 256, writer](x, 0.0)
with torch.cuda.stream(reader):
    torch.as_tensor(x, device="cuda").max().item()
torch.cuda.synchronize()


def read(number: int, *, bridged: bool) -> float:
    fill[WORDS // 256, 256, writer](x, float(number))  # the write
    with torch.cuda.stream(reader):
        t = convert(x, torch) if bridged else torch.as_tensor(x, device="cuda")
        return t.max().item()  # the read


run(lambda number: read(number, bridged=False), lambda number: read(number, bridged=True))
