"""Threads: deleters without the lock, views that several use, and calls as a thread ends."""

import ctypes
import gc
import threading
import weakref

import capsules
import pytest
import tables
from capsules import HandMade
from fakes import DLPackPair, only_cai
from scenes import Scene, again

from cai_bridge import _core, convert, from_cai, to_cai, to_dlpack
from cai_bridge.testing import simulated_cuda

C = ctypes.CDLL(None)


def all_at_once(*calls):
    """Run each call on a thread of its own, and raise what they raise."""
    start, raised = threading.Barrier(len(calls)), []

    def run(call):
        start.wait()
        try:
            call()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert raised == []


def delete_natively(taken):
    """Call deleters, each as the start of a thread of C's own that Python has never seen."""
    threads = [ctypes.c_ulong() for _ in taken]
    for thread, one in zip(threads, taken, strict=True):
        arguments = (ctypes.c_void_p(one.struct.deleter), ctypes.byref(one.struct))
        assert C.pthread_create(ctypes.byref(thread), None, *arguments) == 0
    for thread in threads:
        assert C.pthread_join(thread, None) == 0


def exported(view):
    """The view's array as a consumer of each form has it."""
    return [
        capsules.take(view.__dlpack__()),
        capsules.take(view.__dlpack__(max_version=(1, 3))),
        tables.managed(view),
    ]


def hand_made(cuda):
    return HandMade((kept := cuda.array([1.0] * 4)).ptr, owner=kept)


def test_threads_that_release_one_view_at_once_let_go_once(cuda):
    for _ in range(50):
        tensor = hand_made(cuda)
        view = to_cai(tensor.capsule())
        all_at_once(*[view.release] * 4)
        assert tensor.deleted == 1


def test_one_capsule_is_taken_by_one_of_many_threads(cuda):
    memory, start = cuda.array(shape=4), threading.Barrier(4)
    tensors = [HandMade(memory.ptr) for _ in range(1000)]
    capsules, taken, refused = [tensor.capsule() for tensor in tensors], [], []

    def take():
        for capsule in capsules:
            start.wait()
            try:
                taken.append(to_cai(capsule))
            except ValueError as error:
                refused.append(str(error))

    all_at_once(*[take] * 4)
    assert (len(taken), len(refused)) == (1000, 3000)
    assert {text.partition(";")[0].partition(",")[0] for text in refused} <= {
        "capsule: got a consumed one",
        "capsule: got one that was consumed meanwhile",
    }
    taken.clear()
    assert [tensor.deleted for tensor in tensors] == [1] * 1000


def test_native_threads_delete_while_others_convert_and_the_collector_runs(cuda):
    tensors = [hand_made(cuda) for _ in range(6)]
    views = [to_cai(tensor.capsule()) for tensor in tensors]

    def convert():
        for turn in range(40):
            view = views[turn % 6]
            assert view.__cuda_array_interface__["shape"] == (4,)
            assert repr(view)
            # In a cycle, so that the collector is what lets go of it.
            cycle = [from_cai(view), to_cai(view), from_cai(view).__dlpack__(stream=1)]
            cycle.append(cycle)

    def delete():
        for turn in range(40):
            other = from_cai(views[turn % 6])
            taken = exported(other)
            other.release()
            delete_natively(taken)

    def collect():
        for _ in range(40):
            gc.collect()

    all_at_once(convert, convert, delete, delete, delete, collect, collect)
    gc.collect()
    assert [tensor.deleted for tensor in tensors] == [0] * 6
    views.clear()
    assert [tensor.deleted for tensor in tensors] == [1] * 6


@pytest.mark.parametrize("native", [False, True])
def test_a_deleter_may_be_called_in_the_middle_of_a_collection(native, cuda):
    view = from_cai(only_cai(cuda.array(shape=4)))
    gone, taken = weakref.ref(view.owner), exported(view)
    del view

    def delete(phase, _):
        if phase == "start" and taken:
            due = taken[:]
            taken.clear()
            delete_natively(due) if native else [one.delete() for one in due]

    gc.callbacks.append(delete)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(delete)
    assert taken == []
    assert gone() is None


@pytest.mark.parametrize("form", [None, (1, 3)])
def test_a_deleter_that_is_called_while_an_exception_is_pending_does_not_disturb_it(form, cuda):
    tensor = hand_made(cuda)
    view = from_cai(to_cai(tensor.capsule()))

    def export():
        capsule = view.__dlpack__(max_version=form)
        view.release()
        return capsule

    with pytest.raises(LookupError, match=r"^'mine'$"):
        # The capsule is on the stack, and goes while the exception is set.
        (export(), {}["mine"])
    assert tensor.deleted == 1


def test_an_exception_of_a_foreign_deleter_on_a_native_thread_is_reported_there(cuda, monkeypatch):
    class Torn(list):
        def __del__(self):
            raise OSError("torn")

    view = from_cai(only_cai(cuda.array(shape=4)))
    view.owner.torn, seen = Torn(), []
    monkeypatch.setattr("sys.unraisablehook", lambda said: seen.append(str(said.exc_value)))
    taken = exported(view)
    del view
    delete_natively(taken)
    assert seen == ["torn"]


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


# Its refusal shows its address, which has to be the same twice.
NO_ARRAY = object()

# What no one may notice of the thread's end: the same comes of it as of a call before.
PROGRAMS = {
    "a dict": lambda cuda: to_cai(array(cuda)).__cuda_array_interface__["shape"],
    "a dict of version 2": lambda cuda: from_cai(only_cai(array(cuda))).shape,
    "a stream object": lambda cuda: to_cai(array(cuda), stream=cuda.stream("named")).typestr,
    "a refusal": lambda cuda: to_cai(3),
    "a stream that says nothing": a_stream_that_says_nothing,
    "a tree": lambda cuda: repr(convert([(array(cuda),)], "cai"))[:8],
    "a tree that is refused": lambda cuda: convert([{1, 2}, NO_ARRAY, to_cai], "cai"),
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
