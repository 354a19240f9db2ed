"""Shape, strides, offsets and pointers, both ways. The rows are tests/data/layout.toml."""

import math

import capsules
import pytest
import tables
from capsules import HandMade
from contract import rows
from fakes import OnlyCai
from specification import as_producer

from cai_bridge import from_cai, to_cai, to_dlpack

TYPESTR = {1: "|u1", 2: "<u2", 4: "<u4", 8: "<u8"}
ALL = rows("layout", "layout")
for ndim in (4, 5, 6, 7, 8, 32, 64):
    shape = [2 if axis < 6 else 1 for axis in range(ndim)]
    for gap in (1, 2):
        elements = [gap * math.prod(shape[axis + 1 :]) for axis in range(ndim)]
        said = {"shape": shape, "itemsize": 4, "bytes": [4 * one for one in elements]}
        size = math.prod(shape)
        ALL.append({**said, "elements": elements, "size": size, "contiguous": gap == 1})
FORMS = ["versioned", "legacy", "1.0", "1.1", "1.2", "1.9"]


def taken(*without):
    chosen = [row for row in ALL if not {"kind", *without} & set(row)]
    ids = lambda row: f"{row['shape']} {row.get('bytes', '')} of {row['itemsize']}"  # noqa: E731
    return pytest.mark.parametrize("row", chosen, ids=ids)


TAKEN, TAKEN_BY_DICT = taken(), taken("given")
REFUSED = pytest.mark.parametrize(
    "row", [row for row in ALL if "kind" in row], ids=lambda row: f"{row['kind']}-{row['shape']}"
)


def memory(cuda):
    """An address with room on both sides for every row."""
    x = cuda.array(shape=16384, dtype="uint8", speaks=())
    return x, x.ptr + 8192


def strides_of(row):
    return tuple(row["bytes"]) if "bytes" in row else None


def dict_of(row, ptr):
    made = {"shape": tuple(row["shape"]), "typestr": TYPESTR[row["itemsize"]]}
    return {**made, "data": (ptr, False), "strides": strides_of(row), "version": 3}


def tensor_of(row, ptr, **more):
    strides = tuple(row.get("given", row.get("elements", ())))
    fields = {"shape": tuple(row["shape"]), "strides": strides, "bits": 8 * row["itemsize"]}
    return HandMade(ptr, code=1, **fields, **more)


@TAKEN_BY_DICT
def test_strides_of_a_dict_become_elements_and_are_always_explicit(row, cuda):
    x, ptr = memory(cuda)
    view = from_cai(dict_of(row, ptr), owner=x)
    seen = [capsules.read(view.__dlpack__(max_version=version)) for version in (None, (1, 3))]
    managed = tables.managed(view)
    for said in (*seen, managed.fields, tables.borrowed(view)):
        assert said.shape == tuple(row["shape"])
        assert said.strides == tuple(row["elements"])
        assert said.byte_offset == 0
        assert said.ptr == (ptr if row["size"] else 0)
    managed.delete()
    there = to_cai(view).__cuda_array_interface__
    assert there["strides"] == (None if row["contiguous"] else strides_of(row))


@pytest.mark.parametrize("form", FORMS)
@TAKEN
def test_elements_become_bytes_or_none_where_they_are_compact(row, form, cuda):
    x, ptr = memory(cuda)
    view = to_cai(tensor_of(row, ptr, form=form).capsule())
    made = view.__cuda_array_interface__
    in_bytes = tuple(stride * row["itemsize"] for stride in row["elements"])
    assert made["shape"] == view.shape == tuple(row["shape"])
    assert made["strides"] == (None if row["contiguous"] else in_bytes)
    assert made["data"] == (ptr if row["size"] else 0, False)
    assert view.strides == in_bytes
    assert (view.size, view.ndim) == (row["size"], len(row["shape"]))
    assert view.nbytes == row["size"] * row["itemsize"]
    back = capsules.read(from_cai(view).__dlpack__(max_version=(1, 0)))
    assert (back.shape, back.strides) == (tuple(row["shape"]), tuple(row["elements"]))
    del x


@REFUSED
def test_a_layout_that_cannot_be_is_refused_by_both_doors(row, cuda):
    x, ptr = memory(cuda)
    error = BufferError if row["kind"] == "StrideNotMultiple" else ValueError
    # to_cai hands strides that are no multiples on as they came.
    other = to_dlpack if row["kind"] == "StrideNotMultiple" else to_cai
    for call in (to_cai,) if "given" in row else (from_cai, other):
        tensor = "given" in row and tensor_of(row, ptr).capsule()
        array = tensor or OnlyCai(dict_of(row, ptr), keep=x)
        with pytest.raises(error, match=r"^(shape|strides|ndim)(\[\d\])?: got .+; allowed: "):
            call(array)


@pytest.mark.parametrize("offset", [4, 4096])
@pytest.mark.parametrize("form", ["versioned", "legacy"])
def test_a_byte_offset_is_added_on_import_and_is_0_on_export(form, offset, cuda):
    _x, ptr = memory(cuda)
    view = to_cai(HandMade(ptr, form=form, byte_offset=offset).capsule())
    assert view.ptr == view.__cuda_array_interface__["data"][0] == ptr + offset
    said = capsules.read(from_cai(view).__dlpack__())
    assert (said.ptr, said.byte_offset) == (ptr + offset, 0)


@as_producer("data-zero-size")
@pytest.mark.parametrize("ptr", [0, 4096, 2**63])
@pytest.mark.parametrize("offset", [0, 64])
@pytest.mark.parametrize("form", ["versioned", "legacy"])
def test_without_elements_the_pointer_is_0_whatever_it_was(form, offset, ptr, cuda):
    view = to_cai(HandMade(ptr, form=form, shape=(0, 3), byte_offset=offset).capsule())
    made = view.__cuda_array_interface__
    assert (made["data"], made["strides"], made["stream"]) == ((0, False), None, None)
    assert (view.size, view.nbytes, view.ptr) == (0, 0, 0)
    said = capsules.read(from_cai(view).__dlpack__(max_version=(1, 0)))
    assert (said.ptr, said.shape, said.strides) == (0, (0, 3), (3, 1))


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("ptr", [0, 4096])
@pytest.mark.parametrize("stream", [None, -1, 1, 2, "own"])
def test_without_elements_nothing_waits_and_nothing_is_pending(stream, ptr, version, cuda):
    own = cuda.stream()
    stream = own.handle if stream == "own" else stream
    made = {"shape": (0,), "typestr": "<f4", "data": (ptr, False), "version": version}
    cuda.clear_calls()
    view = from_cai(made, owner=object(), stream=stream)
    assert (view.ptr, view.stream, view.device) == (0, None, (2, 0))
    view.__dlpack__(stream=1)
    made = {call.call for call in cuda.calls}
    assert not made & {"cuEventRecord", "cuStreamWaitEvent", "cuStreamIsCapturing"}
    # A pointer that it has nevertheless says where it is.
    assert ("cuPointerGetAttributes" in made) == (ptr != 0)
    del own


@pytest.mark.parametrize(
    ("device", "said"),
    [(None, (2, 1)), (0, (2, 0)), (1, (2, 1)), ((3, 0), (3, 0)), ((13, 0), (13, 0))],
)
def test_the_device_of_an_array_without_elements_is_the_callers_or_the_current(device, said, cuda):
    cuda.set_device(1)
    made = {"shape": (0,), "typestr": "<f4", "data": (0, False), "version": 3}
    view = from_cai(made, owner=object(), device=device)
    assert view.device == view.__dlpack_device__() == said
    assert capsules.read(view.__dlpack__()).device == said
