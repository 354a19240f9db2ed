"""Hostile inputs that only a real driver or PyTorch has: `python -m gpu.hostile_child`, from the
folder `tests`.

Prints a JSON line for each case: what each call raised, and whether the input could be used
afterwards. The parent, `test_hostile.py`, holds what it must say.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from cai_bridge import from_cai, to_cai

from . import capsules, driver

WORDS = 64
Attempt = Callable[[], object]
Case = tuple[list[Attempt], Attempt]


def host_pointer() -> Case:
    """A dict that claims that host memory is a GPU's, beside one of real device memory."""
    loaded = driver.load()
    loaded.use_primary()
    address, host = loaded.allocate(4 * WORDS), np.arange(WORDS, dtype=np.float32)
    loaded.put(address, host.tobytes())
    foreign = capsules.OnlyCai(capsules.interface(host.ctypes.data, (WORDS,)), keep=host)

    def usable() -> bool:
        """Whether a well-formed dict over device memory is imported and read as before."""
        view = from_cai(capsules.OnlyCai(capsules.interface(address, (WORDS,))))
        said = capsules.read_capsule(view.__dlpack__())
        return loaded.read(said.ptr, 4 * WORDS) == host.tobytes()

    return [lambda: from_cai(foreign), lambda: to_cai(foreign)], usable


def torch_case(name: str) -> Case:
    import torch

    real = torch.arange(4.0, device="cuda")
    imaginary = torch.complex(real, real)
    made: dict[str, Callable[[], Any]] = {
        "torch requires_grad": lambda: real.clone().requires_grad_(),
        "torch parameter": lambda: torch.nn.Parameter(real.clone()),
        "torch conj": imaginary.conj,
        "torch neg": lambda: imaginary.conj().imag,
        "torch sparse": real.to_sparse,
        "torch CPU": real.cpu,
        "torch complex32": lambda: torch.zeros(4, dtype=torch.complex32, device="cuda"),
        "torch float4": lambda: torch.zeros(4, dtype=torch.uint8, device="cuda").view(
            torch.float4_e2m1fn_x2
        ),
    }
    tensor = made[name]()
    attempts: list[Attempt] = [lambda: to_cai(tensor)]
    if name in ("torch conj", "torch neg"):
        attempts.append(lambda: from_cai(tensor))

    def usable() -> bool:
        if name == "torch float4":
            return to_cai(tensor.view(torch.uint8)).ptr == tensor.data_ptr()
        if name == "torch complex32":
            return to_cai(torch.view_as_real(tensor)).ptr == tensor.data_ptr()
        dense = tensor.to_dense() if tensor.is_sparse else tensor
        plain = dense.detach().cuda().resolve_conj().resolve_neg()
        return bool((plain.cpu() == plain.cpu()).all()) and to_cai(plain).ptr == plain.data_ptr()

    return attempts, usable


def outcome(attempt: Attempt) -> dict[str, Any]:
    try:
        got = attempt()
    except BaseException as error:
        return {"classes": [kind.__name__ for kind in type(error).__mro__], "message": str(error)}
    return {"classes": [], "message": f"accepted: {got!r}"}


def main() -> None:
    from .test_hostile import EXPECTED

    for name in EXPECTED:
        try:
            attempts, usable = torch_case(name) if name.startswith("torch") else host_pointer()
        except (ImportError, AttributeError) as absent:
            print(json.dumps({"case": name, "absent": str(absent)}), flush=True)
            continue
        said = {"case": name, "outcomes": [outcome(one) for one in attempts]}
        print(json.dumps(said | {"usable": bool(usable())}), flush=True)


if __name__ == "__main__":
    main()
