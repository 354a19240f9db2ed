"""Element types: DLPack's codes, typestrs and names, both ways; rows in tests/data/dtype.toml."""

import types

import capsules
import ml_dtypes
import numpy as np
import pytest
import tables
from capsules import HandMade
from children import assert_quiet
from contract import each, rows
from fakes import OnlyCai, only_cai

from cai_bridge import from_cai, to_cai, to_dlpack

EVERY = each("dtype", "dtype")


def exported(view):
    """The element type in a capsule of the view."""
    return capsules.read(view.__dlpack__(max_version=(1, 3), stream=-1)).dtype


def bytes_as(cuda, typestr):
    """64 bytes, as four items of a typestr."""
    return only_cai(cuda.array(shape=64, dtype="uint8"), typestr=typestr)


def typed(producer, dtype):
    """The producer with a `dtype`, which is no protocol."""
    producer.dtype = dtype
    return producer


@pytest.mark.parametrize("form", ["versioned", "legacy", "1.0", "1.1", "1.2"])
@EVERY
def test_the_exact_type_survives_the_way_there_and_back(row, form, cuda):
    x = cuda.array(shape=64, dtype="uint8")
    view = to_cai(HandMade(x.ptr, form=form, code=row["code"], bits=row["bits"]).capsule())
    assert view.__cuda_array_interface__["typestr"] == view.typestr == row["typestr"]
    assert view.itemsize == row["bits"] // 8
    assert view.nbytes == 4 * view.itemsize
    wanted = np.dtype(row["name"] if row["exact"] else getattr(ml_dtypes, row["name"]))
    assert isinstance(view.dtype, np.dtype)
    back = from_cai(view)
    assert view.dtype == back.dtype == wanted
    taken = tables.managed(back)
    said = (exported(back), taken.fields.dtype, tables.borrowed(back).dtype)
    assert said == ((row["code"], row["bits"], 1),) * 3
    taken.delete()


# How the name of a type is spelled that the typestr does not name.
SPELLED = {
    "a string": str,
    "torch's": lambda name: type("Printed", (), {"__repr__": lambda _: f"torch.{name}"})(),
    "printed": lambda name: type("Printed", (), {"__repr__": lambda _: name})(),
    "named": lambda name: types.SimpleNamespace(name=name),
    "ml_dtypes'": lambda name: np.dtype(getattr(ml_dtypes, name)),
    "a scalar type": lambda name: getattr(ml_dtypes, name),
    "a dotted string": lambda name: f"some.library.{name}",
}
# Where it is said.
SAID = {
    "the object": lambda x, dtype: from_cai(typed(x, dtype)),
    "the argument": lambda x, dtype: from_cai(typed(x, np.dtype("V2")), dtype=dtype),
    "the owner of a dict": lambda x, dtype: from_cai(x.interface, owner=typed(x, dtype)),
}


@pytest.mark.parametrize("spelled", SPELLED)
@pytest.mark.parametrize("by", SAID)
@each("dtype", "dtype", exact=False)
def test_a_type_that_the_typestr_does_not_name_has_its_name_from(row, by, spelled, cuda):
    view = SAID[by](bytes_as(cuda, row["typestr"]), SPELLED[spelled](row["name"]))
    assert exported(view) == (row["code"], row["bits"], 1)


@pytest.mark.parametrize(
    "dtype", [None, np.dtype("V2"), "float16", "int16", "bfloat8", 7, object()]
)
@pytest.mark.parametrize("typestr", ["<V2", "|V1"])
def test_a_type_that_nobody_names_is_refused_and_not_guessed(typestr, dtype, cuda):
    x = bytes_as(cuda, typestr)
    if dtype is not None:
        typed(x, dtype)
    for call in (from_cai, to_dlpack):
        with pytest.raises(BufferError, match=r"^typestr: got .+; allowed: .+dtype='bfloat16'"):
            call(x)
    assert to_cai(x).__cuda_array_interface__["typestr"] == typestr, "as it came"


@pytest.mark.parametrize(("typestr", "name"), [("<V2", "float8_e5m2"), ("|V1", "bfloat16")])
def test_a_type_of_another_size_is_refused(typestr, name, cuda):
    x = bytes_as(cuda, typestr)
    size = 1 if name.startswith("float8") else 2
    with pytest.raises(BufferError, match=f'typestr: got .+{name}", whose itemsize is {size};'):
        from_cai(x, dtype=name)


@each("dtype", "dtype", exact=True)
def test_a_dtype_argument_has_to_agree_with_the_typestr(row, cuda):
    x = bytes_as(cuda, row["typestr"])
    for named in ({}, {"dtype": row["name"]}):
        assert exported(from_cai(x, **named)) == (row["code"], row["bits"], 1)
    other = "int8" if row["bits"] > 8 else "int16"
    with pytest.raises(ValueError, match=f'^dtype: got "{other}" for .+{row["name"]}; allowed: '):
        from_cai(x, dtype=other)


@each("dtype", "spelling")
def test_other_spellings_of_a_typestr_mean_the_same(row, cuda):
    x = bytes_as(cuda, row["typestr"])
    name = row.get("name") or row["dtype"]
    view = from_cai(x, dtype=row.get("dtype"))
    (wanted,) = (r for r in rows("dtype", "dtype") if r["name"] == name)
    assert exported(view) == (wanted["code"], wanted["bits"], 1)
    assert to_cai(view).typestr == wanted["typestr"]


@pytest.mark.parametrize("form", ["versioned", "legacy"])
@each("dtype", "refused")
def test_types_that_cai_cannot_express_are_refused(row, form, cuda):
    memory = cuda.array(shape=256, dtype="uint8")
    tensor = HandMade(memory.ptr, form=form, **{key: row[key] for key in ("code", "bits", "lanes")})
    capsule = tensor.capsule()
    error = ValueError if row["kind"] == "Lanes" else BufferError
    with pytest.raises(error, match=r"^dtype(\.lanes)?: got .+; allowed: "):
        to_cai(capsule)
    assert (capsules.name_of(capsule)[:4], tensor.deleted) == ("dlte", 0)


@pytest.mark.parametrize("lanes", [2, 4, 16, 65535])
@pytest.mark.parametrize(
    ("shape", "strides"),
    [((3,), (1,)), ((), ()), ((2, 3), (3, 1)), ((2, 3), (1, 2)), ((2,), (-1,))],
)
def test_lanes_become_a_trailing_dimension_and_come_back_as_lanes(lanes, shape, strides, cuda):
    x = cuda.array(shape=6 * lanes)
    at = x.ptr + (4 * lanes if strides == (-1,) else 0)
    tensor = HandMade(at, shape=shape, strides=strides, lanes=lanes)
    view = to_cai(tensor.capsule())
    assert view.shape == (*shape, lanes)
    assert view.strides == (*(stride * 4 * lanes for stride in strides), 4)
    assert (view.typestr, view.itemsize, view.ndim) == ("<f4", 4, len(shape) + 1)
    assert view.nbytes == 4 * lanes * int(np.prod(shape))
    made = view.__cuda_array_interface__
    compact = strides in ((), (1,), (3, 1))
    assert made["shape"] == view.shape
    assert made["strides"] == (None if compact else view.strides)
    back = capsules.read(from_cai(view).__dlpack__(max_version=(1, 0)))
    assert (back.dtype, back.shape, back.strides) == ((2, 32, lanes), shape, strides)
    flat = from_cai(OnlyCai(made, keep=view))
    assert exported(flat) == (2, 32, 1)
    assert flat.shape == view.shape


WITHOUT = """
    import sys
    for name in {absent!r}:
        sys.modules[name] = None
    from cai_bridge import to_cai
    from cai_bridge.testing import simulated_cuda
    said = []
    with simulated_cuda() as cuda:
        for name in ("float32", "bfloat16", "float8_e5m2"):
            view = to_cai(cuda.array(shape=2, dtype=name))
            said.append((view.typestr, view.itemsize))
            try:
                said.append(repr(view.dtype))
            except ImportError as error:
                said.append(error.name)
    assert said[::2] == [("<f4", 4), ("<V2", 2), ("|V1", 1)]
    assert said[1::2] == {said!r}, said
"""


@pytest.mark.parametrize(
    ("absent", "said"),
    [
        ([], ["dtype('float32')", "dtype(bfloat16)", "dtype(float8_e5m2)"]),
        (["ml_dtypes"], ["dtype('float32')", "dtype('V2')", "dtype('V1')"]),
        (["numpy", "ml_dtypes"], ["numpy"] * 3),
    ],
    ids=str,
)
def test_without_those_modules_everything_else_works(absent, said):
    assert_quiet(WITHOUT.format(absent=absent, said=said), prelude="")
