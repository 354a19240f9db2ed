"""A tensor is used on a side stream and dropped without `record_stream`."""

import torch
from common import WORDS, run

main, side = torch.cuda.current_stream(), torch.cuda.Stream()
out = torch.zeros((), device="cuda")
torch.zeros(WORDS, device="cuda").max().item()
torch.cuda.synchronize()


def read(number: int, *, recorded: bool) -> float:
    t = torch.full((WORDS,), float(number), device="cuda")
    side.wait_stream(main)
    with torch.cuda.stream(side):
        out.copy_(t.max())  # the read
    if recorded:
        t.record_stream(side)
    del t
    u = torch.full((WORDS,), 777.0, device="cuda")  # the write
    main.wait_stream(side)
    got = out.item()
    del u
    return got


run(lambda number: read(number, recorded=False), lambda number: read(number, recorded=True))
