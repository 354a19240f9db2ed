"""An array that a Warp kernel writes on its own stream goes to torch's side stream."""

import torch
import warp
from common import WORDS, run

from cai_bridge import convert

warp.config.quiet = True
warp.init()
writer, reader = warp.Stream("cuda:0"), torch.cuda.Stream()
x = warp.zeros(WORDS, dtype=warp.float32, device="cuda:0")
with torch.cuda.stream(reader):
    torch.as_tensor(x, device="cuda").max().item()
torch.cuda.synchronize()


def read(number: int, *, bridged: bool) -> float:
    with warp.ScopedStream(writer, sync_enter=False):
        x.fill_(float(number))  # the write
        with torch.cuda.stream(reader):
            t = convert(x, torch) if bridged else torch.as_tensor(x, device="cuda")
            return t.max().item()  # the read


run(lambda number: read(number, bridged=False), lambda number: read(number, bridged=True))
