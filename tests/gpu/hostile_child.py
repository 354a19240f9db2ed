"""One hostile input per process: `python -m gpu.hostile_child CASE`, from the folder `tests`.

Prints one JSON line: what each call raised, and whether the input could be used afterwards. The
parent, `test_hostile.py`, holds what it must say.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from cai_bridge import from_cai, to_cai

from . import capsules, driver

Attempt = Callable[[], object]
Case = tuple[list[Attempt], Attempt]

WORDS = 64


def device_memory() -> int:
    loaded = driver.load()
    loaded.use_primary()
    address = loaded.allocate(4 * WORDS)
    loaded.put(address, np.arange(WORDS, dtype=np.float32).tobytes())
    return address


def good_import(address: int) -> bool:
    """Whether a well-formed dict over the same memory is imported and read as before."""
    view = from_cai(capsules.OnlyCai(capsules.interface(address, (WORDS,))))
    said = capsules.read_capsule(view.__dlpack__())
    content = np.frombuffer(driver.load().read(said.ptr, 4 * WORDS), np.float32)
    return bool((content == np.arange(WORDS)).all())


# CAI dicts: what is wrong with them, over 64 float32 of real device memory

BAD_FIELDS: dict[str, dict[str, Any]] = {
    "structured": {"typestr": "|V12", "descr": [("x", "<f4"), ("y", "<f8")], "shape": (4,)},
    "huge shape": {"shape": (2**62, 4)},
    "mask": {"mask": np.ones(WORDS, np.bool_)},
    "null data": {"data": (0, False)},
    "data past 64 bits": {"data": (2**70, False)},
}


def cai_case(name: str) -> Case:
    address = device_memory()
    interface = capsules.interface(address, (WORDS,))
    if name == "host pointer":
        interface["data"] = (np.arange(WORDS, dtype=np.float32).ctypes.data, False)
    elif name == "interface of no dict":
        interface = 5  # type: ignore[assignment]
    else:
        interface.update(BAD_FIELDS[name])
    foreign = capsules.OnlyCai(interface)
    held = sys.getrefcount(foreign)

    def usable() -> bool:
        return sys.getrefcount(foreign) == held and good_import(address)

    calls: list[Attempt] = [lambda: from_cai(foreign)]
    if name != "structured":  # what CAI alone has goes from CAI to CAI as it came
        calls.append(lambda: to_cai(foreign))
    return calls, usable


# DLPack capsules


def bad_capsule(name: str) -> Case:
    address = device_memory()
    managed = capsules.DLManagedTensorVersioned(major=1, minor=3)
    shape, strides = (ctypes.c_int64 * 2)(8, 8), (ctypes.c_int64 * 2)(8, 1)
    fields: dict[str, Any] = {
        "data": address, "device_type": 2, "device_id": 0, "ndim": 2, "code": 2, "bits": 32,
        "lanes": 1,
        "shape": ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)),
        "strides": ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64)), "byte_offset": 0,
    }  # fmt: skip
    match name:
        case "capsule of NULL data":
            fields["data"] = None
        case "capsule of huge shape":
            shape[0] = 2**62
        case "capsule on the CPU":
            fields |= {"device_type": 1}
        case "capsule of another name":
            pass
    for field, value in fields.items():
        setattr(managed.dl_tensor, field, value)

    label = b"another name" if name == "capsule of another name" else b"dltensor_versioned"
    new = ctypes.pythonapi.PyCapsule_New
    new.argtypes, new.restype = (
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
        ctypes.py_object,
    )
    capsule = new(ctypes.addressof(managed), label, None)

    kept = managed, shape, strides  # the capsule points into them

    def usable() -> bool:
        return bool(kept) and capsules.name_of(capsule) == label.decode() and good_import(address)

    return [lambda: to_cai(capsule)], usable


def used_capsule() -> Case:
    address = device_memory()
    capsule = from_cai(capsules.OnlyCai(capsules.interface(address, (WORDS,)))).__dlpack__()
    first = to_cai(capsule)
    return [lambda: to_cai(capsule)], lambda: first.ptr == address and good_import(address)


# what cannot be exported


def export_case(name: str) -> Case:
    address = device_memory()
    foreign = capsules.OnlyCai(capsules.interface(address, (WORDS,)))
    readonly = from_cai(foreign, readonly=True)
    view = from_cai(foreign)
    attempts: dict[str, Attempt] = {
        "read-only into a legacy capsule": readonly.__dlpack__,
        "export to the CPU without a copy": lambda: view.__dlpack__(dl_device=(1, 0), copy=False),
        "export to pinned memory": lambda: view.__dlpack__(dl_device=(3, 0)),
        "export on stream 0": lambda: view.__dlpack__(stream=0),
        "export on stream True": lambda: view.__dlpack__(stream=True),
    }

    def usable() -> bool:
        return capsules.read_capsule(
            readonly.__dlpack__(max_version=(1, 3))
        ).readonly and good_import(address)

    return [attempts[name]], usable


def no_protocol() -> Case:
    return [lambda: to_cai(object()), lambda: from_cai(object())], lambda: True


def numpy_array() -> Case:
    array = np.arange(4.0)
    return [lambda: to_cai(array)], lambda: array.sum() == 6.0


# torch


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
    by_cai = name in ("torch conj", "torch neg")
    attempts: list[Attempt] = [lambda: to_cai(tensor)]
    if by_cai:
        attempts.append(lambda: from_cai(tensor))

    def usable() -> bool:
        if name == "torch float4":
            return to_cai(tensor.view(torch.uint8)).ptr == tensor.data_ptr()
        if name == "torch complex32":
            return to_cai(torch.view_as_real(tensor)).ptr == tensor.data_ptr()
        plain = (
            (tensor.to_dense() if tensor.is_sparse else tensor)
            .detach()
            .cuda()
            .resolve_conj()
            .resolve_neg()
        )
        return bool((plain.cpu() == plain.cpu()).all()) and to_cai(plain).ptr == plain.data_ptr()

    return attempts, usable


def case(name: str) -> Case:
    if name.startswith("torch "):
        return torch_case(name)
    if name.startswith("capsule "):
        return bad_capsule(name)
    if "export" in name or name == "read-only into a legacy capsule":
        return export_case(name)
    special = {
        "used capsule": used_capsule,
        "neither protocol": no_protocol,
        "numpy array": numpy_array,
    }
    return special[name]() if name in special else cai_case(name)


def outcome(attempt: Attempt) -> dict[str, Any]:
    try:
        got = attempt()
    except BaseException as error:
        return {"classes": [kind.__name__ for kind in type(error).__mro__], "message": str(error)}
    return {"classes": [], "message": f"accepted: {got!r}"}


def main(name: str) -> None:
    attempts, usable = case(name)
    outcomes = [outcome(attempt) for attempt in attempts]
    print(json.dumps({"outcomes": outcomes, "usable": bool(usable())}))


if __name__ == "__main__":
    main(sys.argv[1])
