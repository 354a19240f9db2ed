"""Threads: deleters without the lock, and views that several threads use at once."""

import ctypes
import gc
import threading
import weakref

import capsules
import pytest
import tables
from capsules import HandMade
from fakes import only_cai

from cai_bridge import DLPackView, from_cai, to_cai

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


def test_many_threads_convert_export_and_release_the_same_view(cuda):
    tensor = hand_made(cuda)
    views = [to_cai(tensor.capsule())]

    def work():
        for turn in range(300):
            other = from_cai(views[0])
            capsule = other.__dlpack__(max_version=(1, 3), stream=turn % 3 or None)
            taken = tables.managed(other)
            other.release()
            assert views[0].__cuda_array_interface__["shape"] == (4,)
            assert repr(to_cai(views[0]))
            taken.delete()
            del capsule, other

    all_at_once(*[work] * 8)
    assert tensor.deleted == 0
    views.clear()
    assert tensor.deleted == 1


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


def test_a_view_made_of_a_table_by_another_thread_is_an_ordinary_one(cuda):
    made, tensor = [], hand_made(cuda)
    all_at_once(lambda: made.append(tables.to_object(DLPackView, tensor)))
    assert made[0].shape == (4,)


def test_native_threads_delete_while_others_convert_and_the_collector_runs(cuda):
    tensors = [hand_made(cuda) for _ in range(6)]
    views = [to_cai(tensor.capsule()) for tensor in tensors]

    def convert():
        for turn in range(40):
            # In a cycle, so that the collector is what lets go of it.
            cycle = [from_cai(views[turn % 6]), to_cai(views[turn % 6])]
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


def test_a_deleter_may_be_called_by_the_end_of_garbage(cuda):
    view = from_cai(only_cai(cuda.array(shape=4)))
    gone = weakref.ref(view.owner)

    class Late:
        def __init__(self, taken):
            self.taken, self.me = taken, self

        def __del__(self):
            delete_natively(self.taken)

    Late(exported(view))
    del view
    gc.collect()
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
