"""NumPy reads pinned memory to which a copy is pending."""

import time

import torch
from common import WORDS, run

host = torch.zeros(WORDS).pin_memory()
x = torch.zeros(WORDS, device="cuda")
x.max().item()
torch.cuda.synchronize()


def read(number: int, *, waited: bool) -> float:
    x.fill_(number)  # the write
    host.copy_(x, non_blocking=True)  # the write
    time.sleep(0.002)  # other work of the host
    if waited:
        torch.cuda.current_stream().synchronize()
    got = host.numpy().max()
    torch.cuda.synchronize()
    return got


run(lambda number: read(number, waited=False), lambda number: read(number, waited=True))
