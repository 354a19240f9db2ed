"""A CUDA kernel of one's own on a tensor: CuPy's RawKernel, and its stand-in without a GPU."""

import place


def on_gpu() -> None:
    # [start:gpu]
    import cupy
    import torch

    from cai_bridge import adapt

    kernel = cupy.RawKernel(
        r"""
        extern "C" __global__ void scale(const float* x, float* y, float by, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) y[i] = by * x[i];
        }
        """,
        "scale",
    )

    @adapt(to="cupy")
    def scale(x, by):  # x is a cupy.ndarray here
        y = cupy.empty(x.shape, x.dtype)  # in C order, as the kernel fills it
        blocks = (x.size + 255) // 256
        # each scalar in the type that the kernel has for it
        kernel((blocks,), (256,), (x, y, cupy.float32(by), cupy.int32(x.size)))
        return y  # the caller gets a tensor

    with torch.cuda.stream(torch.cuda.Stream()):
        x = torch.arange(5, device="cuda", dtype=torch.float32)
        print(scale(x, 2.0).tolist())
    # [end:gpu]


def simulated() -> None:
    # [start:simulated]
    from cai_bridge import to_cai
    from cai_bridge.testing import simulated_cuda

    with simulated_cuda() as cuda:
        torchs, cupys = cuda.stream("torch's"), cuda.stream("CuPy's")
        x = cuda.array([0.0] * 5, speaks="exchange", name="x")
        with torchs:  # torch's current stream
            torchs.fill(x, [0.0, 1.0, 2.0, 3.0, 4.0])
            with to_cai(x, stream=cupys) as view:
                seen = cupys.read(view)  # stands in for the kernel's read
        cuda.synchronize()
        print([2.0 * value for value in seen.value])
    # [end:simulated]


if __name__ == "__main__":
    place.run("torch", "cupy", gpu=on_gpu, simulated=simulated)
