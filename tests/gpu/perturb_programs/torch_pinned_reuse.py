"""Pinned memory is filled again while its copy to the device is pending, as loaders of data do."""

import time

import torch
from common import WORDS, run

host = torch.zeros(WORDS).pin_memory()
x = torch.zeros(WORDS, device="cuda")
x.max().item()
torch.cuda.synchronize()


def load(number: int, *, waited: bool) -> float:
    host.fill_(number)
    x.copy_(host, non_blocking=True)  # the read
    copied = torch.cuda.Event()
    copied.record()
    time.sleep(0.002)  # other work of the host
    if waited:
        copied.synchronize()
    host.fill_(-1)  # the next batch
    return x.max().item()


run(lambda number: load(number, waited=False), lambda number: load(number, waited=True))
