"""A tensor in a Numba kernel that runs on a stream of one's own, and its stand-in without a GPU."""

import place


def on_gpu() -> None:
    # [start:gpu]
    import torch
    from numba import cuda

    from cai_bridge import convert

    @cuda.jit
    def double(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] *= 2

    mine = cuda.stream()  # my own stream, on which I launch
    with torch.cuda.stream(torch.cuda.Stream()):
        x = torch.arange(5, device="cuda", dtype=torch.float32)  # queued on torch's stream
        y = convert(x, "numba", stream=mine)  # my stream waits for torch's
        double[1, 32, mine](y)  # kernel[grid, block, stream]
        del y  # torch's stream waits for the kernel
        print(x.tolist())
    # [end:gpu]


def simulated() -> None:
    # [start:simulated]
    from cai_bridge import to_cai
    from cai_bridge.testing import simulated_cuda

    with simulated_cuda() as cuda:
        torchs, mine = cuda.stream("torch's"), cuda.stream("mine")
        x = cuda.array([0.0] * 5, speaks="exchange", name="x")
        with torchs:  # torch's current stream
            torchs.fill(x, [0.0, 1.0, 2.0, 3.0, 4.0])
            with to_cai(x, stream=mine) as y:  # my stream waits for torch's
                mine.fill(y, [0.0, 2.0, 4.0, 6.0, 8.0], name="the kernel")
            seen = torchs.read(x)  # torch's stream waited for the kernel
        cuda.synchronize()
        print(seen.value)
    # [end:simulated]


if __name__ == "__main__":
    place.run("torch", "numba", gpu=on_gpu, simulated=simulated)
