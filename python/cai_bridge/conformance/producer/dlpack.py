"""What DLPack and the array API standard require of ``__dlpack__`` and of what it hands out."""

from __future__ import annotations

from collections.abc import Callable

from cai_bridge.testing import describe
from cai_bridge.testing._kit.dlpack_abi import capsule_name, read_capsule

from ..adapter import ProducerAdapter
from ..lab import Lab
from ..requirement import (
    ARRAY_API,
    DLPACK,
    Check,
    Level,
    Specification,
    expect,
    given,
    needs,
    requires,
)
from .arrays import (
    export,
    is_int,
    made,
    on_host,
)

METHOD = "array.__dlpack__: "


def dlpack(
    name: str,
    specification: Specification,
    section: str,
    rule: str,
    why: str,
    *,
    level: Level = "must",
) -> Callable[[Check], Check]:
    """Make a function the check of what is required of ``__dlpack__``."""
    return requires(
        "producer", f"dlpack-{name}", specification, section, rule=rule, why=why, level=level
    )


@dlpack(
    "device",
    ARRAY_API,
    "array.__dlpack_device__: Returns",
    "__dlpack_device__() takes no arguments and returns a tuple of two integers, device type "
    "and ordinal",
    "consumers call it to learn which streams they may name",
)
def dlpack_device(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    needs(hasattr(x, "__dlpack__"), f"{type(x).__name__} has no __dlpack__")
    expect(hasattr(x, "__dlpack_device__"), f"{type(x).__name__} has no __dlpack_device__")
    device = x.__dlpack_device__()
    expect(isinstance(device, tuple) and len(device) == 2, f"it gives {device!r}")
    expect(all(map(is_int, device)), f"it gives {device!r}")
    return f"{tuple(map(int, device))}"


@dlpack(
    "same-device",
    ARRAY_API,
    "array.__dlpack_device__",
    "it names the device of the tensor in the capsule",
    "consumers queue on a stream of the wrong device, or refuse",
)
def dlpack_same_device(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    needs(hasattr(x, "__dlpack_device__"), f"{type(x).__name__} has no __dlpack_device__")
    said, tensor = tuple(x.__dlpack_device__()), read_capsule(export(x, stream=1)).device
    expect(said == tensor, f"__dlpack_device__() gives {said}, the tensor has {tensor}")
    return f"{tensor}"


@dlpack(
    "keywords",
    ARRAY_API,
    METHOD + "Parameters",
    "it takes stream, max_version, dl_device and copy by keyword",
    "consumers pass them, and not all try again without",
)
def dlpack_keywords(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    device = read_capsule(export(x, stream=1)).device
    for wish in ({"max_version": (1, 0)}, {"dl_device": device}, {"copy": None}, {"copy": False}):
        try:
            x.__dlpack__(stream=1, **wish)
        except TypeError as error:
            expect(False, f"with {wish}: TypeError: {error}")
        except BufferError as refused:
            needs(read_capsule(export(x, stream=1)).readonly is False, f"{wish}: {refused}")
            raise
    return "all taken"


@dlpack(
    "legacy",
    DLPACK,
    "Python Specification: max_version",
    'without max_version the capsule is called "dltensor"',
    "consumers older than DLPack 1.0 read the versioned structure as the legacy one",
)
def dlpack_legacy(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    readonly = read_capsule(export(x, stream=1)).readonly
    try:
        name = capsule_name(x.__dlpack__(stream=1))
    except BufferError as refused:
        # Only a versioned capsule can say that memory is read-only.
        expect(readonly, f"refused: {refused}")
        return f"read-only memory is refused: {refused}"
    expect(name == "dltensor", f"it is called {name!r}")
    return f"{name!r}"


@dlpack(
    "versioned",
    DLPACK,
    "Python Specification: max_version",
    'for max_version of 1.0 or later the capsule is called "dltensor_versioned"',
    "the legacy structure has no flags, so it cannot mark memory as read-only",
    level="should",
)
def dlpack_versioned(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    name = capsule_name(export(x, stream=1))
    expect(name == "dltensor_versioned", f"it is called {name!r}")
    return f"{name!r}"


@dlpack(
    "version",
    DLPACK,
    "C API: DLPackVersion",
    "a versioned tensor's major version is 1, even if max_version names a later minor version",
    "consumers refuse a structure of an unknown version",
)
def dlpack_version(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    seen = []
    for newest in ((1, 3), (2, 0)):
        fields = read_capsule(export(x, stream=1, max_version=newest))
        # Reading it refuses other major versions.
        seen.append(given(fields.version, "its capsules are legacy ones, which have no version"))
    return f"{seen[0]} and {seen[1]}"


@dlpack(
    "flags",
    DLPACK,
    "C API: DLPACK_FLAG_BITMASK_*",
    "only flags that DLPack defines are set, and IS_COPIED only on a copy",
    "consumers take the array for a copy that they may write, or for another type",
)
def dlpack_flags(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    fields = read_capsule(export(x, stream=1))
    flags = given(fields.flags, "its capsules are legacy ones, which have no flags")
    expect(not flags & ~0b111, f"flags are {flags:#b}")
    expect(not flags & 0b110, f"flags are {flags:#b} for float32 in the array's own memory")
    return f"{flags:#b}"


@dlpack(
    "readonly",
    DLPACK,
    "C API: DLPACK_FLAG_BITMASK_READ_ONLY",
    "a read-only array's tensor has the READ_ONLY flag, or the producer refuses",
    "a consumer writes to memory that its owner believes constant",
)
def dlpack_readonly(p: ProducerAdapter, lab: Lab) -> str:
    x = p.readonly(made(p, lab))
    try:
        fields = read_capsule(export(x, stream=1))
    except BufferError as error:
        return f"refused: {error}"
    expect(fields.flags is not None, "a legacy capsule, which cannot say it")
    expect(fields.readonly, f"flags are {fields.flags}")
    return f"flags are {fields.flags}"


@dlpack(
    "copy",
    ARRAY_API,
    METHOD + "copy",
    "copy=False hands out the array's own memory; copy=True hands out other memory with the "
    "same values, or raises BufferError",
    "a consumer that asked for a copy writes to the producer's array, or the other way round",
)
def dlpack_copy(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    own = lab.region(describe(export(x, stream=1))["capsule"])
    lab.put(own, 3.0)
    shared = describe(export(x, stream=1, copy=False))["capsule"]
    expect(shared.ptr == own.ptr, f"copy=False is at {shared.ptr:#x}, the array at {own.ptr:#x}")
    try:
        capsule = export(x, stream=1, copy=True)
    except BufferError as error:
        return f"copy=True is refused: {error}"
    copied = lab.region(describe(capsule)["capsule"])
    expect(copied.ptr != own.ptr, f"copy=True is at {own.ptr:#x}, where the array is")
    lab.synchronize()
    expect(lab.get(copied) == lab.get(own), f"the copy holds {lab.get(copied)}")
    return "both as asked"


@dlpack(
    "dl-device",
    ARRAY_API,
    METHOD + "dl_device",
    "dl_device= of the array's own device gives its memory, of the CPU memory that the host can "
    "read, and of any other device that memory or a BufferError",
    "a consumer on another device gets memory that it cannot reach",
)
def dlpack_dl_device(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    own = lab.region(describe(export(x, stream=1))["capsule"])
    lab.put(own, 3.0)
    device = read_capsule(export(x, stream=1)).device
    served = read_capsule(export(x, stream=1, dl_device=device)).device
    expect(served == device, f"dl_device={device} is served with {served}")
    told = []
    # A ROCm device, and the CPU, for which no stream may be named.
    for wanted, wishes in (((10, 0), {"stream": 1}), ((1, 0), {})):
        try:
            capsule = export(x, dl_device=wanted, **wishes)
        except BufferError as error:
            told.append(f"{wanted} is refused: {error}")
            continue
        fields = read_capsule(capsule)
        expect(fields.device == wanted, f"dl_device={wanted} is served with {fields.device}")
        kind, _ = lab.device_of(fields.ptr) or (1, 0)
        expect(wanted[0] == 1 and kind != 2, f"dl_device={wanted} is served with memory of CUDA")
        values = on_host(describe(capsule)["capsule"])
        expect(set(values) == {3.0}, f"dl_device={wanted} is served with {values}")
        told.append(f"{wanted} is served")
    return "; ".join(told)
