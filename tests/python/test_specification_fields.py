"""The entries of the dict, as the specification's "Python Interface Specification" has them.

NumPy reads the views' dicts here: most entries are defined as those of its own interface, and the
simulated device's memory is the host's.
"""

import numpy as np
import pytest
from capsules import HandMade
from fakes import OnlyCai, interface, only_cai
from scenes import done
from specification import as_consumer, as_producer, each_door, each_producer, taken_on

from cai_bridge import to_cai

SQUARE = [[1.0, 2.0], [3.0, 4.0]]
SIGNED, UNSIGNED = [-1, 2, 100], [1, 2, 200]
TYPES = {
    "bool": [True, False, True],
    **{f"int{bits}": SIGNED for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": UNSIGNED for bits in (8, 16, 32, 64)},
    **{f"float{bits}": [0.5, -2.0, 3.0] for bits in (16, 32, 64)},
    **{f"complex{bits}": [1 + 2j, -3j, 4 + 0j] for bits in (64, 128)},
}


def values(cuda, view):
    """What a library reads of a view, on a stream of its own."""
    return done(taken_on(cuda, view))


def by_numpy(view):
    """What NumPy reads by a view's dict, as an array interface."""
    said = {key: value for key, value in view.__cuda_array_interface__.items() if key != "stream"}
    return np.asarray(type("Array", (), {"__array_interface__": said, "view": view})())


# The arrays whose views are read: their values, and how they are made.
WRITTEN = [
    ([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], {}),
    (8.0, {}),
    ([[[1.0], [2.0]]], {}),
    ([5.0, 6.0], {"offset": 64}),
    *((SQUARE, {"strides": strides}) for strides in ("F", (40, 8), (16, 4))),
    *((seen, {"dtype": dtype}) for dtype, seen in TYPES.items()),
]


@as_producer("dict", "optional", "shape", "typestr-string", "typestr", "data-pair", "data-pointer")
@as_producer("version", "version-3", "strides-none", "strides-bytes", "mask-none")
@each_producer
@pytest.mark.parametrize(("data", "how"), WRITTEN, ids=str)
def test_numpy_reads_the_values_by_a_views_dict(cuda, speaks, data, how):
    x = cuda.array(data, speaks=speaks, **how)
    view = to_cai(x)
    made, seen = view.__cuda_array_interface__, by_numpy(view)
    assert type(made) is dict
    assert set(made) == {"shape", "typestr", "data", "version", "strides", "stream"}
    assert (made["shape"], seen.tolist()) == (np.shape(data), data)
    assert seen.dtype.name == how.get("dtype", "float32")
    assert (type(made["data"]), made["data"]) == (tuple, (x.ptr, False))
    assert (type(made["version"]), made["version"]) == (int, 3)
    assert (made["strides"] is None) == ("strides" not in how)
    for entry in ("shape", "strides"):
        sizes = made[entry] or ()
        assert [type(sizes), *map(type, sizes)] == [tuple, *[int] * len(sizes)]


# What is said in place of a plain dict's entries, and what is read of 1, 2, 3 and 4.
READ = [
    *(({"shape": np.shape(seen)}, seen) for seen in ([1.0, 2.0, 3.0, 4.0], SQUARE, 1.0, [[[1.0]]])),
    *(({"first": first}, [1.0, 2.0, 3.0, 4.0][first:]) for first in (1, 3)),
    ({"shape": (2, 2), "strides": (4, 8)}, [[1.0, 3.0], [2.0, 4.0]]),
    ({"shape": (2, 2), "strides": (-8, -4), "first": 3}, [[4.0, 3.0], [2.0, 1.0]]),
    ({"shape": (2, 2), "strides": (0, 12)}, [[1.0, 4.0], [1.0, 4.0]]),
    *(({"shape": (2, 2), "without": (one,)}, SQUARE) for one in ("strides", "stream")),
    ({"mask": None}, [1.0, 2.0, 3.0, 4.0]),
    ({"descr": np.dtype("float32").descr}, [1.0, 2.0, 3.0, 4.0]),
    ({"shape": (0, 3), "data": (0, False)}, []),
    *(({"version": version, "shape": (2, 2)}, SQUARE) for version in (0, 1, 2)),
    *(({"version": v, "shape": (2, 2), "strides": (8, 4)}, SQUARE) for v in (0, 1)),
    *(({"version": v, "shape": (0,), "data": (4096 * v, False)}, []) for v in (0, 1)),
]


@as_consumer("optional", "shape", "data-pointer", "data-zero-size", "version-0", "version-1")
@as_consumer("version-2", "strides-none", "strides-bytes", "descr", "descr-numpy", "mask-none")
@each_door
@pytest.mark.filterwarnings("ignore::cai_bridge.HostSyncWarning")
@pytest.mark.parametrize(("said", "seen"), READ, ids=str)
def test_a_dict_is_read_by_its_entries(cuda, door, said, seen):
    x = cuda.array([1.0, 2.0, 3.0, 4.0], speaks=())
    first = said.get("first", 0)
    made = interface(x, shape=(4 - first,), data=(x.ptr + 4 * first, False))
    made |= {key: value for key, value in said.items() if key not in ("first", "without")}
    for entry in said.get("without", ()):
        del made[entry]
    x = OnlyCai(made, keep=x)
    view = door(x)
    assert (view.shape, values(cuda, view)) == (made["shape"], seen)
    assert to_cai(x).__cuda_array_interface__["version"] == 3


@as_producer("data-accessible")
@pytest.mark.parametrize("memory", ["device", "managed", "pinned"])
def test_a_view_is_of_memory_that_a_device_reads(cuda, memory):
    x = cuda.array([3.0, 4.0], speaks="dlpack", memory=memory)
    assert values(cuda, to_cai(x)) == [3.0, 4.0]
    capsule = HandMade(np.zeros(4, "float32").ctypes.data, device=(1, 0)).capsule()
    with pytest.raises(BufferError, match=r"^device: got CPU memory"):
        to_cai(capsule)


@as_producer("data-readonly")
@pytest.mark.parametrize("speaks", ["exchange", "dlpack", "cai3"])
@pytest.mark.parametrize("readonly", [True, False])
def test_a_views_flag_is_a_bool_that_says_what_the_producer_said(cuda, speaks, readonly):
    x = cuda.array([1.0], speaks=speaks, readonly=readonly)
    assert to_cai(x).__cuda_array_interface__["data"][1] is readonly
    assert by_numpy(to_cai(x)).flags.writeable is not readonly
    assert to_cai(x, readonly=True).__cuda_array_interface__["data"][1] is True


@as_consumer("data-readonly")
@each_door
def test_what_the_flag_forbids_nobody_can_do_behind_the_bridge(cuda, door):
    x = cuda.array([1.0] * 4, speaks=())
    consumer = cuda.consumer("dlpack", cuda.stream())
    forbidden, allowed = (door(only_cai(x, data=(x.ptr, flag))) for flag in (True, False))
    with pytest.raises(BufferError, match="read-only"):
        consumer.write(forbidden, 2.0)
    with pytest.raises(BufferError, match="readonly"):
        forbidden.__dlpack__(stream=-1)  # a legacy capsule could not say so
    consumer.write(allowed, 3.0)
    cuda.synchronize()
    assert values(cuda, forbidden) == [3.0] * 4


@as_producer("data-context")
@each_producer
def test_a_views_pointer_leads_to_the_memory_from_another_context(cuda, speaks):
    view = to_cai(cuda.array([1.0] * 4, speaks=speaks, device=1))
    assert (cuda.current_device, cuda._session.device_of(view.ptr)) == (0, 1)
    assert done(taken_on(cuda, view, cuda.stream(device=1))) == [1.0] * 4


@as_consumer("data-context", "pointer-attributes", "pointer-context", "pointer-host")
@as_consumer("pointer-managed")
@each_door
@pytest.mark.parametrize(
    ("memory", "device"), [("device", (2, 1)), ("pinned", (3, 0)), ("managed", (13, 0))]
)
def test_whose_memory_it_is_and_of_what_kind_is_what_the_driver_says(cuda, door, memory, device):
    x = cuda.array([1.0] * 4, speaks=(), memory=memory, device=1)
    assert door(only_cai(x)).__dlpack_device__() == device
    assert "cuPointerGetAttributes" in {call.call for call in cuda.calls}
    assert cuda.current_device == 0
