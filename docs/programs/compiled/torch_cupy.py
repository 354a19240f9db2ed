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


def gradient(g, x, by):  # a gradient for each argument, in CuPy
    return g * by, None


@adapt(
    to="cupy",
    op="mylib::scale(Tensor x, float by) -> Tensor",  # what PyTorch's compilers see
    into=True,  # PyTorch allocates the result: y, the last parameter
    backward=gradient,
)
def scale(x, by, y):  # x and y are cupy.ndarray here
    if x.dtype != cupy.float32:  # what the kernel is written for
        raise TypeError(f"scale: got {x.dtype}; allowed: float32")
    blocks = (x.size + 255) // 256
    if blocks == 0:
        return  # CUDA launches no empty grid
    # each scalar in the type that the kernel has for it
    kernel((blocks,), (256,), (x, y, cupy.float32(by), cupy.int32(x.size)))


@torch.compile(fullgraph=True)
def step(x):
    return scale(x + 1, 2.0).sum()


x = torch.arange(5, device="cuda", dtype=torch.float32, requires_grad=True)
loss = step(x)
loss.backward()
print(loss.item(), x.grad.tolist())
