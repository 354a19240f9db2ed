"""The requirements of DLPack and the array API standard on ``__dlpack__`` and its capsules."""

from __future__ import annotations

from typing import Any

from cai_bridge.testing._kit.dlpack_abi import TensorFields, read_capsule

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab
from ..requirement import expect, given, needs
from .arrays import export, has_versioned, is_int, lacks, stream_taken
from .doors import by_default, dlpack
from .values import earlier, laid_out, said_or_refused


def fields_by(x: Any, case: Case) -> TensorFields:
    """Read the tensor of a capsule, asked for by the case's route."""
    kept = earlier(case, x, by_default)
    fields = said_or_refused(lambda x, case: read_capsule(export(x, case, stream=1)), x, case)
    del kept
    return fields


@dlpack("device")
def dlpack_device(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = laid_out(p, lab, case)
    needs(hasattr(x, "__dlpack__"), f"{type(x).__name__} has no __dlpack__")
    expect(hasattr(x, "__dlpack_device__"), f"{type(x).__name__} has no __dlpack_device__")
    kept = earlier(case, x, by_default)
    device = x.__dlpack_device__()
    expect(isinstance(device, tuple) and len(device) == 2, f"it gives {device!r}")
    expect(all(map(is_int, device)), f"it gives {device!r}")
    expect(device[1] >= 0, f"it gives {device!r}, and there is no such device")
    del kept
    return f"{tuple(map(int, device))}"


@dlpack("same-device", rests_on=("device",))
def dlpack_same_device(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = laid_out(p, lab, case)
    needs(hasattr(x, "__dlpack_device__"), f"{type(x).__name__} has no __dlpack_device__")
    said, fields = tuple(x.__dlpack_device__()), fields_by(x, case)
    tensor = fields.device
    expect(said == tensor, f"__dlpack_device__() gives {said}, the tensor has {tensor}")
    found = lab.device_of(fields.ptr)
    wrong = found is not None and tensor[0] == found[0] and tensor != found
    expect(not wrong, f"the tensor says {tensor}, and its memory is on {found}")
    if case.around == "another device":
        with lab.on_device(0):
            again = tuple(x.__dlpack_device__()), fields_by(x, case).device
        expect(again == (said, tensor), f"with device 0 the current one, it says {again[0]}")
    return f"{tensor}"


@dlpack("keywords", rests_on=("readonly",))
def dlpack_keywords(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = laid_out(p, lab, case)
    first = fields_by(x, case)
    expect(not lacks(x, "stream"), "it takes no stream by keyword")
    own, with_it, without = stream_taken(x), set(), {}
    wishes_of = (
        *({"max_version": (1, 0)}, {"dl_device": first.device}, {"copy": None}, {"copy": False}),
    )
    for wish in wishes_of:
        [name] = wish
        try:
            x.__dlpack__(**own, **wish)
            with_it.add(name)
        except TypeError as error:
            expect(lacks(x, name), f"with {wish}: TypeError: {error}")
            without[name] = error
        except BufferError as refused:
            # Legacy capsules may be refused, and have no read-only flag.
            needs(not has_versioned(x, **own, **wish), f"{wish}: {refused}")
            raise
    for name in with_it & without.keys():
        expect(False, f"{name} is taken, and is not: TypeError: {without[name]}")
    return f"without {' and '.join(without)}" if without else "all taken"


@dlpack("version")
def dlpack_version(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = laid_out(p, lab, case)
    kept = earlier(case, x, by_default)
    seen = []
    for newest in ((1, 3), (2, 0)):

        def read(x: Any, _: Case, newest: tuple[int, int] = newest) -> TensorFields:
            return read_capsule(export(x, stream=1, max_version=newest))

        fields = said_or_refused(read, x, case)
        # Reading the capsule refuses other major versions.
        seen.append(given(fields.version, "its capsules are legacy ones, which have no version"))
    del kept
    return f"{seen[0]} and {seen[1]}"


@dlpack("flags", rests_on=("same-device",))
def dlpack_flags(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = laid_out(p, lab, case)
    flags = given(fields_by(x, case).flags, "its capsules are legacy ones, which have no flags")
    expect(not flags & ~0b111, f"flags are {flags:#b}")
    expect(not flags & 0b100, f"flags are {flags:#b} for {case.dtype}")
    # An array that cannot be handed out directly may be copied, each time anew.
    held = [export(x, case, stream=1) for _ in range(2)]
    first, second = (read_capsule(one).ptr for one in held)
    expect(first == second or flags & 0b10, f"flags are {flags:#b} for a copy")
    expect(first != second or not flags & 0b10, f"flags are {flags:#b} in the array's own memory")
    return f"{flags:#b}"
