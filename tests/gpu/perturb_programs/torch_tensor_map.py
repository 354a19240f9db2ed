"""A kernel reads by a descriptor, with the copy engine of Hopper, what a side stream still writes.

Triton makes the descriptor on the host, by `cuTensorMapEncodeTiled`, and the launch is given its
128 bytes.
"""

import torch
import triton
import triton.language as tl
from common import WORDS, run
from triton.tools.tensor_descriptor import TensorDescriptor

ROWS, COLUMNS = WORDS // 256, 256
main, side = torch.cuda.current_stream(), torch.cuda.Stream()
x, y = (torch.zeros(ROWS, COLUMNS, device="cuda") for _ in range(2))
behind = TensorDescriptor.from_tensor(x, [16, COLUMNS])


@triton.jit
def copied(behind, y, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0) * 16
    block = behind.load([row, 0])
    places = (row + tl.arange(0, 16))[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(y + places, block)


def copy() -> float:
    copied[(ROWS // 16,)](behind, y, COLUMNS)  # the read
    return y.max().item()


copy()
torch.cuda.synchronize()


def read(number: int, *, waited: bool) -> float:
    side.wait_stream(main)
    with torch.cuda.stream(side):
        x.fill_(number)  # the write
    if waited:
        main.wait_stream(side)
    return copy()


run(lambda number: read(number, waited=False), lambda number: read(number, waited=True))
