"""A side stream writes, and the current stream reads without `wait_stream`."""

import torch
from common import WORDS, run

main, side = torch.cuda.current_stream(), torch.cuda.Stream()
x = torch.zeros(WORDS, device="cuda")
x.max().item()
torch.cuda.synchronize()


def racy(number: int) -> float:
    with torch.cuda.stream(side):
        x.fill_(number)  # the write
    return x.max().item()  # the read


def right(number: int) -> float:
    side.wait_stream(main)
    with torch.cuda.stream(side):
        x.fill_(number)  # the write
    main.wait_stream(side)
    return x.max().item()  # the read


run(racy, right)
