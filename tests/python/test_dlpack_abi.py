"""DLPack's structures as the conformance kit has them: read, taken over, and made by hand."""

import ctypes
import gc
import subprocess
import sys
import threading
import weakref

import capsules
import pytest
import tables

from cai_bridge import DLPackView, from_cai
from cai_bridge.testing._kit import dlpack_managed
from cai_bridge.testing._kit.dlpack_abi import (
    IS_COPIED,
    READ_ONLY,
    ManagedTensor,
    capsule_name,
    exchange_table,
    read_capsule,
    take,
)

FORMS = ["versioned", "legacy", "1.1"]


class Owner:
    pass


@pytest.mark.parametrize("call", [read_capsule, take])
def test_what_is_no_capsule_of_a_tensor_is_refused(call):
    for wrong in (None, 4, object(), capsules.capsule_of(4096, "something else")):
        with pytest.raises(ValueError, match=r"^capsule: got .*; allowed: "):
            call(wrong)
    nameless = capsules.capsule_of(4096, None)
    assert capsule_name(nameless) is None
    with pytest.raises(ValueError, match=r"^capsule: got PyCapsule; allowed: "):
        call(nameless)


@pytest.mark.parametrize("form", FORMS)
def test_a_taken_tensor_is_deleted_once_however_often_it_is_told(form):
    tensor = ManagedTensor(4096, form=form)
    capsule = tensor.capsule()
    taken, name = take(capsule), "dltensor" if form == "legacy" else "dltensor_versioned"
    assert (capsule_name(capsule), taken.fields.name) == (f"used_{name}", name)
    assert read_capsule(capsule).name == f"used_{name}"
    del capsule
    assert tensor.deleted == 0
    taken.delete()
    taken.delete()
    del taken
    assert tensor.deleted == 1


def test_a_taken_tensor_that_is_dropped_is_deleted_and_one_given_away_is_not():
    dropped, given = ManagedTensor(4096), ManagedTensor(4096)
    take(dropped.capsule())
    taken = take(given.capsule())
    address = taken.give_away()
    assert address == given.address
    del taken
    assert (dropped.deleted, given.deleted) == (1, 0)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(given.struct.deleter)(address)
    assert given.deleted == 1


def test_the_deleter_is_called_without_the_interpreters_lock(cuda):
    # PyGILState_Check is 1 where the calling thread has the lock.
    seen = []
    tensor = ManagedTensor(4096)
    check = ctypes.CFUNCTYPE(ctypes.c_int)(("PyGILState_Check", ctypes.CDLL(None)))
    tensor.struct.deleter = ctypes.cast(check, ctypes.c_void_p).value
    taken = take(tensor.capsule())
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    taken._delete = lambda at: seen.append(prototype(tensor.struct.deleter)(at))
    taken.delete()
    assert seen == [0]
    dlpack_managed._given.pop(tensor.address)


@pytest.mark.parametrize("form", FORMS)
def test_an_owner_is_held_until_the_deleter_and_a_capsule_that_nobody_takes_calls_it(form):
    owner = Owner()
    gone, tensor = weakref.ref(owner), ManagedTensor(4096, form=form, owner=owner)
    capsule = tensor.capsule()
    del owner
    gc.collect()
    assert (gone() is not None, tensor.deleted) == (True, 0)
    del capsule
    assert (gone(), tensor.deleted) == (None, 1)


def test_a_second_call_of_the_deleter_is_counted_and_one_of_nothing_is_a_stray():
    tensor = ManagedTensor(4096)
    delete = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(tensor.struct.deleter)
    at = tensor.hand_out()
    delete(at)
    delete(at)
    assert tensor.deleted == 2
    delete(12)
    assert capsules.ghosts == [12]
    capsules.ghosts.clear()


def test_a_deleter_may_be_called_on_a_thread_that_python_has_never_seen():
    tensor, c, thread = ManagedTensor(4096), ctypes.CDLL(None), ctypes.c_ulong()
    arguments = (ctypes.c_void_p(tensor.struct.deleter), ctypes.c_void_p(tensor.hand_out()))
    assert c.pthread_create(ctypes.byref(thread), None, *arguments) == 0
    assert c.pthread_join(thread, None) == 0
    assert tensor.deleted == 1


def test_many_threads_make_and_delete():
    tensors = [ManagedTensor(4096) for _ in range(200)]

    def work(mine):
        for tensor in mine:
            take(tensor.capsule()).delete()

    threads = [threading.Thread(target=work, args=(tensors[i::4],)) for i in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert {tensor.deleted for tensor in tensors} == {1}


def test_what_cannot_be_made_is_refused():
    with pytest.raises(ValueError, match=r"^flags: got 1; allowed: 0"):
        ManagedTensor(4096, form="legacy", flags=1)
    with pytest.raises(TypeError, match=r"^dimension: got a field"):
        ManagedTensor(4096, dimension=4)
    tensor = ManagedTensor(4096, null=["deleter"])
    tensor.capsule()
    with pytest.raises(ValueError, match=r"^tensor: got one that was handed out"):
        tensor.capsule()


WHOLE = {"shape": (3, 5), "strides": (-5, 2), "dtype": (17, 4, 2), "device": (13, 7)}
WHOLE |= {"byte_offset": 24, "flags": READ_ONLY | IS_COPIED}
FIELDS = [
    (
        {**WHOLE, "form": "1.2"},
        {
            **WHOLE,
            "version": (1, 2),
            "readonly": True,
            "data": 4096,
            "ptr": 4120,
            "has_deleter": True,
        },
    ),
    ({"flags": IS_COPIED}, {"readonly": False}),
    # A count of dimensions that cannot be is told, and not followed.
    *(({"ndim": n}, {"ndim": n, "shape": None, "strides": None}) for n in (-1, 65, 2**31 - 1)),
    (
        {"null": ["data", "shape", "strides", "deleter"]},
        {"data": 0, "shape": None, "strides": None, "has_deleter": False},
    ),
    ({"shape": (), "null": ["shape", "strides"]}, {"shape": (), "strides": ()}),
]


@pytest.mark.parametrize(("made", "said"), FIELDS)
def test_every_field_is_read(made, said):
    fields = read_capsule(ManagedTensor(4096, **made).capsule())
    assert {name: getattr(fields, name) for name in said} == said


HEAD = """
import ctypes, sys, numpy
from cai_bridge.testing._kit import dlpack_managed
from cai_bridge.testing._kit.dlpack_abi import DLManagedTensorVersioned, ManagedTensor, take
array = sys.array = numpy.zeros(4, "float32")
"""
ENDINGS = {
    "a capsule in a module": "sys.late = ManagedTensor(4096).capsule()",
    "a capsule in a cycle": "late = [ManagedTensor(4096).capsule()]; late.append(late); del late",
    "a taken tensor in a module": "sys.late = take(ManagedTensor(4096, owner=object()).capsule())",
    "a deleter at exit": """
import atexit
atexit.register(take(ManagedTensor(4096).capsule()).delete)
""",
    "a consumer that outlives Python": """
capsule = ManagedTensor(array.ctypes.data, device=(1, 0)).capsule()
class X:
    def __dlpack__(self, **_): return capsule
    def __dlpack_device__(self): return 1, 0
sys.late = numpy.from_dlpack(X())
""",
    "a deleter that is called once Python is gone": """
at = ManagedTensor(4096, owner=object()).hand_out()
dlpack_managed._leak()  # as at exit, after which a consumer finds this deleter in the structure
deleter = DLManagedTensorVersioned.from_address(at).deleter
register = ctypes.CDLL(None).__cxa_atexit
register(ctypes.c_void_p(deleter), ctypes.c_void_p(at), None)
""",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_ends_quietly_with(ending):
    command = [sys.executable, "-c", HEAD + ENDINGS[ending]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_table_of_the_views_is_whole_and_exports(cuda):
    table = exchange_table(DLPackView)
    assert (table.version, table.missing, table.can_borrow) == ((1, 3), (), True)
    x = cuda.array([1.0, 2.0], speaks="cai")
    view = from_cai(x, readonly=True)
    assert table.export(view).fields.readonly is True
    with pytest.raises(BufferError, match=r"^readonly: got read-only memory"):
        table.borrow(view)
    lent = table.borrow(from_cai(x))
    assert (lent.ptr, lent.version, lent.flags, lent.name) == (x.ptr, None, None, None)
    assert table.work_stream(2, 0) in {0, 1}
    with pytest.raises(TypeError, match=r"^x: got Owner; allowed: DLPackView$"):
        table.export(Owner())


def test_the_table_of_a_type_is_the_newest_that_is_known_and_circles_end():
    mine = tables.table(lambda _: None, version=(1, 2))
    newer = tables.table(None, version=(2, 0), prev=mine)
    assert exchange_table(tables.speaker(newer)).version == (1, 2)
    newer.prev_api = ctypes.addressof(newer)
    assert exchange_table(tables.speaker(newer)) is None
    for attribute in (None, 4096, object(), "capsule"):
        assert exchange_table(type("X", (), {"__dlpack_c_exchange_api__": attribute})) is None
    assert exchange_table(int) is None


@pytest.mark.parametrize("entry", sorted(tables.ENTRIES))
def test_entries_that_are_null_are_missing_but_the_one_that_may_be(entry):
    entries = {**dict.fromkeys(tables.ENTRIES, 4096), entry: 0}
    table = exchange_table(tables.speaker(tables.table(**entries)))
    assert table.can_borrow is (entry != "borrow")
    assert table.missing == (() if entry == "borrow" else (tables.ENTRIES[entry],))


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
def answers_nothing(*_):
    return 0


@pytest.mark.parametrize(
    ("entries", "call", "said"),
    [
        ({"borrow": 0}, "borrow", "^dltensor_from_py_object_no_sync: got NULL"),
        ({"work_on": None}, "export", "_no_sync: got -1 without an exception"),
        ({"work_on": None}, "work_stream", "^current_work_stream: got -1 without an exception"),
        ({"make": lambda _: 0}, "export", "got NULL and no failure; allowed: a managed"),
        (
            {"stream": ctypes.cast(answers_nothing, ctypes.c_void_p).value},
            *("work_stream", "^current_work_stream: got no answer"),
        ),
    ],
)
def test_what_a_tables_function_may_not_answer_is_refused(entries, call, said):
    kind = tables.speaker(tables.table(**entries))
    given = (2, 0) if call == "work_stream" else (kind(),)
    with pytest.raises(ValueError, match=said):
        getattr(exchange_table(kind), call)(*given)
