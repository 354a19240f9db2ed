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


def on_threads(count, call):
    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()


@pytest.fixture(params=[None, (1, 3)])
def taken(request, cuda):
    """A tensor that was taken over, and its owner."""
    view = from_cai(only_cai(cuda.array(shape=4)))
    return capsules.take(view.__dlpack__(max_version=request.param)), weakref.ref(view.owner)


def test_a_deleter_may_be_called_on_any_thread_without_the_lock(taken):
    taken, gone = taken
    on_threads(1, taken.delete)
    assert gone() is None


def test_a_deleter_may_be_called_on_a_thread_that_python_has_never_seen(taken):
    taken, gone = taken
    # A thread of C's own, whose start routine is the deleter itself.
    c, thread = ctypes.CDLL(None), ctypes.c_ulong()
    arguments = (ctypes.c_void_p(taken.struct.deleter), ctypes.byref(taken.struct))
    assert c.pthread_create(ctypes.byref(thread), None, *arguments) == 0
    assert c.pthread_join(thread, None) == 0
    assert gone() is None


def test_a_view_may_be_released_or_dropped_on_another_thread(cuda):
    views = [from_cai(only_cai(cuda.array(shape=4))) for _ in range(2)]
    gone = [weakref.ref(view.owner) for view in views]
    on_threads(1, views[0].release)
    on_threads(1, views.clear)
    assert [ref() for ref in gone] == [None, None]


def test_many_threads_convert_export_and_release_the_same_view(cuda):
    tensor = HandMade((kept := cuda.array([1.0] * 4)).ptr, owner=kept)
    view = to_cai(tensor.capsule())
    start, unexpected = threading.Barrier(8), []

    def work(view=view):
        start.wait()
        try:
            for turn in range(300):
                other = from_cai(view)
                capsule = other.__dlpack__(max_version=(1, 3), stream=turn % 3 or None)
                taken = tables.managed(other)
                other.release()
                assert view.__cuda_array_interface__["shape"] == (4,)
                assert repr(to_cai(view))
                taken.delete()
                del capsule, other
        except BaseException as error:
            unexpected.append(error)

    on_threads(8, work)
    assert unexpected == []
    assert tensor.deleted == 0
    # The function's default holds it as well.
    del view, work
    assert tensor.deleted == 1


def test_threads_that_release_one_view_at_once_let_go_once(cuda):
    for _ in range(50):
        tensor = HandMade((kept := cuda.array(shape=4)).ptr, owner=kept)
        view = to_cai(tensor.capsule())
        start = threading.Barrier(4)

        def release(view=view, start=start):
            start.wait()
            view.release()

        on_threads(4, release)
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

    on_threads(4, take)
    assert (len(taken), len(refused)) == (1000, 3000)
    assert {text.partition(";")[0].partition(",")[0] for text in refused} <= {
        "capsule: got a consumed one",
        "capsule: got one that was consumed meanwhile",
    }
    taken.clear()
    assert [tensor.deleted for tensor in tensors] == [1] * 1000


def test_a_view_made_of_a_table_by_another_thread_is_an_ordinary_one(cuda):
    tensor, made = HandMade((kept := cuda.array(shape=4)).ptr, owner=kept), []
    on_threads(1, lambda: made.append(tables.to_object(DLPackView, tensor)))
    assert made[0].shape == (4,)


# --- threads that Python has never seen, and the garbage collector --------------------------------


def delete_natively(taken):
    """Call deleters, each on a thread of C's own, and wait for all of them without the lock."""
    c = ctypes.CDLL(None)
    threads = [ctypes.c_ulong() for _ in taken]
    for thread, one in zip(threads, taken, strict=True):
        arguments = (ctypes.c_void_p(one.struct.deleter), ctypes.byref(one.struct))
        assert c.pthread_create(ctypes.byref(thread), None, *arguments) == 0
    for thread in threads:
        assert c.pthread_join(thread, None) == 0


def exported(view):
    """The view's array as a consumer of each form has it."""
    return [
        capsules.take(view.__dlpack__()),
        capsules.take(view.__dlpack__(max_version=(1, 3))),
        tables.managed(view),
    ]


def test_native_threads_delete_while_others_convert_and_the_collector_runs(cuda):
    tensors = [HandMade((kept := cuda.array([1.0] * 4)).ptr, owner=kept) for _ in range(6)]
    views = [to_cai(tensor.capsule()) for tensor in tensors]
    start, unexpected = threading.Barrier(7), []

    def guarded(act):
        def run():
            start.wait()
            try:
                for turn in range(40):
                    act(turn)
            except BaseException as error:
                unexpected.append(error)

        return threading.Thread(target=run)

    def convert(turn):
        # In a cycle, so that the collector is what lets go of it.
        cycle = [from_cai(views[turn % 6]), to_cai(views[turn % 6])]
        cycle.append(cycle)

    def delete(turn):
        other = from_cai(views[turn % 6])
        taken = exported(other)
        other.release()
        delete_natively(taken)

    threads = [guarded(act) for act in (convert, convert, delete, delete, delete)]
    threads += [guarded(lambda _: gc.collect()) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert unexpected == []
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
    tensor = HandMade((kept := cuda.array(shape=4)).ptr, owner=kept)
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
