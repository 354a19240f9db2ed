"""A tensor that is written on a side stream goes to CuPy: torch's dict names no stream."""

import cupy
import torch
from common import WORDS, run

from cai_bridge import convert

side = torch.cuda.Stream()
x = torch.zeros(WORDS, device="cuda")
cupy.zeros(WORDS, dtype="f4").max().get()
torch.cuda.synchronize()


def racy(number: int) -> float:
    with torch.cuda.stream(side):
        x.fill_(number)  # the write
        y = cupy.asarray(x)
    return y.max().get()  # the read


def right(number: int) -> float:
    with torch.cuda.stream(side):
        x.fill_(number)  # the write
        y = convert(x, cupy)
    return y.max().get()  # the read


run(racy, right)
