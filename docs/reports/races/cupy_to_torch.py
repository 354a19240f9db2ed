"""CuPy writes on a stream that its dict names, and PyTorch reads on its own without waiting."""

import cupy
import torch

side = cupy.cuda.Stream(non_blocking=True)
c = cupy.zeros(1 << 24, dtype="f4")
cupy.cuda.Device().synchronize()
for number in range(1, 9):
    with side:
        c.fill(number)
        t = torch.as_tensor(c, device="cuda")
    print(number, t.max().item())
