"""CuPy in a training loop of PyTorch: a kernel with a gradient, and a look at a parameter."""

import place


def on_gpu() -> None:
    # [start:gpu]
    import cupy
    import torch

    from cai_bridge import adapt, convert

    leaky = cupy.ElementwiseKernel("T x, T slope", "T y", "y = x > 0 ? x : slope * x", "leaky")

    def forward(x, slope):  # both are cupy.ndarray here
        return leaky(x, slope)

    def backward(gradient, x, slope):  # a gradient for each argument
        below = gradient * (x <= 0)
        return gradient - below + slope * below, (below * x).sum()

    activation = adapt(forward, to="cupy", backward=backward)  # takes and returns torch tensors

    torch.manual_seed(0)
    with torch.cuda.stream(torch.cuda.Stream()):
        x = torch.randn(1 << 16, device="cuda")
        wanted = torch.nn.functional.leaky_relu(x, 0.25)
        slope = torch.tensor(0.9, device="cuda", requires_grad=True)
        descent = torch.optim.SGD([slope], lr=0.5)
        for step in range(31):
            descent.zero_grad()
            loss = (activation(x, slope) - wanted).square().mean()
            loss.backward()
            descent.step()
            if step % 10 == 0:
                seen = convert(slope, "cupy", detach=True)  # look at a parameter from CuPy
                print(f"step {step}: slope {float(seen):.3f}")
                del seen  # the next step runs after CuPy's work on it
    # [end:gpu]


def simulated() -> None:
    # [start:simulated]
    from cai_bridge import to_cai
    from cai_bridge.testing import simulated_cuda

    with simulated_cuda() as cuda:  # a race raises at the end
        optimizer, monitor = cuda.stream("optimizer"), cuda.stream("monitor")
        weight = cuda.array([0.0] * 4, speaks="exchange", name="weight")
        seen = []
        with cuda.current_stream(optimizer):
            for step in range(3):
                optimizer.fill(weight, float(step), name="the optimizer's step")
                with to_cai(weight, stream=monitor) as view:
                    seen.append(monitor.read(view))
        cuda.synchronize()
        print([one.value[0] for one in seen])
    # [end:simulated]


if __name__ == "__main__":
    place.run("torch", "cupy", gpu=on_gpu, simulated=simulated)
