"""CuPy inside a CUDA graph that PyTorch captures."""

import place


def on_gpu() -> None:
    # [start:gpu]
    import cupy
    import torch

    from cai_bridge import convert

    side = cupy.cuda.Stream(non_blocking=True)
    x, out = torch.zeros(4, device="cuda"), cupy.zeros(4, dtype="float32")

    def step():
        y = x * 2
        z = convert(y, cupy, stream=side)  # CuPy's stream joins the capture
        with side:
            cupy.multiply(z, 3, out=out)
        del z  # torch's stream waits for CuPy's: the capture is whole again
        y.fill_(-1)  # comes after CuPy's read

    step()  # once before: kernels are compiled and memory is taken outside the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    for value in (1, 2, 3):
        x.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        print(out.tolist())
    # [end:gpu]


def simulated() -> None:
    # [start:simulated]
    from cai_bridge import to_cai
    from cai_bridge.testing import simulated_cuda

    with simulated_cuda() as cuda:
        origin, side = cuda.stream("origin"), cuda.stream("side")
        x = cuda.array([0.0] * 4, speaks="exchange", name="x")
        with cuda.capture(origin) as graph, cuda.current_stream(origin):
            origin.fill(x, 7.0)
            with to_cai(x, stream=side) as view:  # an edge: `side` joins the capture
                seen = side.read(view)
            origin.fill(x, -1.0)  # an edge back: after the read, in each replay
        for _ in range(2):
            graph.launch(origin)
            origin.synchronize()
            print(seen.value)
    # [end:simulated]


if __name__ == "__main__":
    place.run("torch", "cupy", gpu=on_gpu, simulated=simulated)
