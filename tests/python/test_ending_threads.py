"""Calls on a thread that is ending: what the thread had of its own is gone, and foreign code calls.

C++ drops a `thread_local`, and C calls the destructor of a pthread key, after Rust has dropped what
it keeps for the thread. Each thread here has called the bridge before, so that there is something.
"""

import ctypes
import weakref

import capsules
import pytest
from fakes import DLPackPair, only_cai
from scenes import Scene, again

from cai_bridge import _core, convert, from_cai, to_cai, to_dlpack
from cai_bridge.testing import simulated_cuda

C = ctypes.CDLL(None)
ROUTINE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def at_the_end_of_a_thread(before, destructor, argument=1):
    """Call `before` on a new thread, and the C function `destructor` as it ends."""
    key, thread = ctypes.c_uint(), ctypes.c_ulong()
    assert C.pthread_key_create(ctypes.byref(key), destructor) == 0

    @ROUTINE
    def run(_):
        before()
        C.pthread_setspecific(key, ctypes.c_void_p(argument))

    assert C.pthread_create(ctypes.byref(thread), None, run, None) == 0
    assert C.pthread_join(thread, None) == 0
    assert C.pthread_key_delete(key) == 0


def array(cuda, speaks="dlpack"):
    return cuda.array([1.0] * 4, speaks=speaks)


def a_stream_that_says_nothing(cuda):
    silent = type("Silent", (), {"__cuda_stream__": None})
    return to_cai(array(cuda), stream=silent())


def a_release_and_the_same_again(cuda):
    view = to_cai(array(cuda, "exchange"))
    view.release(cuda.stream("other"))
    return view.__cuda_array_interface__


def a_chain_of_ends(cuda):
    x = array(cuda)
    view = to_cai(x)
    for _ in range(2_000):
        view = to_cai(from_cai(view).__dlpack__())
    del view
    return x.exports


def an_answer_that_asks_again(cuda):
    asks = DLPackPair(lambda **_: to_dlpack(asks).__dlpack__())
    return to_dlpack(asks)


# What no one may notice of the thread's end: the same comes of it as of a call before.
PROGRAMS = {
    "a dict": lambda cuda: to_cai(array(cuda)).__cuda_array_interface__["shape"],
    "a dict of version 2": lambda cuda: from_cai(only_cai(array(cuda))).shape,
    "a stream object": lambda cuda: to_cai(array(cuda), stream=cuda.stream("named")).typestr,
    "a refusal": lambda cuda: to_cai(3),
    "a stream that says nothing": a_stream_that_says_nothing,
    "a tree": lambda cuda: repr(convert([(array(cuda),)], "cai"))[:8],
    "a tree that is refused": lambda cuda: convert([{1, 2}, object(), to_cai], "cai"),
    "a release, and the same again": a_release_and_the_same_again,
    "a chain of ends": a_chain_of_ends,
    "an answer that asks again": an_answer_that_asks_again,
}


def outcome(name, cuda):
    try:
        return repr(PROGRAMS[name](cuda))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def use(cuda):
    """Have the bridge keep something for this thread in each of its places."""
    return {name: outcome(name, cuda) for name in PROGRAMS}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_call_on_a_thread_that_ends_does_what_it_does_before(name, cuda):
    found = []
    ends = ROUTINE(lambda _: found.append(outcome(name, cuda)))
    at_the_end_of_a_thread(lambda: found.append(use(cuda)[name]), ends)
    assert len(found) == 2
    assert found[0] == found[1]


@pytest.mark.parametrize("without", [None, "cuStreamWaitEvent"])
@pytest.mark.parametrize("before", [use, lambda cuda: None], ids=["after others", "alone"])
def test_a_deleter_on_a_thread_that_ends_gives_the_memory_back_in_order(before, without):
    with simulated_cuda(check=False) as cuda:
        scene = Scene(cuda, "cai3", "non-blocking", "non-blocking")
        view = from_cai(scene.array)
        taken = capsules.take(view.__dlpack__(stream=scene.consumer))
        seen, gone = scene.consumer.read(scene.array), weakref.ref(scene.array)
        view.release()
        del view
        deleter = ctypes.c_void_p(taken.struct.deleter)

        def begin():
            before(cuda)
            if without:
                cuda.suppress(without, nth=1)

        at_the_end_of_a_thread(begin, deleter, ctypes.addressof(taken.struct))
        taken.give_away()
        again(scene)
        assert gone() is None, "the owner lives for ever"
        cuda.synchronize()
        assert bool(cuda.reports) is (without is not None)
        assert without or seen.value == [1.0] * 8


def test_the_deleter_of_a_tensor_of_another_library_runs_once_on_such_a_thread(cuda):
    x = cuda.array([1.0] * 4)
    tensor = capsules.HandMade(x.ptr, owner=x)
    taken = capsules.take(to_dlpack(tensor.capsule()).__dlpack__())
    deleter = ctypes.c_void_p(taken.struct.deleter)
    at_the_end_of_a_thread(lambda: use(cuda), deleter, ctypes.addressof(taken.struct))
    taken.give_away()
    assert tensor.deleted == 1
    assert _core._settle() == 0
