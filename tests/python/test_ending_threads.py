"""Calls on a thread that is ending: what the thread had of its own is gone, and foreign code calls.

C++ drops a `thread_local`, and C calls the destructor of a pthread key, after Rust has dropped what
it keeps for the thread. Each thread here has called the bridge before, so that there is something.
"""

import ctypes
import weakref

import capsules
import pytest
from fakes import only_cai
from scenes import Scene, again

from cai_bridge import _core, convert, from_cai, to_cai, to_dlpack
from cai_bridge.testing import simulated_cuda

C = ctypes.CDLL(None)
ROUTINE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def at_the_end_of_a_thread(before, destructor, argument=1):
    """Call `before` on a new thread, and the C function `destructor` as it ends."""
    key = ctypes.c_uint()
    assert C.pthread_key_create(ctypes.byref(key), destructor) == 0

    @ROUTINE
    def run(_):
        before()
        C.pthread_setspecific(key, ctypes.c_void_p(argument))

    thread = ctypes.c_ulong()
    assert C.pthread_create(ctypes.byref(thread), None, run, None) == 0
    assert C.pthread_join(thread, None) == 0
    assert C.pthread_key_delete(key) == 0


def use(cuda):
    """Have the bridge keep something for this thread in each of its places."""
    for program in PROGRAMS.values():
        outcome(program, cuda)


def a_stream_object(cuda):
    x = cuda.array([1.0] * 4, speaks="dlpack")
    return to_cai(x, stream=cuda.stream("named")).typestr


def a_refusal(cuda):
    return to_cai(3)


def a_stream_that_says_nothing(cuda):
    class Silent:
        __cuda_stream__ = None

    return to_cai(cuda.array([1.0] * 4, speaks="dlpack"), stream=Silent())


def a_release_and_the_same_again(cuda):
    view = to_cai(cuda.array([1.0] * 4, speaks="exchange"))
    view.release(cuda.stream("other"))
    return view.__cuda_array_interface__


def a_chain_of_ends(cuda):
    x = cuda.array([1.0] * 4, speaks="dlpack")
    view = to_cai(x)
    for _ in range(2_000):
        view = to_cai(from_cai(view).__dlpack__())
    del view
    return x.exports


def an_answer_that_asks_again(cuda):
    class Asks:
        def __dlpack__(self, **_):
            return to_dlpack(self).__dlpack__()

        def __dlpack_device__(self):
            return (2, 0)

    return to_dlpack(Asks())


# What no one may notice of the thread's end: the same comes of it as of a call before.
PROGRAMS = {
    "a dict": lambda cuda: to_cai(cuda.array([1.0] * 4, speaks="dlpack")).__cuda_array_interface__[
        "shape"
    ],
    "a dict of version 2": lambda cuda: from_cai(only_cai(cuda.array([1.0] * 4))).shape,
    "a stream object": a_stream_object,
    "a refusal": a_refusal,
    "a stream that says nothing": a_stream_that_says_nothing,
    "a tree": lambda cuda: repr(convert([(cuda.array([1.0] * 4, speaks="dlpack"),)], "cai"))[:8],
    "a tree that is refused": lambda cuda: convert([{1, 2}, object(), to_cai], "cai"),
    "a release, and the same again": a_release_and_the_same_again,
    "a chain of ends": a_chain_of_ends,
    "an answer that asks again": an_answer_that_asks_again,
}


def outcome(program, cuda):
    try:
        return repr(program(cuda))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_call_on_a_thread_that_ends_does_what_it_does_before(name, cuda):
    found = []

    def last():
        found.append(outcome(PROGRAMS[name], cuda))

    @ROUTINE
    def ends(_):
        last()

    at_the_end_of_a_thread(lambda: (use(cuda), last()), ends)
    assert len(found) == 2
    assert found[0] == found[1]


def given_back(before, without=None):
    """Reports of an end on a thread that ends, while the consumer's read is still queued."""
    with simulated_cuda(check=False) as cuda:
        scene = Scene(cuda, "cai3", "non-blocking", "non-blocking")
        view = from_cai(scene.array)
        taken = capsules.take(view.__dlpack__(stream=scene.consumer))
        seen, gone = scene.consumer.read(scene.array), weakref.ref(scene.array)
        view.release()
        del view
        deleter = ctypes.c_void_p(taken.struct.deleter)
        if without:
            cuda.suppress(without, nth=1)
        at_the_end_of_a_thread(lambda: before(cuda), deleter, ctypes.addressof(taken.struct))
        taken.give_away()
        again(scene)
        assert gone() is None, "the owner lives for ever"
        cuda.synchronize()
        return [seen.value, *cuda.reports]


@pytest.mark.parametrize("before", [use, lambda cuda: None], ids=["after others", "alone"])
def test_a_deleter_on_a_thread_that_ends_gives_the_memory_back_in_order(before):
    assert given_back(before) == [[1.0] * 8]


def test_the_order_of_that_deleter_is_needed():
    reports = given_back(lambda cuda: None, without="cuStreamWaitEvent")
    assert len(reports) > 1


def test_the_deleter_of_a_tensor_of_another_library_runs_once_on_such_a_thread(cuda):
    x = cuda.array([1.0] * 4)
    tensor = capsules.HandMade(x.ptr, owner=x)
    taken = capsules.take(to_dlpack(tensor.capsule()).__dlpack__())
    deleter = ctypes.c_void_p(taken.struct.deleter)
    at_the_end_of_a_thread(lambda: use(cuda), deleter, ctypes.addressof(taken.struct))
    taken.give_away()
    assert tensor.deleted == 1
    assert _core._settle() == 0
