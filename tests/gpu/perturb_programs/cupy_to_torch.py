"""An array that CuPy writes on a side stream goes to torch, which ignores the dict's stream."""

import cupy
import torch
from common import WORDS, run

from cai_bridge import convert

side = cupy.cuda.Stream(non_blocking=True)
c = cupy.zeros(WORDS, dtype="f4")
torch.zeros(WORDS, device="cuda").max().item()
cupy.cuda.Device().synchronize()


def racy(number: int) -> float:
    with side:
        c.fill(number)  # the write
    return torch.as_tensor(c, device="cuda").max().item()  # the read


def right(number: int) -> float:
    with side:
        c.fill(number)  # the write
        t = convert(c, torch)
    return t.max().item()  # the read


run(racy, right)
