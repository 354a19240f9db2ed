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
        c.fill(number)
    return torch.as_tensor(c, device="cuda").max().item()


def right(number: int) -> float:
    with side:
        c.fill(number)
        t = convert(c, torch)
    return t.max().item()


run(racy, right)
