"""A kernel of Warp's on a tensor of PyTorch's."""

import place


def on_gpu() -> None:
    # [start:gpu]
    import torch
    import warp as wp

    from cai_bridge import convert

    @wp.kernel
    def double(x: wp.array(dtype=wp.float32)):
        i = wp.tid()
        x[i] = 2.0 * x[i]

    with torch.cuda.stream(torch.cuda.Stream()):
        x = torch.full((4,), 7.0, device="cuda")  # queued on torch's side stream
        a = convert(x, "warp")  # a wp.array over the same memory; Warp's stream waits
        wp.launch(double, dim=4, inputs=[a])
        del a  # torch's stream waits for the kernel
        print(x.tolist())
    # [end:gpu]


def simulated() -> None:
    # [start:simulated]
    from cai_bridge import to_cai
    from cai_bridge.testing import simulated_cuda

    with simulated_cuda() as cuda:
        torchs, warps = cuda.stream("torch's"), cuda.stream("Warp's")
        x = cuda.array([0.0] * 4, speaks="exchange", name="x")
        torchs.fill(x, 7.0)
        with cuda.current_stream(torchs), to_cai(x, stream=warps) as view:
            before = warps.read(view)
            warps.fill(view, 14.0, name="double")  # what the kernel writes
        after = torchs.read(x)  # the end of the block made torch's stream wait
        cuda.synchronize()
        print(before.value, "->", after.value)
    # [end:simulated]


if __name__ == "__main__":
    place.run("torch", "warp", gpu=on_gpu, simulated=simulated)
