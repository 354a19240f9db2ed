"""Arrays of the simulated device: what they speak, hold and free."""

import math

import pytest
from contract import rows
from found import kinds

from cai_bridge.testing import SimulatedArray
from cai_bridge.testing._values import DTYPES

pytestmark = pytest.mark.unchecked
DLPACK = ["dlpack", "dlpack-legacy", "dlpack-strict", "dlpack-bare"]
CAI = ["cai0", "cai1", "cai2", "cai3"]
DUNDERS = {
    "exchange": {"__dlpack_c_exchange_api__"},
    **{name: {"__dlpack__", "__dlpack_device__"} for name in DLPACK},
    **{name: {"__cuda_array_interface__"} for name in CAI},
}


@pytest.mark.parametrize(
    "speaks", [*DUNDERS, ("exchange", "dlpack"), ("exchange", "dlpack", "cai"), ("cai2", "dlpack")]
)
def test_a_type_has_the_dunders_that_were_asked_for_and_no_other(cuda, speaks):
    names = [speaks] if isinstance(speaks, str) else speaks
    wanted = set().union(*(DUNDERS["cai3" if name == "cai" else name] for name in names))
    x = cuda.array([1.0], speaks=speaks)
    assert {name for name in set().union(*DUNDERS.values()) if hasattr(type(x), name)} == wanted
    assert isinstance(x, SimulatedArray)
    assert type(x) is type(cuda.array([1.0], speaks=speaks))
    assert x.tolist() == [1.0]


def test_the_element_types_are_those_of_the_contract():
    said = [(row["name"], row["typestr"]) for row in rows("dtype", "dtype")]
    assert [(d.name, d.typestr) for d in DTYPES.values()] == said


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_every_element_type_come_back(cuda, dtype):
    values = {
        "bool": [True, False],
        "complex": [1 + 2j, -3.5j],
        "float": [1.5, -2.0],
        "bfloat": [1.5, -2.0],
    }.get(dtype.rstrip("0123456789"), [1, 127])
    x = cuda.array(values, dtype=dtype)
    assert x.tolist() == values
    assert [type(value) for value in x.tolist()] == [type(value) for value in values]
    assert (x.dtype.name, str(x.dtype)) == (dtype, dtype)
    assert x.nbytes == 2 * x.itemsize


def test_bfloat16_rounds_to_the_nearest(cuda):
    x = cuda.array([1.00390625, 1.01171875, math.inf, math.nan], dtype="bfloat16")
    assert x.tolist()[:3] == [1.0, 1.015625, math.inf]
    assert math.isnan(x.tolist()[3])


LAYOUTS = {
    "C": {"shape": (2, 3)},
    "F": {"shape": (2, 3), "strides": "F"},
    "gaps": {"shape": (2, 3), "strides": (40, 8)},
    "negative": {"shape": (2, 3), "strides": (-12, -4)},
    "offset": {"shape": (2, 3), "offset": 64},
    "scalar": {"shape": ()},
    "empty": {"shape": (0, 3)},
}
KINDS = ["dlpack", "dlpack-legacy-capsule", "dlpack-exchange", "dlpack-borrowed", "cai-waits"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_of_every_layout_come_back_by_every_protocol(cuda, layout):
    given = LAYOUTS[layout]
    values = {"scalar": 1.0, "empty": []}.get(layout, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    x = cuda.array(values, speaks=("exchange", "dlpack", "cai"), **given)
    assert x.tolist() == values
    assert (x.shape, x.ndim, x.size) == (given["shape"], len(given["shape"]), math.prod(x.shape))
    seen = [cuda.consumer(kind).read(x) for kind in KINDS]
    cuda.synchronize()
    assert [pending.value for pending in seen] == [values] * len(KINDS)
    assert layout != "empty" or x.__cuda_array_interface__["data"] == (0, False)
    assert kinds(cuda) == []


def test_items_that_overlap_no_bytes_never_race(cuda):
    x = cuda.array(shape=8, fill=0.0, name="x")
    even = {"shape": (4,), "typestr": "<f4", "data": (x.ptr, False), "strides": (8,), "version": 3}
    odd = dict(even, data=(x.ptr + 4, False))
    p, c = cuda.stream("p"), cuda.stream("c")
    stubs = [type("Stub", (), {"__cuda_array_interface__": made})() for made in (even, odd)]
    p.fill(stubs[0], 1.0)
    c.fill(stubs[1], 2.0)
    assert kinds(cuda) == []
    c.fill(stubs[0], 3.0)
    assert kinds(cuda) == ["race"]


@pytest.mark.parametrize(
    ("message", "given"),
    [
        ("dtype", {"data": [1.0], "dtype": "float128"}),
        ("data", {"data": [[1.0], [1.0, 2.0]]}),
        ("fill", {"data": [1.0], "fill": 1.0}),
        ("shape", {}),
        ("data", {"data": [1.0, 2.0], "shape": (3,)}),
        ("memory", {"data": [1.0], "memory": "host"}),
        *(
            ("speaks", {"data": [1.0], "speaks": speaks})
            for speaks in ("numpy", ("cai", "cai2"), ("dlpack", "dlpack-bare"))
        ),
    ],
)
def test_an_argument_that_does_not_fit_is_named(cuda, given, message):
    with pytest.raises(ValueError, match=message):
        cuda.array(**given)


def test_the_pending_stream_is_that_of_the_last_write(cuda):
    p, q = cuda.stream("p"), cuda.stream("q")
    y = cuda.array([1, 2, 3, 4], shape=(2, 2), dtype="int32", stream=p)
    assert (y.stream, cuda.pending) == (p, 1)
    x = cuda.array([1.0], speaks="cai")
    assert x.__cuda_array_interface__["stream"] is None
    p.fill(x, 1.0)
    assert x.__cuda_array_interface__["stream"] == p.handle
    p.synchronize()
    assert y.tolist() == [[1, 2], [3, 4]], "flat data is spread over the shape"
    cuda.launch(q, writes=[x])
    assert x.__cuda_array_interface__["stream"] == q.handle
    p.read(x)
    assert x.stream is q


@pytest.mark.parametrize("version", range(4))
def test_a_dict_is_what_its_version_has(cuda, version):
    x = cuda.array([[1.0, 2.0]], speaks=f"cai{version}", stream=cuda.stream("p"), readonly=True)
    expected = {
        "shape": (1, 2), "typestr": "<f4", "data": (x.ptr, True), "version": version,
        "strides": (8, 4) if version < 2 else None,
    }  # fmt: skip
    if version == 3:
        expected["stream"] = x.stream.handle
    assert x.__cuda_array_interface__ == expected
