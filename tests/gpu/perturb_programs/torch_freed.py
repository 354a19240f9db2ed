"""A tensor is dropped while CuPy still reads it, and its memory is written again."""

import cupy
import torch
from common import WORDS, run

from cai_bridge import convert

side = cupy.cuda.Stream(non_blocking=True)
with side:
    cupy.zeros(WORDS, dtype="f4").max().get()
torch.full((WORDS,), 777.0, device="cuda").max().item()


def read(number: int, *, bridged: bool) -> float:
    t = torch.full((WORDS,), float(number), device="cuda")
    torch.cuda.synchronize()
    with side:
        y = convert(t, cupy) if bridged else cupy.asarray(t)
        r = y.max()  # the read
        del y, t
    u = torch.full((WORDS,), 777.0, device="cuda")  # the write
    got = r.get(stream=side)
    del u
    return got


run(lambda number: read(number, bridged=False), lambda number: read(number, bridged=True))
