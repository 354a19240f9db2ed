"""Arrays that say something twice: the rows of `tests/data/said_twice.toml`."""

import ctypes
import gc
import weakref

import capsules
import numpy as np
import pytest
import tables
from contract import each, rows
from fakes import OnlyCai, interface
from moving import host_waits

import cai_bridge
from cai_bridge import DLPackView, convert, from_cai, to_cai, to_dlpack

SEEN = [7.0] * 4


def speaking(way, make, **members):
    """A type that speaks DLPack by a method or by a table, of tensors that `make` makes."""
    if way == "exchange API":
        return tables.speaker(tables.table(lambda _: make()), **members)
    dlpack = {"__dlpack__": lambda _, **__: make().capsule(), "__dlpack_device__": lambda _: (2, 0)}
    return type("Array", (), {**dlpack, **members})


def dict_of(said):
    return {"__cuda_array_interface__": property(lambda _: said)}


def by_dlpack(x, said):
    """Say where the array is by a ``__dlpack__`` that orders nothing, and by a dict."""
    return speaking("__dlpack__", lambda: capsules.HandMade(x.ptr, owner=x), **dict_of(said))()


def by_table(x, said):
    return speaking("exchange API", lambda: capsules.HandMade(x.ptr, owner=x), **dict_of(said))()


class Proxy:
    """An object that has what another one has."""

    def __init__(self, array):
        self._array = array

    def __getattr__(self, name):
        return getattr(self._array, name)


STREAMS = {
    "__dlpack__ that ignores its stream": by_dlpack,
    "an exchange API of another stream": by_table,
    "an object with both itself": lambda x, said: Proxy(by_dlpack(x, said)),
    "a dict alone": lambda x, said: OnlyCai(said, keep=x),
    "a dict with an owner": lambda x, said: said,
    "a view of our own": lambda x, said: to_cai(OnlyCai(said, keep=x)),
}
DOORS = {
    "to_cai": lambda x, stream, _: to_cai(x, stream=stream),
    "to_dlpack": lambda x, stream, _: to_dlpack(x, stream=stream),
    "from_cai": lambda x, stream, owner: from_cai(
        x, stream=stream, **({"owner": owner} if isinstance(x, dict) else {})
    ),
    "convert": lambda x, stream, _: convert(x, "dlpack", stream=stream),
    "a tree": lambda x, stream, _: convert([x], "cai", stream=stream)[0],
}


@each("said_twice", "streams")
@pytest.mark.parametrize("gives_back", [False, True])
def test_work_on_the_stream_that_a_dict_names_is_waited_for_by_whatever_way(row, gives_back, cuda):
    home, mine = cuda.stream("home"), cuda.stream("mine")
    x = cuda.array([0.0] * 4, speaks=(), memory="pool", stream=home)
    home.fill(x, 7.0, name="the late write")
    producer = STREAMS[row["kind"]](x, interface(x, stream=home.handle))
    asked = {"none": None, "mine": mine, "home": home, "-1": -1}[row["asked"]]
    cuda.clear_calls()
    view = DOORS[row["door"]](producer, asked, x)
    waits = [call for call in cuda.calls if call.call == "cuStreamWaitEvent"]
    assert len(waits) == row["waits"]
    if row.get("unordered"):
        mine.wait(home.record())
    kind = "dlpack" if hasattr(view, "__dlpack__") else "cai-enqueues"
    seen = cuda.consumer(kind, mine).read(view)
    if gives_back and row.get("ends", not row.get("unordered")):
        seen.release()
        del view
        gc.collect()
        home.fill(x, 9.0, name="the next write")
    assert host_waits(cuda) == 0
    cuda.synchronize()
    assert seen.value == SEEN


@each("said_twice", "both")
@pytest.mark.parametrize("kind", [by_dlpack, by_table, lambda x, said: OnlyCai(said, keep=x)])
@pytest.mark.parametrize("blocking", [False, True])
def test_both_streams_of_a_producer_wait_for_its_consumer(row, kind, blocking, cuda):
    names = ("home", "other", "a third")
    streams = {name: cuda.stream(name, blocking=blocking) for name in names}
    home, other, works_on = streams["home"], streams["other"], streams[row["works_on"]]
    x = cuda.array([0.0] * 4, speaks=())
    array = kind(x, interface(x, stream=home.handle))
    first = (from_cai if row["how"] == "declared" else to_cai)(array, stream=other)
    view = to_cai(first, stream=works_on if row["told"] else None)
    assert row["told"] or view.__cuda_array_interface__["stream"] == other.handle
    works_on.fill(view, 7.0)
    view.release()
    del first
    # Who is asked for a stream makes the array ready there, and does not go on there.
    producers = {"home", "other"} if row["how"] == "declared" else {"home"}
    reads = [streams[name].read(x) for name in sorted(producers)]
    cuda.synchronize()
    assert [read.value for read in reads] == [SEEN] * len(reads)


@each("said_twice", "known")
def test_a_library_that_is_known_to_keep_to_dlpack_costs_no_more(row, cuda):
    home, mine = cuda.stream("home"), cuda.stream("mine")
    x = cuda.array([0.0] * 4, speaks=("dlpack", "cai3"), stream=home)
    home.fill(x, 7.0)
    cuda.clear_calls()
    view = to_cai(x, stream={"none": None, "mine": mine, "home": home}[row["asked"]])
    waits = [call for call in cuda.calls if call.call == "cuStreamWaitEvent"]
    assert len(waits) == row["waits"]
    seen = cuda.consumer("cai-enqueues", mine).read(view)
    cuda.synchronize()
    assert seen.value == SEEN


@pytest.mark.parametrize("stream", [1, "its own", -1])
@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("back", ["by its dict", "stream="])
def test_our_own_capsule_is_ready_on_the_stream_that_it_was_made_for(stream, copy, back, cuda):
    home, own, mine = (cuda.stream(name) for name in ("home", "own", "mine"))
    x = cuda.array([0.0] * 4, speaks="cai", stream=home)
    home.fill(x, 7.0)
    asked = own if stream == "its own" else stream
    capsule = to_dlpack(x).__dlpack__(stream=asked, max_version=(1, 3), copy=copy)
    view = to_cai(capsule, stream=mine if back == "stream=" else None)
    seen = mine.read(view) if back == "stream=" else cuda.consumer("cai-enqueues", mine).read(view)
    cuda.synchronize()
    assert seen.value == SEEN


@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("read", ["the dict", "stream=", "wait()"])
def test_of_a_copy_nothing_is_pending_but_the_copy_where_the_caller_says_minus_1(host, read, cuda):
    mine = cuda.stream("mine")
    x = np.full(4, 7.0, "float32") if host else cuda.array(SEEN, speaks="cai")
    for tree in (False, True):
        made = convert([x] if tree else x, "cai", copy=True, stream=-1)
        view = made[0] if tree else made
        if read == "wait()":
            view.wait()
            assert list((ctypes.c_float * 4).from_address(view.ptr)) == SEEN
            continue
        if read == "stream=":
            view = to_cai(view, stream=mine)
            seen = mine.read(view)
        else:
            seen = cuda.consumer("cai-enqueues", mine).read(view)
        cuda.synchronize()
        assert seen.value == SEEN


def test_a_weak_proxy_is_no_owner_and_its_array_is_kept(cuda):
    x = cuda.array(SEEN, speaks="cai")
    views = [to_cai(weakref.proxy(x)), convert([weakref.proxy(x)], "cai")[0]]
    del x
    gc.collect()
    seen = [cuda.default_stream(0).read(view) for view in views]
    cuda.synchronize()
    assert [one.value for one in seen] == [SEEN] * 2


@pytest.mark.parametrize("stream", ["mine", "home"])
def test_a_dict_that_a_library_stored_is_not_believed_to_have_a_live_stream(stream, cuda):
    """Its stream may be gone: nobody touches it, and the host waits, unless the caller names it."""
    home, mine = cuda.stream("home"), cuda.stream("mine")
    x = cuda.array([0.0] * 4, speaks=(), stream=home)
    home.fill(x, 7.0)
    kind = type("CumlArray", (OnlyCai,), {"__module__": "cuml.internals"})
    kind.__cuda_array_interface__ = OnlyCai.__cuda_array_interface__
    view = from_cai(
        kind(interface(x, stream=home.handle), x), stream={"mine": mine}.get(stream, home)
    )
    seen = cuda.consumer("dlpack", mine).read(view)
    assert (host_waits(cuda) > 0) == (stream == "mine")
    cuda.synchronize()
    assert seen.value == SEEN


RAISES = {
    kind.__name__: kind
    for kind in (
        *(BufferError, ValueError, RuntimeError, NotImplementedError, TypeError, OSError),
        *(RecursionError, cai_bridge.DriverError),
    )
}


def as_tuples(values):
    """A row's values, whose lists are tuples."""
    return {name: tuple(x) if isinstance(x, list) else x for name, x in values.items()}


def refusing(row, x):
    def refuse(*_, **__):
        raise RAISES[row["raises"]]("not by DLPack")

    said = interface(x, stream=1, **as_tuples(row["set"]))
    members = dict_of(said)
    if "__dlpack" in row["way"]:
        members["__dlpack__"] = refuse
        members["__dlpack_device__"] = lambda _: (2, 0)
    if row["way"] == "__dlpack_device__":
        members["__dlpack_device__"] = refuse
    members |= {
        name: row[name] for name in ("dtype", "requires_grad", "stop_gradient") if name in row
    }
    if "exchange API" in row["way"]:
        # A table that takes views of ours alone: it raises TypeError.
        theirs = tables.of(DLPackView).managed_tensor_from_py_object_no_sync
        address = ctypes.cast(theirs, ctypes.c_void_p).value
        return tables.speaker(tables.table(from_object=address), **members)()
    return type("Array", (), members)()


WAYS = {
    "to_cai": to_cai,
    "convert": lambda x: convert(x, "cai"),
    "a tree": lambda x: convert([x], "cai")[0],
}


@pytest.mark.parametrize("way", WAYS)
@each("said_twice", "refuses")
def test_what_dlpack_cannot_say_is_taken_by_the_dict(row, way, cuda):
    mine = cuda.stream("mine")
    x = cuda.array([0.0] * 4, speaks=())
    cuda.legacy.fill(x, 7.0, name="the late write")
    producer = refusing(row, x)
    if "stands" in row:
        with pytest.raises(Exception, match=row["stands"]) as stood:
            WAYS[way](producer)
        assert stood.value.__cause__ is None
        return
    if "refused" in row:
        with pytest.raises(ValueError, match=row["refused"]) as both:
            WAYS[way](producer)
        cause = both.value.__cause__
        assert type(cause) is RAISES[row["raises"]]
        assert str(cause).startswith(("not by DLPack", "'Speaker' object is not"))
        return
    view = WAYS[way](producer)
    assert view.ptr == x.ptr
    if row["gives"] in ("bfloat16", "float8_e5m2"):
        assert row["gives"] in repr(view)
    else:
        assert view.dtype == np.dtype(row["gives"])
    is_float = row["gives"] == "float32"
    seen = cuda.consumer("cai-enqueues", mine).read(view) if is_float else None
    cuda.synchronize()
    assert seen is None or seen.value == SEEN


@pytest.mark.parametrize("to", ["dlpack", "numpy"])
def test_a_library_gets_by_the_dict_what_dlpack_refuses(to, cuda):
    x = cuda.array([7.0] * 4, speaks=())
    made = convert(refusing({"way": "__dlpack__", "raises": "ValueError", "set": {}}, x), to)
    assert (cuda.read(made) if to == "dlpack" else made.tolist()) == SEEN


def exporter(x, dtype, members, way):
    """A type that speaks by `way` alone."""
    if way == "dict":
        said = interface(x, typestr={0: "<i4", 2: "<f4"}[dtype[0]])
        return type("Tensor", (), {**dict_of(said), **members})
    return speaking(way, lambda: capsules.HandMade(x.ptr, owner=x, dtype=dtype), **members)


@pytest.mark.parametrize("way", ["exchange API", "__dlpack__", "dict"])
@each("said_twice", "gradients")
def test_a_tensor_that_autograd_follows_is_refused_on_each_route(row, way, cuda):
    x = cuda.array([7.0] * 4, speaks=())
    of_type = row["where"] == "type"
    dtype = (0, 32, 1) if "typestr" in row else (2, 32, 1)
    detach = {"detach": lambda self: type(self).plain}
    kind = exporter(x, dtype, {**(row["says"] if of_type else {}), **detach}, way)
    kind.plain = exporter(x, dtype, {}, way)()
    one = kind()
    if not of_type:
        for name, value in row["says"].items():
            setattr(one, name, value)
    doors = [to_cai, to_dlpack, *([from_cai] if way == "dict" else [])]
    if "typestr" in row and way != "exchange API":
        return  # The type is not known before the question.
    if "refused" not in row:
        assert all(door(one).ptr == x.ptr for door in doors)
        return
    for door in [*doors, lambda x: convert(x, "cai"), lambda x: convert([x], "cai")]:
        with pytest.raises(BufferError, match=rf"{row['refused']}: got .*x\.detach\(\)"):
            door(one)
    assert convert(one, "cai", detach=True).ptr == x.ptr
    assert convert([one], "cai", detach=True)[0].ptr == x.ptr


def test_a_method_of_that_name_says_nothing_of_gradients(cuda):
    x = cuda.array([7.0] * 4, speaks=())
    members = {"requires_grad": lambda _: True, "stop_gradient": lambda _: False}
    for way in ("exchange API", "__dlpack__", "dict"):
        assert to_cai(exporter(x, (2, 32, 1), members, way)()).ptr == x.ptr


class Named:
    """An object with some attributes, or one that prints as a name."""

    def __init__(self, prints="", **members):
        self._prints = prints
        self.__dict__.update(members)

    def __repr__(self):
        return self._prints


@pytest.mark.parametrize("door", ["to_cai", "from_cai"])
@each("said_twice", "types")
def test_of_a_typestr_and_a_dtype_of_one_size_the_dtype_counts(row, door, cuda):
    if row.get("only", door) != door:
        return
    x = cuda.array(np.arange(16, dtype=np.uint8), speaks=())
    producer = OnlyCai(interface(x, typestr=row["typestr"], shape=(1,)), keep=x)
    for given, made in {"numpy": np.dtype, "prints": Named, "own": lambda own: own}.items():
        if given in row:
            producer.dtype = made(row[given])
    said = {"dtype": row["argument"]} if "argument" in row else {}
    take = from_cai if door == "from_cai" else to_cai
    if "refused" in row:
        with pytest.raises((ValueError, BufferError), match=rf"^{row['refused']}"):
            take(producer, **said)
        return
    (wanted,) = (one for one in rows("dtype", "dtype") if one["name"] == row["gives"])
    view = take(producer, **said)
    found = capsules.read(from_cai(view).__dlpack__() if door == "to_cai" else view.__dlpack__())
    assert found.dtype == (wanted["code"], wanted["bits"], 1)
    if said:
        again = from_cai(to_cai(OnlyCai(interface(x, shape=(1,)), keep=x)), dtype="int32")
        assert again.typestr == "<i4", "of a view of ours as well"


def test_a_dict_by_itself_may_say_what_it_likes_of_its_owners_memory(cuda):
    x = cuda.array([1.0] * 4)
    owner = Named(dtype=np.dtype("<f4"), array=x)
    assert from_cai(interface(x, typestr="<i4"), owner=owner).typestr == "<i4"


@each("said_twice", "memory")
@pytest.mark.parametrize("way", ["__dlpack__", "exchange API"])
@pytest.mark.parametrize("door", [to_cai, to_dlpack, lambda x: convert([x], "cai")[0]])
def test_a_dict_that_contradicts_dlpack_is_refused(row, way, door, cuda):
    if row.get("only", way) != way:
        pytest.skip("a table has no such function")
    x = cuda.array([1.0] * 8, speaks=())
    named, at = as_tuples(row.get("set", {})), row.get("at", 0)
    data = (0 if at == "nowhere" else x.ptr + at, row.get("flag", False))
    said = interface(x, **{"shape": (2, 2), "data": data, "stream": None, **named})
    fields = {"shape": (2, 2), "strides": (2, 1), "owner": x}
    where = {"__dlpack_device__": lambda _: tuple(row["on"])} if "on" in row else {}
    members = {**dict_of(said), **where}
    array = speaking(way, lambda: capsules.HandMade(x.ptr, **fields), **members)()
    if "refused" in row:
        with pytest.raises((ValueError, TypeError, BufferError), match=row["refused"]):
            door(array)
        return
    view = door(array)
    assert (view.shape, view.typestr, view.readonly) == ((2, 2), "<f4", row["readonly"])


@each("said_twice", "nowhere")
def test_an_array_without_elements_is_where_its_producer_says(row, cuda):
    stream = cuda.stream(device=1)
    value = eval(row["value"], {"Named": Named, "stream": stream})
    x = cuda.array([1.0] * 4, speaks=())
    named = {"stream": value.handle} if row["says"] == "stream" else {}
    said = interface(x, shape=(0, 3), data=(0, False), **named)
    members = dict_of(said)
    if row["says"] == "__dlpack_device__":
        members["__dlpack_device__"] = lambda _: value
    elif row["says"] == "device":
        members["device"] = value
    one = type("Empty", (), members)()
    argument = {"device": eval(row["argument"])} if "argument" in row else {}
    if "refused" in row:
        with pytest.raises(ValueError, match=row["refused"]):
            from_cai(one)
        return
    for made in [from_cai(one, **argument), *([] if argument else [to_cai(one)])]:
        assert (made.device, made.shape) == (tuple(row.get("device", (2, 1))), (0, 3))
    assert cuda.current_device == 0


def test_where_an_empty_array_is_that_answers_by_the_bridge_is_not_asked_for_ever(cuda):
    class Own:
        __cuda_array_interface__ = property(
            lambda _: {"shape": (0,), "typestr": "<f4", "data": (0, False), "version": 3}
        )

        def __dlpack_device__(self):
            return from_cai(self).device

    assert from_cai(Own()).device == (2, 0)


def test_an_exception_that_the_producer_keeps_is_no_cause_of_itself(cuda):
    x = cuda.array([0.0] * 4, speaks=())
    kept = BufferError("kept")

    class Keeps:
        held = x

        @property
        def __cuda_array_interface__(self):
            raise kept

        def __dlpack__(self, **how):
            raise BufferError("not by DLPack") from kept

        def __dlpack_device__(self):
            return (2, 0)

    with pytest.raises(BufferError) as raised:
        to_cai(Keeps())
    seen, one = set[int](), raised.value
    while one is not None:
        assert id(one) not in seen, "a circle"
        seen.add(id(one))
        one = one.__cause__
