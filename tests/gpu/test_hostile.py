"""What only a real driver or PyTorch has, and is refused by a message that names the field.

After the refusal the input is as usable as it was before. Entries and fields that are refused
before the driver is asked are rows of tests/data/refusals.toml.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cai_bridge import from_cai, to_cai

from .capsules import OnlyCai, interface, read_capsule

WORDS = 64


@pytest.mark.parametrize("door", [from_cai, to_cai])
def test_host_memory_that_a_dict_calls_a_gpus_is_refused(driver, words, door):
    host = np.arange(WORDS, dtype=np.float32)
    with pytest.raises((BufferError, ValueError), match=r"data|pointer"):
        door(OnlyCai(interface(host.ctypes.data, (WORDS,)), keep=host))
    address = words(WORDS)
    driver.put(address, host.tobytes())
    view = from_cai(OnlyCai(interface(address, (WORDS,))))
    capsule = view.__dlpack__()
    assert driver.read(read_capsule(capsule).ptr, 4 * WORDS) == host.tobytes()


# How the tensor is made, what the message names, and how it is taken all the same.
Make = Callable[[Any, Any], Any]
TENSORS: dict[str, tuple[Make, str, Make]] = {
    "requires_grad": (lambda t, x: x.requires_grad_(), "grad", lambda t, x: x.detach()),
    "a parameter": (lambda t, x: t.nn.Parameter(x), "grad", lambda t, x: x.detach()),
    "conj": (lambda t, x: t.complex(x, x).conj(), "conj", lambda t, x: x.resolve_conj()),
    "neg": (lambda t, x: t.complex(x, x).conj().imag, "neg", lambda t, x: x.resolve_neg()),
    "sparse": (lambda t, x: x.to_sparse(), "layout|sparse|storage", lambda t, x: x.to_dense()),
    "on the CPU": (lambda t, x: x.cpu(), "device|cpu", lambda t, x: x.cuda()),
    "complex32": (
        lambda t, x: t.zeros(4, dtype=t.complex32, device="cuda"),
        "dtype",
        lambda t, x: t.view_as_real(x),
    ),
    "float4": (
        lambda t, x: t.zeros(4, dtype=t.uint8, device="cuda").view(t.float4_e2m1fn_x2),
        "dtype|bits",
        lambda t, x: x.view(t.uint8),
    ),
}


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("case", TENSORS)
def test_a_tensor_that_neither_protocol_has_is_refused_and_stays_usable(torch, case):
    make, field, plain = TENSORS[case]
    if case == "float4" and not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this torch has no float4")
    tensor = make(torch, torch.arange(4.0, device="cuda"))
    for door in (to_cai, from_cai) if case in ("conj", "neg") else (to_cai,):
        with pytest.raises(BufferError, match=f"(?i){field}"):
            door(tensor)
    usable = plain(torch, tensor)
    assert to_cai(usable).ptr == usable.data_ptr()
