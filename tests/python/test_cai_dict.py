"""The dict of a `CaiView`: its keys and exact types, what is read, and what `stream` says."""

import gc

import numpy as np
import pytest
from fakes import OnlyCai, interface, only_cai

from cai_bridge import from_cai, to_cai

KEYS = {"shape", "typestr", "data", "version", "strides", "stream"}
SPEAKS = ["exchange", "dlpack", "dlpack-legacy", "dlpack-strict", "dlpack-bare", "cai3"]


def exact_types(made):
    """The types of the entries, and of what is in them."""
    for key, value in made.items():
        yield key, type(value)
        if isinstance(value, tuple):
            yield from ((f"{key}[{at}]", type(item)) for at, item in enumerate(value))


@pytest.mark.parametrize("speaks", SPEAKS)
def test_the_dict_has_exactly_the_keys_of_version_3(speaks, cuda):
    made = to_cai(cuda.array([[1.0, 2.0]], speaks=speaks)).__cuda_array_interface__
    assert type(made) is dict
    assert set(made) == KEYS
    assert [type(key) for key in made] == [str] * 6
    assert made["version"] == 3


@pytest.mark.parametrize("speaks", SPEAKS)
@pytest.mark.parametrize("readonly", [None, True, False])
def test_entries_have_exactly_the_types_that_the_specification_gives(speaks, readonly, cuda):
    stream = cuda.stream()
    x = cuda.array([[1.0, 2.0]] * 2, speaks=speaks, strides="F", stream=stream)
    types = dict(exact_types(to_cai(x, stream, readonly).__cuda_array_interface__))
    cuda.synchronize()
    whole = {"shape": tuple, "typestr": str, "data": tuple, "version": int, "strides": tuple}
    assert {name: types[name] for name in whole} == whole
    assert (types["data[0]"], types["data[1]"], types["stream"]) == (int, bool, int)
    assert {types[f"{key}[{at}]"] for key in ("shape", "strides") for at in (0, 1)} == {int}


def test_contiguous_and_idle_arrays_say_none_where_the_specification_has_none(cuda):
    made = to_cai(cuda.array([[1.0, 2.0]]), stream=-1).__cuda_array_interface__
    assert (made["strides"], made["stream"]) == (None, None)


def test_every_dict_is_a_new_one_that_nobody_else_changes(cuda):
    view = to_cai(cuda.array([1.0], speaks="cai"))
    first, second = view.__cuda_array_interface__, view.__cuda_array_interface__
    assert first == second
    assert first is not second
    first.update(shape=(9,), typestr="<f8", version=7, strides=(1,), stream=3, mask=1)
    assert view.__cuda_array_interface__ == second


def test_dicts_of_arrays_of_one_kind_differ_by_their_pointers_alone(cuda):
    kinds = [
        {"dtype": dtype, "strides": strides, "stream": stream, "shape": shape}
        for dtype in ("float32", "int32")
        for strides in ("C", "F")
        for stream in (-1, 1)
        for shape in ((2, 3), (3, 2))
    ]

    def described(dtype, strides, stream, shape):
        x = cuda.array(np.ones(shape, dtype), speaks=("dlpack", "cai"), strides=strides)
        return to_cai(x, stream=stream).__cuda_array_interface__, x.__cuda_array_interface__, stream

    # Of each kind three, in a row and in turns.
    for kind in [*kinds, *kinds, *(kind for kind in kinds for _ in range(3))]:
        made, told, stream = described(**kind)
        assert made == {**told, "stream": None if stream == -1 else stream}
        made.update(shape=(9,), typestr="<f8", version=7, strides=(1,), stream=3, mask=1)


def test_a_collection_while_a_dict_is_made_may_make_others(cuda):
    arrays = [to_cai(cuda.array(np.ones((at % 5 + 1, 2)))) for at in range(20)]
    made = []

    def collected(phase, info):
        made.extend((x.shape, x.__cuda_array_interface__["shape"]) for x in arrays[:7])

    gc.callbacks.append(collected)
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for x in arrays * 3:
            made.append((x.shape, x.__cuda_array_interface__["shape"]))
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(collected)
    assert len(made) > 60
    assert [said for said, _ in made] == [shape for _, shape in made]


def test_the_dict_of_a_dlpack_array_is_that_of_the_array_itself(cuda):
    x = cuda.array([[1, 2], [3, 4]], dtype="int16", speaks=("dlpack", "cai"), strides="F")
    assert to_cai(x, stream=-1).__cuda_array_interface__ == x.__cuda_array_interface__


# --- what is read ---------------------------------------------------------------------------------

VERSIONS = [0, 1, 2, 3]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("absent", [(), ("strides",), ("stream",), ("strides", "stream")])
def test_every_version_is_read_with_or_without_its_optional_entries(version, absent, cuda):
    x = cuda.array([1.0, 2.0, 3.0, 4.0], speaks=())
    made = {k: v for k, v in interface(x, version=version).items() if k not in absent}
    view = from_cai(made, owner=x, stream=-1)
    assert cuda.read(view) == [1.0, 2.0, 3.0, 4.0]
    assert to_cai(view).__cuda_array_interface__["version"] == 3


SPELLED = {
    "lists": {"shape": [2, 2], "strides": [8, 4]},
    "numpy integers": {"shape": (np.int64(2), np.uint8(2)), "strides": (np.int32(8), np.int64(4))},
    "a numpy version": {"version": np.int64(3)},
    "no mask": {"mask": None},
    "an unnamed descr": {"descr": [("", "<f4")]},
    "a foreign entry": {"offset": 8, "__stuff__": object()},
    "a key that is no string": {7: 7, None: None},
    "an integer subclass": {"shape": (type("Extent", (int,), {})(2), 2)},
    "a string subclass": {"typestr": type("Name", (str,), {})("<f4")},
}
POINTER = {
    "numpy pointer": lambda ptr: (np.uint64(ptr), False),
    "numpy bool": lambda ptr: (ptr, np.bool_(False)),
    "0 for read-only": lambda ptr: (ptr, 0),
}


@pytest.mark.parametrize("spelled", SPELLED)
@pytest.mark.parametrize("call", [from_cai, to_cai])
def test_entries_are_read_as_producers_in_the_field_write_them(call, spelled, cuda):
    x = cuda.array([[1.0, 2.0], [3.0, 4.0]], speaks=())
    made = {**interface(x, shape=(2, 2)), **SPELLED[spelled]}
    view = call(OnlyCai(made, keep=x))
    assert (view.shape, view.strides, view.ptr) == ((2, 2), (8, 4), x.ptr)
    assert {type(value) for value in (*view.shape, *view.strides)} == {int}


@pytest.mark.parametrize("spelled", POINTER)
def test_the_data_entry_is_read_as_producers_in_the_field_write_it(spelled, cuda):
    x = cuda.array(shape=4, speaks=())
    view = from_cai(only_cai(x, data=POINTER[spelled](x.ptr)))
    assert (view.ptr, view.readonly) == (x.ptr, False)


@pytest.mark.parametrize("stream", [1, 2, np.int64(1), 4096, 2**63 + 8, 2**64 - 1])
def test_the_stream_entry_is_read_as_an_integer_of_64_bits(stream, cuda):
    view = from_cai(only_cai(cuda.array(shape=4), stream=stream))
    assert view.stream == int(stream)
    given = to_cai(view)
    assert given.__cuda_array_interface__["stream"] == int(stream)
    given.release(-1)  # there is no such stream to wait


def test_keys_that_are_equal_but_not_the_same_string_are_found(cuda):
    x = cuda.array([1.0] * 4, speaks=())
    made = {"".join(list(key)): value for key, value in interface(x, stream=1).items()}
    made = {type("Key", (str,), {})(key): value for key, value in made.items()}
    assert cuda.read(from_cai(made, owner=x)) == [1.0] * 4
    assert from_cai(made, owner=x).stream == 1


def test_a_subclass_of_dict_is_a_dict(cuda):
    x = cuda.array([1.0] * 4, speaks=())
    made = type("Interface", (dict,), {})(interface(x))
    assert from_cai(made, owner=x).owner is x
    assert from_cai(OnlyCai(made, keep=x)).shape == (4,)


@pytest.mark.parametrize("call", [from_cai, to_cai])
def test_the_property_is_read_once(call, cuda):
    x = only_cai(cuda.array(shape=4))
    call(x)
    assert x.reads == 1


def test_an_attribute_of_the_instance_is_read_as_well(cuda):
    class Plain:
        pass

    x, producer = cuda.array([1.0] * 4, speaks=()), Plain()
    with pytest.raises(TypeError):
        to_cai(producer)
    producer.__cuda_array_interface__ = interface(x)
    assert cuda.read(from_cai(producer)) == cuda.read(to_cai(producer)) == [1.0] * 4


@pytest.mark.parametrize("raised", [RuntimeError("torn"), KeyboardInterrupt(), ValueError("torn")])
@pytest.mark.parametrize("call", [from_cai, to_cai])
def test_the_propertys_own_exception_passes_through_unchanged(call, raised):
    with pytest.raises(type(raised)) as caught:
        call(OnlyCai(raised))
    assert caught.value is raised
