"""What `describe` says of arrays by each of their protocols, and that they stay as they are."""

import json
import sys

import capsules
import ml_dtypes
import numpy as np
import pytest
import tables
from capsules import HandMade
from contract import each
from fakes import DLPackPair, OnlyCai, OnlyDLPack, interface, only_cai, torch_like

from cai_bridge.testing import describe
from cai_bridge.testing._kit.dtypes import dlpack_name, is_opaque, typestr_name, typestr_of

METHODS = ["dlpack", "dlpack-legacy", "dlpack-strict", "dlpack-bare"]
DICTS = ["cai0", "cai1", "cai2", "cai3"]
EVERY_MIX = [
    tuple(one for one in (table, method, interface) if one)
    for table in ("exchange", None)
    for method in (*METHODS, None)
    for interface in (*DICTS, None)
][:-1]
ORDERS = ("cuEventRecord", "cuStreamWaitEvent", "cuStreamSynchronize", "cuModuleUnload")
DOOR = {"exchange": "exchange API", "dlpack": "__dlpack__", "cai": "CAI"}


def door_of(speaks):
    return DOOR[speaks.rstrip("0123").partition("-")[0]]


def orders(cuda):
    return [one.call for one in cuda.calls if one.call in ORDERS]


@pytest.mark.parametrize("speaks", EVERY_MIX, ids="+".join)
@pytest.mark.parametrize("strides", ["C", "F"])
def test_every_door_says_the_arrays_own_fields(speaks, strides, cuda):
    x = cuda.array(shape=(2, 3), dtype="float16", strides=strides, speaks=speaks, readonly=False)
    description = describe(x)
    assert set(description.doors) == {door_of(one) for one in speaks}
    assert description.kind == type(x).__name__
    for said in description:
        assert (said.error, said.problems) == (None, ())
        assert (said.ptr, said.shape, said.strides) == (x.ptr, x.shape, x.strides)
        assert (said.dtype, said.typestr, said.itemsize) == ("float16", "<f2", 2)
        assert said.device == (None if said.door == "CAI" else x.device)
        assert said.readonly is (None if said.version == "legacy" else False)
        assert not said.masked


@pytest.mark.parametrize("speaks", EVERY_MIX, ids="+".join)
def test_nothing_is_ordered_exported_or_kept(speaks, cuda):
    stream = cuda.stream()
    x = cuda.array([1.0, 2.0], speaks=speaks, stream=stream)
    stream.fill(x, 3.0)
    held = sys.getrefcount(x)
    cuda.clear_calls()
    with cuda.current_stream(stream):
        description = describe(x)
    assert (x.exports, sys.getrefcount(x)) == (0, held)
    # The one wait that cannot be left out: these two take no -1.
    if not {"dlpack-strict", "dlpack-bare"} & set(speaks):
        assert orders(cuda) == []
    else:
        assert any("legacy default stream" in note for note in description["__dlpack__"].notes)
    assert x.stream is stream
    stream.synchronize()
    assert x.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("speaks", ["exchange", "dlpack", "cai"])
def test_read_only_arrays_and_those_without_items_are_told_as_they_are_said(speaks, cuda):
    (said,) = describe(cuda.array(shape=(0, 3), speaks=speaks, readonly=True))
    assert (said.ptr, said.shape, said.strides, said.size) == (0, (0, 3), (12, 4), 0)
    assert (said.problems, said.readonly) == ((), True)


@pytest.mark.parametrize("version", range(4))
def test_a_dicts_version_and_stream_are_told(version, cuda):
    stream = cuda.stream()
    x = cuda.array([1.0], speaks=f"cai{version}")
    idle = describe(x)["CAI"]
    assert (idle.version, idle.stream) == (str(version), None if version == 3 else "unsaid")
    stream.fill(x, 1.0)
    assert describe(x)["CAI"].stream == (stream.handle if version == 3 else "unsaid")
    stream.synchronize()
    # That there is none is not too much in an older dict.
    with_none = {**x.__cuda_array_interface__, "stream": None}
    assert describe(OnlyCai(with_none))["CAI"].notes == ()
    cuda.synchronize()


def test_a_dict_is_read_once_and_a_method_asked_as_little_as_it_can_be(cuda):
    x = cuda.array([1.0], speaks="dlpack")
    cai = only_cai(x)
    describe(cai)
    assert cai.reads == 1
    method = DLPackPair(x.__dlpack__)
    assert describe(method)["__dlpack__"].notes == ("stream: asked with -1, for no order",)
    assert method.asked == [{"stream": -1, "max_version": (1, 3)}]


def refuses(error, *streams):
    def answer(**wishes):
        if wishes.get("stream") in streams:
            raise error("not that one")
        return HandMade(4096).capsule()

    return DLPackPair(answer)


def test_a_producer_that_refuses_minus_one_is_asked_for_the_legacy_stream():
    producer = refuses(RuntimeError, -1)
    (said,) = describe(producer)
    assert [asked["stream"] for asked in producer.asked] == [-1, 1]
    assert (said.stream, said.error) == (None, None)
    assert "asked with 1" in said.notes[0]


def test_a_refusal_of_the_array_is_not_asked_for_again():
    producer = refuses(BufferError, -1)
    assert describe(producer)["__dlpack__"].error == "BufferError: not that one"
    assert len(producer.asked) == 1
    both = refuses(RuntimeError, -1, 1)
    assert describe(both)["__dlpack__"].error == "RuntimeError: not that one"


@pytest.mark.parametrize("form", ["versioned", "legacy", "1.1"])
def test_a_capsule_is_read_and_stays_usable(form):
    tensor = HandMade(4096, form=form, byte_offset=8, shape=(2, 3))
    capsule = tensor.capsule()
    name = capsules.name_of(capsule)
    (said,) = describe(capsule)
    assert (said.door, said.ptr, said.shape, said.strides) == ("capsule", 4104, (2, 3), (12, 4))
    assert said.version == {"versioned": "1.3"}.get(form, form)
    assert (capsules.name_of(capsule), tensor.deleted) == (name, 0)
    taken = capsules.take(capsule)
    # What it says by now is its consumer's, and may be gone.
    assert "used_dltensor" in describe(capsule)["capsule"].error
    taken.delete()


def test_null_strides_are_those_of_c_order_before_1_2_and_malformed_after():
    for form, wrong in (("legacy", 0), ("1.1", 0), ("1.2", 1), ("versioned", 1)):
        (said,) = describe(HandMade(4096, form=form, shape=(2, 3), null=["strides"]).capsule())
        assert (said.strides, len(said.problems)) == ((12, 4), wrong)


def test_lanes_are_a_last_dimension_and_narrow_types_keep_their_bundle():
    (said,) = describe(HandMade(4096, shape=(3,), strides=(2,), lanes=4).capsule())
    assert (said.shape, said.strides, said.itemsize) == ((3, 4), (32, 4), 4)
    (said,) = describe(HandMade(4096, shape=(3,), dtype=(17, 4, 2)).capsule())
    assert (said.shape, said.strides, said.itemsize) == ((3,), (1,), 1)
    assert said.dtype == "float4_e2m1fn_x2"
    (said,) = describe(HandMade(4096, shape=(3,), dtype=(17, 4, 1)).capsule())
    assert (said.strides, said.itemsize, said.dtype) == (None, None, "float4_e2m1fn")
    padded = HandMade(4096, shape=(3,), dtype=(15, 6, 1), flags=capsules.IS_SUBBYTE_TYPE_PADDED)
    (said,) = describe(padded.capsule())
    assert (said.strides, said.itemsize, said.problems) == ((1,), 1, ())


HOSTILE = [
    ({"ndim": -1}, "ndim: got -1;"),
    ({"ndim": 2**31 - 1}, "ndim: got 2147483647;"),
    ({"null": ["shape"]}, "shape: got NULL;"),
    ({"null": ["data"]}, "data: got NULL;"),
    ({"shape": (-4,)}, "shape[0]: got -4;"),
    ({"dtype": (2, 0, 1)}, "dtype: got (code=2, bits=0, lanes=1);"),
]


@pytest.mark.parametrize(("fields", "problem"), HOSTILE, ids=lambda value: str(value)[:30])
def test_a_malformed_tensor_is_shown_with_what_is_wrong(fields, problem):
    (said,) = describe(HandMade(4096, **fields).capsule())
    assert said.device == (2, 0)
    assert [one[: len(problem)] for one in said.problems] == [problem]


def test_another_major_version_is_an_error():
    (said,) = describe(HandMade(4096, form="2.0").capsule())
    assert said.error == "BufferError: version: got 2.0; allowed: 1.x"


@each("refusals", "cai")
def test_a_malformed_dict_never_raises(row, cuda):
    made = interface(cuda.array(shape=4))
    made.update({k: tuple(v) if isinstance(v, list) else v for k, v in row.get("set", {}).items()})
    made.update({key: eval(text) for key, text in row.get("python", {}).items()})
    for key in row.get("unset", ()):
        del made[key]
    before = dict(made)
    (said,) = describe(made)
    assert said.error is None
    assert made == before
    json.dumps(describe(made).to_dict())
    assert str(describe(OnlyCai(made)))


WRONG = [
    ("version", 4, "version: got 4; allowed: an integer from 0 to 3"),
    ("version", True, "version: got True; allowed: "),
    ("shape", [4], "shape: got [4]; allowed: a tuple"),
    ("shape", (4, "4"), "shape[1]: got '4'; allowed: "),
    ("shape", (-4,), "shape[0]: got -4; allowed: 0 and more"),
    ("shape", (1,) * 65, "shape: got 65; allowed: 64"),
    ("data", 4096, "data: got 4096; allowed: a tuple"),
    ("data", [4096, False], "data: got [4096, False]; allowed: "),
    ("data", (4096, 1), "data[1]: got 1; allowed: a bool"),
    ("data", (-1, False), "data[0]: got -1; allowed: "),
    ("typestr", 4, "typestr: got 4; allowed: a str"),
    ("typestr", "f4", "typestr: got 'f4'; allowed: "),
    ("strides", (4, 4), "strides: got (4, 4); allowed: 1, one a dimension"),
    ("strides", [4], "strides: got [4]; allowed: a tuple"),
    ("stream", -1, "stream: got -1; allowed: "),
    ("stream", True, "stream: got True; allowed: "),
    ("stream", "one", "stream: got 'one'; allowed: "),
    ("shape", (2**63,), "shape[0]: got 9223372036854775808; allowed: 0 and more, in 64 bits"),
    ("strides", (-(2**63) - 1,), "strides[0]: got -9223372036854775809; allowed: bytes, in 64"),
    ("typestr", "<f3", "typestr: got '<f3'; allowed: "),
    ("descr", 5, "descr: got 5; allowed: a list of tuples"),
    ("mask", 3, "mask: got 3; allowed: None, or an object with __cuda_array_interface__"),
]


@pytest.mark.parametrize(("key", "value", "problem"), WRONG, ids=lambda value: str(value)[:30])
def test_what_is_wrong_with_a_dict_is_named_and_the_rest_is_read(key, value, problem, cuda):
    x = cuda.array(shape=4)
    (said,) = describe(interface(x, **{key: value}))
    assert [one[: len(problem)] for one in said.problems] == [problem]
    assert said.readonly is False or key == "data"
    assert said.ptr == x.ptr or key == "data"
    assert said.dtype == "float32" or key == "typestr"


def test_a_mask_is_told_and_not_looked_at(cuda):
    mask = OnlyCai(RuntimeError("not to be read"))
    assert describe(interface(cuda.array(shape=4), mask=mask))["CAI"].masked
    assert mask.reads == 0


class Bad:
    """Raises whatever it is asked."""

    def __getattribute__(self, name):
        if name in {"__class__", "__dict__"}:
            return object.__getattribute__(self, name)
        raise RuntimeError("no")

    def __index__(self):
        raise RuntimeError("no")

    __len__ = __iter__ = __repr__ = __str__ = __bool__ = __eq__ = __index__
    __hash__ = object.__hash__


@pytest.mark.parametrize("key", ["shape", "typestr", "data", "version", "strides", "stream"])
@pytest.mark.parametrize("inside", [False, True])
def test_values_that_raise_whatever_they_are_asked_do_not_matter(key, inside, cuda):
    value = (Bad(), Bad()) if inside else Bad()
    (said,) = describe(interface(cuda.array(shape=4), **{key: value}))
    assert said.error is None
    assert any(problem.startswith(key) for problem in said.problems)


def test_an_object_that_raises_whatever_it_is_asked_is_told():
    errors = {said.door: said.error for said in describe(Bad())}
    assert errors == {"CAI": "RuntimeError: no", "__dlpack__": "RuntimeError: no"}


class Wordless(Exception):
    def __str__(self):
        raise RuntimeError


def test_what_a_producer_raises_is_told(cuda):
    x = torch_like(cuda.array([1.0], speaks="dlpack"))
    assert describe(OnlyCai(Wordless()))["CAI"].error.startswith("Wordless: (")
    assert describe(OnlyCai(4))["CAI"].error == ("__cuda_array_interface__: got 4; allowed: a dict")
    assert describe(OnlyDLPack(lambda **_: 4))["__dlpack__"].error.startswith("capsule: got 4;")
    alone = describe(OnlyDLPack(x.__dlpack__))["__dlpack__"]
    assert alone.problems[0].startswith("__dlpack_device__: got AttributeError")
    other = describe(DLPackPair(x.__dlpack__, device=(2, 1)))["__dlpack__"]
    assert other.problems == ("__dlpack_device__: got (2, 1); allowed: (2, 0), as in the capsule",)
    odd = describe(DLPackPair(x.__dlpack__, device=4))["__dlpack__"]
    assert odd.problems == ("__dlpack_device__: got 4; allowed: (device_type, device_id)",)


def test_a_table_that_breaks_its_contract_is_told():
    failing = tables.speaker(tables.table(None, allocate=4096, to_object=4096))
    (said,) = describe(failing())
    assert "got -1 without an exception" in said.error
    silent = tables.table(lambda _: HandMade(4096), work_on=None, to_object=4096)
    (said,) = describe(tables.speaker(silent)())
    assert said.stream == "unsaid"
    assert said.problems[0] == "managed_tensor_allocator: got NULL; allowed: a function"
    assert said.problems[1].startswith("current_work_stream: got SilentError: ")


@pytest.mark.parametrize("x", [None, 4, object(), [1.0]], ids=["None", "int", "object", "list"])
def test_what_speaks_nothing_is_refused_with_what_was_looked_for(x):
    with pytest.raises(TypeError, match=r"^x: got \w+; allowed: .*__cuda_array_interface__"):
        describe(x)


@pytest.mark.parametrize("dtype", ["float32", "bool", "complex128", "int8"])
def test_numpys_arrays(dtype):
    x = np.zeros((2, 3), dtype)[::-1, 1:]
    (said,) = describe(x)
    assert (said.ptr, said.shape, said.strides) == (x.ctypes.data, x.shape, x.strides)
    assert (said.dtype, said.typestr) == (dtype, x.dtype.str)
    assert (said.device, said.stream, said.error, said.notes) == ((1, 0), None, None, ())


@each("dtype", "dtype")
def test_every_type_of_the_contract_has_its_names(row):
    assert dlpack_name(row["code"], row["bits"]) == row["name"]
    assert typestr_of(row["name"]) == row["typestr"]
    assert is_opaque(row["typestr"]) is not row["exact"]
    named = getattr(ml_dtypes, row["name"], None) or np.dtype(row["name"])
    assert typestr_name(row["typestr"], np.dtype(named)) == row["name"]
    alone = typestr_name(row["typestr"])
    assert alone == (row["name"] if row["exact"] else row["typestr"])


@each("dtype", "spelling")
def test_other_spellings_are_the_same_types(row):
    if "dtype" in row:
        assert typestr_name(row["typestr"]) == row["typestr"]
        assert typestr_name(row["typestr"], f"torch.{row['dtype']}") == row["dtype"]
    else:
        assert typestr_name(row["typestr"]) == row["name"]


@pytest.mark.parametrize("dtype", ["float32", "float8_e5m2", "wrong", None, 4])
def test_a_dtype_that_does_not_fit_the_typestr_names_nothing(dtype):
    assert typestr_name("<V2", dtype) == "<V2"


def test_types_that_only_dlpack_has_keep_its_names():
    assert [dlpack_name(*one) for one in ((0, 4), (1, 1), (15, 6), (16, 6), (6, 1))] == [
        *("int4", "uint1", "float6_e2m3fn", "float6_e3m2fn", "bool1")
    ]
    assert [dlpack_name(*one) for one in ((7, 16), (17, 8), (18, 8), (2, 0))] == [None] * 4


@pytest.mark.parametrize("typestr", [">f4", "<f16", "|S4", "<U4", "|O", "<M8[ns]", "|V8"])
def test_types_that_cannot_be_bridged_are_described_all_the_same(typestr, cuda):
    (said,) = describe(interface(cuda.array(shape=4), typestr=typestr))
    assert (said.dtype, said.typestr, said.problems) == (typestr, typestr, ())


def test_a_table_has_a_row_for_each_field_and_a_column_for_each_door(cuda):
    x, stream = cuda.array([[1.0, 2.0]], speaks=["exchange", "dlpack", "cai2"]), cuda.stream()
    with cuda.current_stream(stream):
        assert describe(x)["exchange API"].stream == stream.handle
    text = str(describe(x))
    title, doors, *rows = text.splitlines()
    assert title == type(x).__name__
    assert doors.split() == ["CAI", "exchange", "API", "__dlpack__"]
    at = [doors.index(name) for name in ("CAI", "exchange", "__dlpack__")]
    cells = {row.split()[0]: row for row in rows}
    assert [cells["version"][i] for i in at] == ["2", "1", "1"]
    assert cells["ptr"].split()[1:] == [hex(x.ptr)] * 3
    assert cells["stream"].split() == ["stream", "unsaid", "1", "-"]
    assert not any(line.endswith(" ") for line in text.splitlines())
    assert "masked" not in text
    cells = {row.split()[0]: row.split()[1:] for row in str(describe(only_cai(x))).splitlines()}
    assert cells["device"] == ["-"]


def test_errors_and_problems_are_shown_below(cuda):
    text = str(describe(interface(cuda.array(shape=4), version=4, mask=1)))
    assert "  CAI, malformed: version: got 4; allowed: an integer from 0 to 3" in text
    assert "masked" in text
    assert "  CAI: RuntimeError: no" in str(describe(OnlyCai(RuntimeError("no"))))


def test_a_door_is_looked_up_by_its_name(cuda):
    description = describe(cuda.array([1.0], speaks="cai"))
    assert "CAI" in description
    assert "__dlpack__" not in description
    with pytest.raises(KeyError, match=r"'capsule': .* speaks CAI"):
        description["capsule"]


def test_it_is_told_in_plain_values(cuda):
    x = cuda.array([[1.0]], speaks=["exchange", "cai"])
    told = describe(x).to_dict()
    assert json.loads(json.dumps(told)) == told
    assert [said["door"] for said in told["said"]] == ["CAI", "exchange API"]
    assert (told["said"][0]["shape"], told["said"][0]["ptr"]) == ([1, 1], x.ptr)
