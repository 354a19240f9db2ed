"""Two training loops with nothing missing: on one stream, and with prefetch and a captured step.

python training.py plain|prefetch
"""

import sys
import time

import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
net = net.cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
x, y = torch.randn(512, 64, device="cuda"), torch.randn(512, 8, device="cuda")


def step() -> torch.Tensor:
    optimizer.zero_grad(set_to_none=False)
    loss = torch.nn.functional.mse_loss(net(x), y)
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


step()
torch.cuda.synchronize()
begun = time.perf_counter()
losses = {"plain": plain, "prefetch": prefetch}[sys.argv[1]](100)
torch.cuda.synchronize()
print("RESULT", losses)
print(f"TIME {time.perf_counter() - begun:.5f}")
