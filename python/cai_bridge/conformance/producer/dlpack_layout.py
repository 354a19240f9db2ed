"""What DLPack requires of the fields of a tensor that say where its items are, and which."""

from __future__ import annotations

from cai_bridge.testing import describe
from cai_bridge.testing._kit.dlpack_abi import read_capsule

from ..adapter import ProducerAdapter
from ..lab import Lab, flat
from ..requirement import DLPACK, expect, needs
from .arrays import backwards, export, host_values, items, made, numbered, sliced, strided
from .dlpack import dlpack


@dlpack(
    "dtype",
    DLPACK,
    "C API: DLDataType",
    "code, bits and lanes are those of the items",
    "a consumer reads other numbers",
)
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


@dlpack(
    "shape",
    DLPACK,
    "C API: DLTensor.ndim, DLTensor.shape",
    "ndim is not negative, and shape has ndim extents",
    "consumers read past the end",
)
def dlpack_shape(p: ProducerAdapter, lab: Lab) -> str:
    for extents in ((3, 4), (), (2, 1, 5)):
        fields = read_capsule(export(made(p, lab, extents), stream=1))
        expect(fields.ndim == len(extents), f"ndim is {fields.ndim} for {extents!r}")
        expect((fields.shape or ()) == extents, f"shape is {fields.shape!r} for {extents!r}")
    return "as made"


@dlpack(
    "strides",
    DLPACK,
    "C API: DLTensor.strides, since 1.2",
    "tensors of version 1.2 or later have strides, in items, one for each dimension",
    "consumers of those versions do not check the pointer for NULL",
)
def dlpack_strides(p: ProducerAdapter, lab: Lab) -> str:
    fields = read_capsule(export(made(p, lab), stream=1))
    new = fields.version is not None and fields.version >= (1, 2)
    needs(new, f"version {fields.version}: NULL is allowed")
    expect(fields.strides is not None, "strides is NULL")
    expect(fields.strides == (4, 1), f"strides are {fields.strides} for a (3, 4) array")
    return f"{fields.strides}"


@dlpack(
    "zero-size",
    DLPACK,
    "C API: DLTensor.data",
    "the data pointer of a tensor without items is NULL",
    "consumers ask the driver about any other pointer, and fail",
    level="should",
)
def dlpack_zero_size(p: ProducerAdapter, lab: Lab) -> str:
    fields = read_capsule(export(made(p, lab, (0, 3)), stream=1))
    expect(fields.shape == (0, 3), f"the shape is {fields.shape}")
    expect(fields.data == 0, f"the pointer is {fields.data:#x}")
    return "NULL"


@dlpack(
    "values",
    DLPACK,
    "C API: DLTensor",
    "data, byte_offset, shape and strides together say where the array's items are",
    "a consumer computes with other numbers",
)
def dlpack_values(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    base = lab.region(describe(export(x, stream=1))["capsule"])
    rows = numbered()
    lab.put(base, rows)
    own = host_values(x)
    expect(own in (None, [*flat(rows)]), f"the library itself reads {own}, the tensor says {rows}")
    capsule = export(strided(p, lab, x), stream=1)
    seen = items(lab, lab.region(describe(capsule)["capsule"]), base)
    expect(seen == [row[::2] for row in rows], f"every second column of {rows} is read as {seen}")
    return f"every second column is read as {seen}"


@dlpack(
    "offset",
    DLPACK,
    "C API: DLTensor.data, byte_offset",
    "data and byte_offset of a slice give the address of its first item",
    "a consumer computes with items before the slice",
)
def dlpack_offset(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    rows = numbered()
    base = lab.region(describe(export(x, stream=1))["capsule"])
    lab.put(base, rows)
    capsule = export(sliced(p, lab, x), stream=1)
    seen = items(lab, lab.region(describe(capsule)["capsule"]), base)
    expect(seen == rows[1:], f"all rows but the first of {rows} are read as {seen}")
    return f"all rows but the first are read as {seen}"


@dlpack(
    "reversed",
    DLPACK,
    "C API: DLTensor.strides",
    "the strides of a slice with a negative step are negative, and data is that of its first item; "
    "or the slice is refused",
    "a consumer reads the items in another order, or reads past the end of the array",
)
def dlpack_reversed(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    rows = numbered()
    base = lab.region(describe(export(x, stream=1))["capsule"])
    lab.put(base, rows)
    y = backwards(p, lab, x)
    try:
        capsule = export(y, stream=1)
    except Exception as refused:
        return f"refused: {type(refused).__name__}: {refused}"
    seen = items(lab, lab.region(describe(capsule)["capsule"]), base)
    expect(seen == rows[::-1], f"the rows of {rows}, from the last, are read as {seen}")
    return f"the rows, from the last, are read as {seen}"
