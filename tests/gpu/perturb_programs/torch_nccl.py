"""The result of a collective is read without waiting for it: NCCL has a stream of its own."""

import os

import torch
import torch.distributed as dist
from common import WORDS, run

os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
x, y = torch.zeros(WORDS, device="cuda"), torch.zeros(WORDS, device="cuda")
dist.all_gather_into_tensor(y, x)
y.max().item()
torch.cuda.synchronize()


def gather(number: int, *, waited: bool) -> float:
    x.fill_(number)
    work = dist.all_gather_into_tensor(y, x, async_op=True)  # the write
    if waited:
        work.wait()
    got = y.max().item()  # the read
    work.wait()
    return got


run(lambda number: gather(number, waited=False), lambda number: gather(number, waited=True))
dist.destroy_process_group()
