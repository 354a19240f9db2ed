"""What DLPack requires of the fields of a tensor that say where its items are, and which."""

from __future__ import annotations

from cai_bridge.testing import describe
from cai_bridge.testing._kit.dlpack_abi import read_capsule

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab
from ..layouts import EMPTY
from ..requirement import expect, needs
from .arrays import export, made
from .doors import dlpack
from .values import taken_of, whole_of


@dlpack("dtype")
def dlpack_dtype(p: ProducerAdapter, lab: Lab) -> str:
    seen = []
    for dtype in p.dtypes:
        capsule = export(made(p, lab, dtype=dtype), stream=1)
        lanes = read_capsule(capsule).dtype[2]
        expect(lanes == 1, f"{dtype} has {lanes} lanes")
        said = describe(capsule)["capsule"]
        expect(said.dtype == dtype, f"{dtype} is called {said.dtype}")
        seen.append(f"{said.dtype}")
    return ", ".join(seen)


@dlpack("shape")
def dlpack_shape(p: ProducerAdapter, lab: Lab) -> str:
    for extents in ((3, 4), (), (2, 1, 5)):
        fields = read_capsule(export(made(p, lab, extents), stream=1))
        expect(fields.ndim == len(extents), f"ndim is {fields.ndim} for {extents!r}")
        expect((fields.shape or ()) == extents, f"shape is {fields.shape!r} for {extents!r}")
    return "as made"


@dlpack("strides")
def dlpack_strides(p: ProducerAdapter, lab: Lab) -> str:
    fields = read_capsule(export(made(p, lab), stream=1))
    new = fields.version is not None and fields.version >= (1, 2)
    needs(new, f"version {fields.version}: NULL is allowed")
    expect(fields.strides is not None, "strides is NULL")
    expect(fields.strides == (4, 1), f"strides are {fields.strides} for a (3, 4) array")
    return f"{fields.strides}"


@dlpack("zero-size", over={"layout": EMPTY})
def dlpack_zero_size(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x, view = taken_of(p, lab, whole_of(p, lab, case), case)
    fields = read_capsule(export(x, stream=1))
    expect(fields.shape == view.shape, f"the shape is {fields.shape}")
    expect(fields.data == 0, f"the pointer is {fields.data:#x}")
    return "NULL"
