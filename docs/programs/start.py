"""From nothing to an array that crossed: the same steps on a GPU and without one."""

import place


def on_gpu() -> None:
    # [start:gpu]
    import cupy
    import torch

    from cai_bridge import convert

    with torch.cuda.stream(torch.cuda.Stream()):
        x = torch.ones(1 << 20, device="cuda") * 7  # queued on a side stream, not done yet
        y = convert(x, cupy)  # the same memory, as a cupy.ndarray

    print(type(y).__name__, float(y.sum()) / y.size)
    # [end:gpu]


def simulated() -> None:
    # [start:simulated]
    from cai_bridge import to_cai
    from cai_bridge.testing import simulated_cuda

    with simulated_cuda() as cuda:
        theirs, mine = cuda.stream("theirs"), cuda.stream("mine")
        x = cuda.array([0.0] * 4, speaks="exchange", name="x")  # speaks DLPack, as a tensor does
        theirs.fill(x, 7.0)  # queued; the simulated device runs it as late as it may

        with cuda.current_stream(theirs):
            view = to_cai(x, stream=mine)  # speaks CAI; my stream waits for theirs

        seen = mine.read(view)  # my work, queued on my stream
        mine.synchronize()
        print(seen.value)
    # [end:simulated]


if __name__ == "__main__":
    place.run("torch", "cupy", gpu=on_gpu, simulated=simulated)
