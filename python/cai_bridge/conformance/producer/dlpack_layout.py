"""DLPack's requirements on the tensor fields that describe the items and their places."""

from __future__ import annotations

from cai_bridge.testing import describe
from cai_bridge.testing._kit.dlpack_abi import read_capsule

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab
from ..requirement import expect, needs
from .arrays import export
from .dlpack import fields_by
from .doors import by_default, dlpack
from .values import earlier, laid_out, said_or_refused, taken_of, whole_of


@dlpack("dtype")
def dlpack_dtype(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x, dtype = laid_out(p, lab, case), case.dtype
    kept = earlier(case, x, by_default)
    capsule = said_or_refused(lambda x, case: export(x, case, stream=1), x, case)
    lanes = read_capsule(capsule).dtype[2]
    expect(lanes == 1, f"{dtype} has {lanes} lanes")
    said = describe(capsule)["capsule"]
    expect(said.dtype == dtype, f"{dtype} is called {said.dtype}")
    del kept
    return f"{said.dtype}"


@dlpack("shape")
def dlpack_shape(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x, view = taken_of(p, lab, whole_of(p, lab, case), case)
    fields = fields_by(x, case)
    expect(fields.ndim == len(view.shape), f"ndim is {fields.ndim} for {view.shape!r}")
    expect((fields.shape or ()) == view.shape, f"shape is {fields.shape!r} for {view.shape!r}")
    return f"{fields.shape}"


@dlpack("strides", rests_on=("shape",))
def dlpack_strides(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x, view = taken_of(p, lab, whole_of(p, lab, case), case)
    fields = fields_by(x, case)
    new = fields.version is not None and fields.version >= (1, 2)
    needs(new, f"version {fields.version}: NULL is allowed")
    expect(fields.strides is not None or not view.shape, "strides is NULL")
    strides = fields.strides or ()
    told = [step for step, n in zip(strides, view.shape, strict=True) if n > 1]
    items = [step for step, n in zip(view.strides, view.shape, strict=True) if n > 1]
    # A view may be a copy, which has strides of its own.
    compact = [step for step, n in zip(view.compact_strides, view.shape, strict=True) if n > 1]
    expect(told in (items, compact), f"strides are {strides} for {case.layout!r}, and not {items}")
    return f"{strides}"


@dlpack("zero-size")
def dlpack_zero_size(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x, view = taken_of(p, lab, whole_of(p, lab, case), case)
    fields = fields_by(x, case)
    expect(fields.shape == view.shape, f"the shape is {fields.shape}")
    expect(fields.data == 0, f"the pointer is {fields.data:#x}")
    return "NULL"
