"""What DLPack and the array API standard require of ``__dlpack__`` and of what it hands out."""

from __future__ import annotations

from cai_bridge.testing._kit.dlpack_abi import read_capsule

from ..adapter import ProducerAdapter
from ..lab import Lab
from ..requirement import expect, given, needs
from .arrays import export, is_int, made, stream_taken
from .doors import dlpack


@dlpack("device")
def dlpack_device(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    needs(hasattr(x, "__dlpack__"), f"{type(x).__name__} has no __dlpack__")
    expect(hasattr(x, "__dlpack_device__"), f"{type(x).__name__} has no __dlpack_device__")
    device = x.__dlpack_device__()
    expect(isinstance(device, tuple) and len(device) == 2, f"it gives {device!r}")
    expect(all(map(is_int, device)), f"it gives {device!r}")
    return f"{tuple(map(int, device))}"


@dlpack("same-device")
def dlpack_same_device(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    needs(hasattr(x, "__dlpack_device__"), f"{type(x).__name__} has no __dlpack_device__")
    said, tensor = tuple(x.__dlpack_device__()), read_capsule(export(x, stream=1)).device
    expect(said == tensor, f"__dlpack_device__() gives {said}, the tensor has {tensor}")
    return f"{tensor}"


@dlpack("keywords")
def dlpack_keywords(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    device = read_capsule(export(x, stream=1)).device
    own = stream_taken(x)
    for wish in ({"max_version": (1, 0)}, {"dl_device": device}, {"copy": None}, {"copy": False}):
        try:
            x.__dlpack__(**own, **wish)
        except TypeError as error:
            expect(False, f"with {wish}: TypeError: {error}")
        except BufferError as refused:
            needs(read_capsule(export(x, stream=1)).readonly is False, f"{wish}: {refused}")
            raise
    return "all taken"


@dlpack("version")
def dlpack_version(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    seen = []
    for newest in ((1, 3), (2, 0)):
        fields = read_capsule(export(x, stream=1, max_version=newest))
        # Reading it refuses other major versions.
        seen.append(given(fields.version, "its capsules are legacy ones, which have no version"))
    return f"{seen[0]} and {seen[1]}"


@dlpack("flags")
def dlpack_flags(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    fields = read_capsule(export(x, stream=1))
    flags = given(fields.flags, "its capsules are legacy ones, which have no flags")
    expect(not flags & ~0b111, f"flags are {flags:#b}")
    expect(not flags & 0b110, f"flags are {flags:#b} for float32 in the array's own memory")
    return f"{flags:#b}"
