"""Element types: DLPack's codes, typestrs and names, both ways; rows in tests/data/dtype.toml."""

import subprocess
import sys
import textwrap

import capsules
import ml_dtypes
import numpy as np
import pytest
import tables
from capsules import HandMade
from contract import each, rows
from fakes import OnlyCai, interface, only_cai

from cai_bridge import from_cai, to_cai, to_dlpack

EVERY = each("dtype", "dtype")
OPAQUE = each("dtype", "dtype", exact=False)
FORMS = ["versioned", "legacy", "1.0", "1.1", "1.2"]


def fields(row):
    return {"code": row["code"], "bits": row["bits"]}


def exported(view):
    """The element type in a capsule of the view."""
    return capsules.read(view.__dlpack__(max_version=(1, 3), stream=-1)).dtype


def bytes_as(cuda, typestr):
    """64 bytes, as four items of a typestr."""
    return only_cai(cuda.array(shape=64, dtype="uint8"), typestr=typestr)


class Printed:
    """An element type that only prints its name, as torch's do."""

    def __init__(self, text):
        self._text = text

    def __repr__(self):
        return self._text


class Named:
    """An element type with a `name`, as NumPy's."""

    def __init__(self, name):
        self.name = name


def typed(producer, dtype):
    """The producer with a `dtype`, which is no protocol."""
    producer.dtype = dtype
    return producer


@pytest.mark.parametrize("form", FORMS)
@EVERY
def test_dlpacks_code_becomes_the_typestr(row, form, cuda):
    x = cuda.array(shape=64, dtype="uint8")
    view = to_cai(HandMade(x.ptr, form=form, **fields(row)).capsule())
    assert view.__cuda_array_interface__["typestr"] == view.typestr == row["typestr"]
    assert view.itemsize == row["bits"] // 8
    assert view.nbytes == 4 * view.itemsize


@each("dtype", "dtype", exact=True)
def test_the_typestr_becomes_dlpacks_code(row, cuda):
    x = cuda.array(shape=64, dtype="uint8")
    view = from_cai(OnlyCai(interface(x, typestr=row["typestr"])))
    assert exported(view) == (row["code"], row["bits"], 1)


@pytest.mark.parametrize("speaks", ["exchange", "dlpack", "dlpack-legacy", "dlpack-bare"])
@EVERY
def test_the_exact_type_survives_the_way_there_and_back(row, speaks, cuda):
    x = cuda.array(shape=4, dtype=row["name"], speaks=speaks)
    view = from_cai(to_cai(x))
    assert exported(view) == (row["code"], row["bits"], 1)
    assert view.typestr == row["typestr"]
    taken = tables.managed(view)
    assert taken.fields.dtype == tables.borrowed(view).dtype == (row["code"], row["bits"], 1)
    taken.delete()


@EVERY
def test_the_exact_type_survives_the_other_way_round(row, cuda):
    x = cuda.array(shape=4, dtype=row["name"], speaks="cai")
    view = from_cai(x)
    assert exported(view) == exported(from_cai(to_cai(view))) == (row["code"], row["bits"], 1)


@EVERY
def test_values_of_every_type_are_seen_through_both_views(row, cuda):
    values = [True, False] if row["name"] == "bool" else [1, 2]
    there = to_cai(cuda.array(values, dtype=row["name"], speaks="dlpack"))
    back = from_cai(cuda.array(values, dtype=row["name"], speaks="cai"))
    assert cuda.read(there) == cuda.read(back) == values


# --- types that the typestr does not name ---------------------------------------------------------

NAMES = {
    "a string": str,
    "torch's": lambda name: Printed(f"torch.{name}"),
    "printed": Printed,
    "named": Named,
    "ml_dtypes'": lambda name: np.dtype(getattr(ml_dtypes, name)),
    "a dotted string": lambda name: f"some.library.{name}",
}


@pytest.mark.parametrize("spelled", NAMES)
@OPAQUE
def test_the_dtype_of_the_object_names_the_type(row, spelled, cuda):
    x = bytes_as(cuda, row["typestr"])
    view = from_cai(typed(x, NAMES[spelled](row["name"])))
    assert exported(view) == (row["code"], row["bits"], 1)


SPELLED = {**NAMES, "a scalar type": lambda name: getattr(ml_dtypes, name)}


@pytest.mark.parametrize("spelled", SPELLED)
@OPAQUE
def test_the_dtype_argument_names_the_type(row, spelled, cuda):
    x = bytes_as(cuda, row["typestr"])
    view = from_cai(x, dtype=SPELLED[spelled](row["name"]))
    assert exported(view) == (row["code"], row["bits"], 1)


@OPAQUE
def test_the_dtype_argument_is_believed_before_the_object(row, cuda):
    x = bytes_as(cuda, row["typestr"])
    view = from_cai(typed(x, np.dtype("V2")), dtype=row["name"])
    assert exported(view) == (row["code"], row["bits"], 1)


@OPAQUE
def test_the_owner_of_a_dict_names_the_type(row, cuda):
    x = cuda.array(shape=64, dtype="uint8")
    view = from_cai(interface(x, typestr=row["typestr"]), owner=typed(Named("x"), row["name"]))
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
    assert exported(from_cai(x, dtype=row["name"]))[0] == row["code"]
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
    fields = {key: row[key] for key in ("code", "bits", "lanes")}
    tensor = HandMade(memory.ptr, form=form, **fields)
    capsule = tensor.capsule()
    error = ValueError if row["kind"] == "Lanes" else BufferError
    with pytest.raises(error, match=r"^dtype(\.lanes)?: got .+; allowed: "):
        to_cai(capsule)
    assert (capsules.name_of(capsule)[:4], tensor.deleted) == ("dlte", 0)


# --- lanes ----------------------------------------------------------------------------------------


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


# --- view.dtype -----------------------------------------------------------------------------------


@EVERY
def test_the_dtype_of_a_view_is_numpys_or_ml_dtypes(row, cuda):
    view = to_cai(cuda.array(shape=4, dtype=row["name"]))
    wanted = np.dtype(row["name"] if row["exact"] else getattr(ml_dtypes, row["name"]))
    assert isinstance(view.dtype, np.dtype)
    assert view.dtype == from_cai(view).dtype == wanted


CHILD = """
    import sys
    for name in {absent!r}:
        sys.modules[name] = None
    from cai_bridge import to_cai
    from cai_bridge.testing import simulated_cuda
    with simulated_cuda() as cuda:
        for name in ("float32", "bfloat16", "float8_e5m2"):
            view = to_cai(cuda.array(shape=2, dtype=name))
            try:
                print(view.typestr, view.itemsize, repr(view.dtype))
            except ImportError as error:
                print(view.typestr, view.itemsize, type(error).__name__, error.name)
"""


@pytest.mark.parametrize(
    ("absent", "said"),
    [
        ([], ["dtype('float32')", "dtype(bfloat16)", "dtype(float8_e5m2)"]),
        (["ml_dtypes"], ["dtype('float32')", "dtype('V2')", "dtype('V1')"]),
        (["numpy", "ml_dtypes"], ["ModuleNotFoundError numpy"] * 3),
    ],
    ids=str,
)
def test_without_those_modules_everything_else_works(absent, said):
    program = textwrap.dedent(CHILD.format(absent=absent))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.stderr, done.returncode) == ("", 0)
    wanted = zip(["<f4 4", "<V2 2", "|V1 1"], said, strict=True)
    assert done.stdout.splitlines() == [" ".join(pair) for pair in wanted]
