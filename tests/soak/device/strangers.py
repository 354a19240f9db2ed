"""Arrays of producers that no row of the habits vouches for, and what they do.

Each has a class of its own, whose members are the real arrays' but for what is strange about them.
A class that changes gets other members while the program runs.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from typing import Any

from cai_bridge import from_cai, to_cai
from cai_bridge.testing import _array
from cai_bridge.testing._kit.dlpack_abi import ManagedTensor
from cai_bridge.testing._region import Region

LATE = "cai3-late"
"""Its dict says None, whatever is pending."""
DEAF = "dlpack-deaf"
"""Its `__dlpack__` orders nothing, whatever stream it is asked for."""
TWICE = "dlpack-twice"
"""The destructor of its capsules calls the deleter under both names."""
FORMS: dict[tuple[str, ...], tuple[tuple[str, ...], ...]] = {
    ("cai3",): ((LATE,), ("cai3",)),
    ("dlpack",): ((DEAF,), (TWICE,), ("dlpack",)),
    ("dlpack", "cai3"): ((DEAF, "cai3"), (DEAF, "cai3"), ("dlpack", LATE), ("dlpack", "cai3")),
}
"""What an array that speaks so may be in a stranger's hands; the last is right but for the row."""
ALONE = [form for forms in FORMS.values() for form in forms if len(form) == 1]
"""Those of one protocol."""
STRANGE = "?"
"""Stands behind what it speaks, of an array that no row vouches for."""
SHARE = 0.5


def drawn(chosen: random.Random, speaks: tuple[str, ...]) -> tuple[str, ...]:
    """Give what an array speaks, in a stranger's hands every now and then."""
    if speaks not in FORMS or chosen.random() >= SHARE:
        return speaks
    return (*chosen.choice(FORMS[speaks]), STRANGE)


def _said(self: Any) -> dict[str, Any]:
    dict_of: Any = vars(_array._Cai)["__cuda_array_interface__"]
    return dict(dict_of.fget(self))


def _late(self: Any) -> dict[str, Any]:
    return {**_said(self), "stream": None}


def _asked(self: Any, *, stream: Any = None, max_version: Any = None) -> Any:
    return _array._DLPack.__dlpack__(self, stream=stream, max_version=max_version)


def _deaf(self: Any, *, stream: Any = None, max_version: Any = None) -> Any:
    return _asked(self, stream=-1, max_version=max_version)


def _twice(self: Any, *, stream: Any = None, max_version: Any = None) -> Any:
    capsule = _asked(self, stream=stream, max_version=max_version)
    _destructor_of(capsule, ctypes.cast(_delete, ctypes.c_void_p))
    return capsule


def _members(speaks: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in speaks:
        if kind in {"cai3", LATE}:
            found["__cuda_array_interface__"] = property(_late if kind == LATE else _said)
        elif kind != STRANGE:
            found["__dlpack__"] = {DEAF: _deaf, TWICE: _twice}.get(kind, _asked)
            found["__dlpack_device__"] = _array._HasDevice.__dlpack_device__
    return found


def estranged(array: Any, speaks: tuple[str, ...]) -> Any:
    """Make an array that speaks nothing one of a class of its own."""
    members = {"__module__": "strangers", "_version": 3, **_members(speaks)}
    array.__class__ = type("Stranger", (type(array),), members)
    return array


def change(array: Any, speaks: tuple[str, ...]) -> None:
    kind = type(array)
    for name in [name for name in vars(kind) if name.startswith(("__dlpack", "__cuda_array"))]:
        delattr(kind, name)
    for name, member in _members(speaks).items():
        setattr(kind, name, member)


def _python_call(name: str, answer: Any, *arguments: Any) -> Callable[..., Any]:
    return ctypes.PYFUNCTYPE(answer, *arguments)((name, ctypes.pythonapi))


_is_valid = _python_call("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_pointer = _python_call("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_destructor_of = _python_call(
    "PyCapsule_SetDestructor", ctypes.c_int, ctypes.py_object, ctypes.c_void_p
)
_rename = _python_call("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
twice: list[str] = []
"""The consumed capsules that still had their destructor: their tensors would be deleted twice."""
# Where the deleter is: behind the tensor and its owner, and there, behind the version.
_DELETER = {b"dltensor": 56, b"dltensor_versioned": 16}


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _delete(capsule: int) -> None:
    for name, offset in _DELETER.items():
        if _is_valid(capsule, name):
            address = _pointer(capsule, name)
            deleter = ctypes.c_void_p.from_address(address + offset).value
            if deleter:
                ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(deleter)(address)
        elif _is_valid(capsule, b"used_" + name):
            twice.append(name.decode())


# Whatever a consumer calls a capsule that it has taken the tensor of.
NAMES = (None, b"used_dltensor", b"used_dltensor_versioned", b"dltensor", b"triton")
OTHERS = {"dltensor": b"dltensor_versioned", "dltensor_versioned": b"dltensor"}


def renamed(capsule: Any, own: str, chosen: int) -> None:
    """Rename a capsule whose tensor was taken out to anything but its own name."""
    name = NAMES[chosen % len(NAMES)]
    _rename(capsule, OTHERS[own] if name == b"dltensor" else name)


Heard = Callable[[Exception], object]


def _is_refused(call: Callable[..., Any], what: Any, says: str, heard: Heard, **said: Any) -> bool:
    try:
        call(what, **said)
    except (BufferError, TypeError, ValueError) as error:
        heard(error)
        return says in str(error)
    return False


class Liar:
    """Says that an array is the other GPU's."""

    def __init__(self, array: Any) -> None:
        self.array, self.region = array, Region(*array._tensor.region())

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 1 - self.region.device[1]

    def __dlpack__(self, **_: Any) -> Any:
        device, size = self.__dlpack_device__(), (self.region.itemsize,)
        return ManagedTensor(
            self.region.ptr, form="legacy", shape=size, dtype=(1, 8, 1), device=device, owner=self
        ).capsule()


class Told:
    """Says of an array what it says, but for the type: in the dict, and where given by `dtype`."""

    def __init__(self, array: Any, typestr: str, descr: Any = None, dtype: Any = None) -> None:
        self.array, self.dtype = array, dtype
        region = Region(*array._tensor.region())
        self.__cuda_array_interface__ = {
            "shape": region.shape,
            "strides": region.strides,
            "data": (region.ptr, region.readonly),
            "typestr": typestr,
            "descr": descr or [("", typestr)],
            "version": 3,
            "stream": None,
        }


class Bfloat16:
    """Names its type, of which the typestr has the bits alone."""

    name = "bfloat16"


def _device(array: Any, heard: Heard) -> bool:
    """Whether the lie about a GPU is found out."""
    return _is_refused(to_cai, Liar(array), "device: got", heard)


def _dtype(array: Any, heard: Heard) -> bool:
    """Whether what is said twice counts, or is refused: never the bits alone."""
    try:
        view = from_cai(Told(array, "<u2", dtype=Bfloat16()), stream=-1)
    except (BufferError, TypeError, ValueError) as error:
        heard(error)
        # Of two bytes an item over single ones, the strides or the address may be refused first.
        return any(field in str(error) for field in ("dtype", "strides[", "data: got"))
    return bool(view.typestr == "<V2")


def _record(array: Any, heard: Heard) -> bool:
    """Whether CAI passes a record on as it is, and DLPack refuses it."""
    typestr, half = f"|V{2 * array.itemsize}", f"|V{array.itemsize}"
    record = Told(array, typestr, [("low", half), ("high", half)])
    with to_cai(record, stream=-1) as view:
        passed = view.__cuda_array_interface__
    same = all(passed[key] == record.__cuda_array_interface__[key] for key in ("typestr", "descr"))
    return same and _is_refused(from_cai, record, "got", heard, stream=-1)


TOLD: dict[str, Callable[[Any, Heard], bool]] = {
    "device": _device,
    "dtype": _dtype,
    "record": _record,
}
"""What is said of an array that it is not; each tells whether the bridge does what it has to."""
