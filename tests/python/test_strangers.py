"""Producers and consumers that no table knows: the rows of `tests/data/strangers.toml`."""

import collections
import collections.abc
import ctypes
import enum
import gc
import logging
import re
import sys
import threading
import types

import capsules
import numpy as np
import pytest
from contract import each
from fakes import DLPackPair, OnlyCai, interface

from cai_bridge import CaiView, adapt, convert, from_cai, to_cai, to_dlpack
from cai_bridge._core import _Converter
from cai_bridge._libraries._jax import Jax
from cai_bridge.testing._kit.dlpack_capsule import python_call

DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
DOORS = {"to_cai": to_cai, "to_dlpack": to_dlpack, "from_cai": from_cai}
SEEN = [7.0] * 4


def capsule(x, **_):
    return capsules.HandMade(x.ptr, owner=x).capsule()


def has_the_method_itself(x):
    made = types.SimpleNamespace(__dlpack__=lambda **wishes: capsule(x, **wishes))
    made.__dlpack_device__ = lambda: (2, 0)
    return made


def unnamed(x):
    made = interface(x)
    del made["stream"]
    return made


PENDING = {
    "dict that says None": lambda cuda, x: OnlyCai(interface(x), keep=x),
    "dict without a stream": lambda cuda, x: OnlyCai(unnamed(x), keep=x),
    "dict with an owner": lambda cuda, x: interface(x),
    "dict of a trusted type": lambda cuda, x: cuda.array([7.0] * 4, speaks="cai3"),
    "__dlpack__ that ignores its stream": lambda cuda, x: DLPackPair(lambda **_: capsule(x)),
    "__dlpack__ that takes no stream": lambda cuda, x: type(
        "Plain", (), {"__dlpack__": lambda self: capsule(x)}
    )(),
    "object with the method itself": lambda cuda, x: has_the_method_itself(x),
}


@each("strangers", "pending")
def test_work_that_nobody_named_is_waited_for_where_it_may_be(row, cuda):
    x, mine = cuda.array([0.0] * 4, speaks=()), cuda.stream("mine")
    cuda.legacy.fill(x, 7.0)
    producer = PENDING[row["kind"]](cuda, x)
    asked = {"none": None, "stream": mine, "-1": -1}[row["asked"]]
    said = {"owner": x} if isinstance(producer, dict) else {}
    cuda.clear_calls()
    view = DOORS[row["door"]](producer, stream=asked, **said)
    waits = [call for call in cuda.calls if call.call == "cuStreamWaitEvent"]
    assert len(waits) == row["waits"], "an event, not the host"
    assert view.stream == {"none": None, "legacy": 1, "stream": mine.handle}[row["says"]]
    if row["asked"] == "-1":
        cuda.synchronize()
    speaks = "dlpack" if hasattr(view, "__dlpack__") else "cai-enqueues"
    pending = cuda.consumer(speaks, mine).read(view)
    cuda.synchronize()
    assert pending.value == SEEN


@pytest.mark.parametrize("kind", ["dict that says None", "__dlpack__ that ignores its stream"])
def test_a_capture_of_a_blocking_stream_goes_on_without_the_wait_and_the_log_says_so(
    kind, cuda, caplog
):
    x, mine = cuda.array([7.0] * 4, speaks=()), cuda.stream("mine", blocking=True)
    producer = PENDING[kind](cuda, x)
    with caplog.at_level(logging.DEBUG, "cai_bridge"), cuda.capture(mine) as graph:
        view = to_cai(producer, stream=mine)
        pending = mine.read(view)
    why = [getattr(record, "why", None) for record in caplog.records]
    assert "no stream named, and a blocking stream is being captured" in why
    graph.launch(mine)
    cuda.synchronize()
    assert pending.value == SEEN


def test_arrays_of_one_call_are_not_ordered_by_what_is_left_out_of_a_capture(cuda):
    """The one names no stream, the other the legacy default one."""
    x, mine = cuda.array([7.0] * 4, speaks=()), cuda.stream("mine", blocking=True)
    silent = OnlyCai(interface(x), keep=x)
    named = type("Named", (OnlyCai,), {})(interface(x, stream=1), keep=x)
    with cuda.capture(mine):
        assert len(convert([silent, silent], "cai", stream=mine)) == 2
        with pytest.raises(Exception, match="graph capture"):
            convert([silent, named], "cai", stream=mine)


@each("strangers", "memory")
def test_what_a_stranger_calls_its_gpus_own_memory(row, cuda):
    x = cuda.array([1.0] * 4, speaks=(), memory="managed")
    managed = row["kind"] == "managed memory"
    made = capsules.HandMade(x.ptr if managed else 4096, shape=(4 * managed,)).capsule()
    producer = made if row["by"] == "capsule" else DLPackPair(lambda **_: made)
    assert to_cai(producer).device == (2, 0)


_rename = python_call("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_is_valid = python_call("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_end_by = python_call("PyCapsule_SetDestructor", ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
NAMES = ("dltensor", "dltensor_versioned", "used_dltensor", "used_dltensor_versioned", "triton")
KEPT = {name: ctypes.c_char_p(name.encode()) for name in NAMES}  # a capsule keeps the pointer


@pytest.mark.parametrize("whose", ["a view's", "a copy", "the simulated device's"])
@each("strangers", "renamed")
def test_a_capsule_that_a_consumer_renamed_lets_the_tensor_alone(row, whose, cuda):
    x = cuda.array([1.0] * 4, speaks=("dlpack", "cai"))
    view = from_cai(OnlyCai(interface(x, stream=1), keep=x))
    version = {"max_version": (1, 0)} if row["form"] == "versioned" else {}
    how = {**version, **({"copy": True} if whose == "a copy" else {})}
    made = (x if whose == "the simulated device's" else view).__dlpack__(stream=1, **how)
    taken = capsules.take(made)
    _rename(made, KEPT.get(row.get("name")))
    fields = taken.fields
    del made
    gc.collect()
    assert fields.shape == (4,)
    taken.delete()
    cuda.synchronize()
    del view, x


@each("strangers", "destructor")
def test_a_capsule_that_the_bridge_consumed_has_no_destructor_any_more(row, cuda):
    x = cuda.array([1.0] * 4, speaks=())
    tensor = capsules.HandMade(x.ptr, owner=x, form=row["form"])
    names = [b"dltensor", b"dltensor_versioned"]
    if row["kind"] == "deletes under both names":
        names += [b"used_" + name for name in names]

    @ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
    def destructor(address):
        if any(_is_valid(address, name) for name in names):
            tensor.struct.deleter and DELETER(tensor.struct.deleter)(tensor.address)

    made = tensor.capsule()
    _end_by(made, ctypes.cast(destructor, ctypes.c_void_p))
    view = to_cai(made)
    del made
    assert tensor.deleted == 0, "the view has it"
    view.release()
    assert tensor.deleted == 1


class FakeJax(Jax):
    """JAX as far as its strides: what it would make an array of is given back."""

    types = (type("Array", (), {}),)
    current_stream = staticmethod(lambda device: 1)
    make = staticmethod(lambda view, stream: view)


@each("strangers", "compact")
def test_a_layout_that_jax_cannot_have_is_refused_with_the_way_out(row, cuda):
    memory = cuda.array(shape=4096, dtype="uint8", speaks=())
    tensor = capsules.HandMade(
        memory.ptr + 2048, shape=tuple(row["shape"]), strides=tuple(row["strides"])
    )
    converter, given = _Converter(FakeJax()), [tensor.capsule()]
    if row["taken"]:
        assert converter.lend(given)[0][0].shape == tuple(row["shape"])
        return
    with pytest.raises(BufferError, match=r"^strides: got .*; allowed: a compact .*copy=True"):
        converter.lend(given)


class BatchEncoding(collections.UserDict):
    """A dict with more, as Hugging Face's."""

    def __init__(self, data):
        super().__init__(data)
        self.encodings = ["more"]


class OwnMapping(collections.abc.Mapping):
    def __init__(self, array):
        self.inner = {"a": array}

    def __getitem__(self, key):
        return self.inner[key]

    def __iter__(self):
        return iter(self.inner)

    def __len__(self):
        return 1


class OwnSequence(collections.abc.Sequence):
    def __init__(self, array):
        self.inner = [array]

    def __getitem__(self, key):
        return self.inner[key]

    def __len__(self):
        return 1


@each("strangers", "container")
def test_an_array_in_a_container_is_converted_or_refused_by_its_place(row, cuda):
    x = cuda.array([1.0] * 4, speaks="exchange")
    names = {**globals(), "x": x}
    given = eval(row["made"], names)
    if "refused" in row:
        with pytest.raises(TypeError, match=rf"^x\[0\]: {row['refused']}: got .*; allowed: lists"):
            convert([given], "cai")
        with pytest.raises(TypeError, match=rf"^s\[0\]: {row['refused']}: got .*; allowed: lists"):
            adapt(lambda s: s, to="cai")([given])
        plain = eval(row["made"], {**names, "x": "text"})
        assert convert([plain, x], "cai")[0] is plain
        return
    made = convert(given, "cai")
    key = row["path"].rpartition("[")[2].strip('"]')
    assert type(made) is type(given)
    assert isinstance(made[int(key) if key.isdigit() else key], CaiView)
    assert given[int(key) if key.isdigit() else key] is x, "what was given stays"
    if isinstance(given, collections.ChainMap):
        assert [list(part) for part in made.maps] == [list(part) for part in given.maps]
        assert isinstance(made.parents[key], CaiView)
    assert getattr(made, "maxlen", None) == getattr(given, "maxlen", None)
    assert getattr(made, "encodings", None) == getattr(given, "encodings", None)
    with pytest.raises(ValueError, match=re.escape(f"x{row['path']}: stream: got")):
        convert(given, "cai", stream=cuda.stream(device=1))


def self_made(row, x):
    """An object that answers by the bridge, which asks the object."""
    members = {}
    if "version" in row:
        said = {**unnamed(x), "version": row["version"]}
        members["__cuda_array_interface__"] = property(lambda self: said)
    if "dict" in row:
        door = DOORS[row["dict"]]
        members["__cuda_array_interface__"] = property(
            lambda self: getattr(door(self), "__cuda_array_interface__", None)
        )
    if "dlpack" in row:
        door = DOORS[row["dlpack"]]
        members["__dlpack__"] = lambda self, **wishes: to_dlpack(door(self)).__dlpack__(**wishes)
        members["__dlpack_device__"] = lambda self: (2, 0)
    return type("Own", (), {**members, "keep": x})()


@pytest.mark.filterwarnings("ignore::cai_bridge.HostSyncWarning")
@pytest.mark.parametrize("door", [*DOORS, "convert"])
@each("strangers", "answers")
def test_an_object_that_answers_by_the_bridge_is_not_asked_for_ever(row, door, cuda):
    x = self_made(row, cuda.array(SEEN))
    take = DOORS.get(door, lambda x: convert(x, "dlpack"))
    if door == "from_cai" and not {"version", "dict"} & row.keys():
        pytest.skip("it has no dict")
    if not row.get("refused") or (door == "from_cai" and row.get("version") == 3):
        assert to_cai(take(x)).ptr == x.keep.ptr
        return
    with pytest.raises(RecursionError, match=r"Own, whose .* asks the bridge for the object again"):
        take(x)


def test_no_answer_by_the_bridge_takes_the_stack(cuda):
    """However deep Python may go, in a thread with the stack of a program."""
    x, seen = self_made({"dict": "to_cai", "dlpack": "from_cai"}, cuda.array(SEEN)), []
    before = sys.getrecursionlimit(), threading.stack_size(8 << 20)

    def ask():
        with pytest.raises(RecursionError, match="asks the bridge"):
            to_cai(x)
        seen.append(True)

    try:
        sys.setrecursionlimit(100_000)
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(before[0])
        threading.stack_size(before[1])
    assert seen == [True]


def test_a_released_view_has_no_dict_any_more_as_hasattr_asks(cuda):
    view = to_cai(cuda.array([1.0], speaks="exchange"))
    assert hasattr(view, "__cuda_array_interface__")
    view.release()
    assert not hasattr(view, "__cuda_array_interface__")


def test_a_device_may_be_named_by_a_member_of_an_enum(cuda):
    kind = enum.Enum("Kind", ["CPU", "CUDA"])
    view = from_cai(cuda.array([1.0], speaks="cai3"))
    for device in (kind.CUDA, 0), (kind.CPU, 0):
        made = view.__dlpack__(dl_device=device, max_version=(1, 0))
        assert capsules.read(made).device[0] == device[0].value
    assert np.from_dlpack(view, device="cpu").tolist() == [1.0]


def test_numpy_makes_no_array_of_objects_of_a_simulated_one(cuda):
    x = cuda.array([1.0], speaks="cai")
    for make in (np.asarray, np.array):
        with pytest.raises(TypeError, match=r"^simulated array: got .*; allowed: cuda\.read"):
            make(x)
