"""Training loops with nothing missing.

    python training.py plain|prefetch|graphed|compiled|reduced|ddp

`plain` is on one stream. `prefetch` copies ahead and captures its step by hand. In `graphed`
PyTorch captures the network, in `compiled` it compiles the network, and in `reduced` it does both.
`ddp` is DistributedDataParallel over NCCL, with a process for each GPU.
"""

import os
import subprocess
import sys
import tempfile
import time

import torch

KIND, RANK = sys.argv[1], int(os.environ.get("RANK", "0"))
torch.cuda.set_device(RANK)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
net = net.cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
x, y = torch.randn(512, 64, device="cuda"), torch.randn(512, 8, device="cuda")
model = net
# No kernel of inductor's is timed before the program runs.
QUIET = {"triton.autotune_pointwise": False, "compile_threads": 1}


def step() -> torch.Tensor:
    # Gradients of a captured step stay where they are; those of PyTorch's own graphs do not.
    optimizer.zero_grad(set_to_none=KIND not in {"plain", "prefetch"})
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


def plain(steps: int) -> list[float]:
    return [loss.item() for i in range(steps) if (loss := step()) is not None and i % 10 == 0]


def prefetch(steps: int) -> list[float]:
    copies, main = torch.cuda.Stream(), torch.cuda.current_stream()
    hosts = [(torch.randn(512, 64), torch.randn(512, 8)) for _ in range(8)]
    pinned = [(a.pin_memory(), b.pin_memory()) for a, b in hosts]
    warm = torch.cuda.Stream()
    warm.wait_stream(main)
    with torch.cuda.stream(warm):
        for _ in range(3):
            step()
    main.wait_stream(warm)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def fetch(i: int) -> list[torch.Tensor]:
        with torch.cuda.stream(copies):
            return [one.to("cuda", non_blocking=True) for one in pinned[i % 8]]

    got, ahead = [], fetch(0)
    for i in range(steps):
        main.wait_stream(copies)
        for to, batch in zip((x, y), ahead, strict=True):
            batch.record_stream(main)
            to.copy_(batch)
        graph.replay()
        ahead = fetch(i + 1)
        if i % 10 == 0:
            got.append(loss.item())
    return got


def reduced(steps: int) -> list[float]:
    got = []
    for i in range(steps):
        torch.compiler.cudagraph_mark_step_begin()
        loss = step()
        if i % 10 == 0:
            got.append(loss.item())
    return got


def distributed() -> tuple[torch.nn.Module, list[subprocess.Popen[bytes]]]:
    """Start a process for each further GPU, and average the gradients of all in small buckets."""
    import torch.distributed as dist

    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    world = torch.cuda.device_count()
    store = os.environ.setdefault("STORE", f"{tempfile.mkdtemp()}/store")
    ranks = range(1, world) if RANK == 0 else ()
    others = [
        subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK": str(rank)})
        for rank in ranks
    ]
    dist.init_process_group("nccl", store=dist.FileStore(store, world), rank=RANK, world_size=world)
    ddp = torch.nn.parallel.DistributedDataParallel(net, device_ids=[RANK], bucket_cap_mb=0.02)
    return ddp, others


others: list[subprocess.Popen[bytes]] = []
if KIND == "graphed":
    model = torch.cuda.make_graphed_callables(net, (x,))
elif KIND in {"compiled", "reduced"}:
    model = torch.compile(net, options={**QUIET, "triton.cudagraphs": KIND == "reduced"})
elif KIND == "ddp":
    model, others = distributed()

for _ in range(3 if KIND == "reduced" else 1):
    step()
torch.cuda.synchronize()
begun = time.perf_counter()
losses = {"prefetch": prefetch, "reduced": reduced}.get(KIND, plain)(100)
torch.cuda.synchronize()
if RANK == 0:
    print("RESULT", losses)
    print(f"TIME {time.perf_counter() - begun:.5f}")
if KIND == "ddp":
    torch.distributed.destroy_process_group()
    sys.exit(max((one.wait() for one in others), default=0))
