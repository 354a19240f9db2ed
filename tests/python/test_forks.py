"""Forks: what belongs to the parent's driver is refused in the child, and left alone."""

import os

import pytest
from children import DEVICE, assert_quiet
from contract import rows

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")

# What the child finds: one of everything, made by the parent.
PARENT = """
    from capsules import HandMade
    from contract import assert_refused
    from fakes import DLPackPair, OnlyCai, interface
    producer = cuda.stream()
    arrays = {
        speaks: cuda.array([1.0] * 4, speaks=speaks) for speaks in ("exchange", "dlpack", "cai3")
    }
    tensors = [HandMade(x.ptr) for _ in range(4)]
    given = [to_cai(tensors[0].capsule()), to_cai(DLPackPair(lambda **_: tensors[1].capsule()))]
    given.append(to_cai(tables.speaker(tables.table(lambda _: tensors[2]))()))
    given += [from_cai(given[0]), tensors[3].capsule()]
    view, other = from_cai(x, stream=producer), to_cai(x)
    said = other.__cuda_array_interface__
    taken = [capsules.take(view.__dlpack__()), tables.managed(view), tables.managed(given[3])]
    held = [view.__dlpack__(), view.__dlpack__(max_version=(1, 3)), given[3].__dlpack__()]
"""
FORK = """
    def in_a_fork(call):
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            call()
            sys.exit()
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
"""
IN_BOTH = PARENT + FORK
DOORS = """
    doors = {
        "an array in a fork": {
            "exchange": lambda: to_cai(arrays["exchange"]),
            "dlpack": lambda: to_cai(arrays["dlpack"]),
            "cai3": lambda: from_cai(arrays["cai3"]),
            "capsule": lambda: to_cai(given[4]),
            "a dict": lambda: from_cai(said, owner=object()),
            "import": lambda: tables.to_object(DLPackView, HandMade(x.ptr)),
        },
        "a view in a fork": {
            "capsule": view.__dlpack__,
            "managed": lambda: tables.managed(view),
            "borrow": lambda: tables.borrowed(view),
            "cai of cai": lambda: to_cai(other),
            "cai of dlpack": lambda: to_cai(view),
            "dlpack of cai": lambda: from_cai(other),
            "as an owner": lambda: from_cai(said, owner=view),
        },
    }
"""


def test_every_door_of_the_parents_driver_is_refused_in_a_fork_and_open_in_the_parent():
    wanted = [row for row in rows("refusals", "object") if row["kind"] == "Forked"]
    assert_quiet(
        DEVICE,
        IN_BOTH,
        DOORS,
        f"""
        def refused():
            for row in {wanted!r}:
                assert sorted(doors[row["object"]]) == sorted(row["call"])
                for call in row["call"]:
                    error = assert_refused(row, doors[row["object"]][call])
                    assert "spawn" in str(error)
            # What needs no driver goes on: a dict names memory, and says nothing of a process.
            assert other.__cuda_array_interface__ == said
            assert (view.shape, view.ptr, view.owner) == ((4,), said["data"][0], x)
            assert capsules.name_of(given[4]) == "dltensor_versioned"
        in_a_fork(refused)
        for doors_of in doors.values():
            for call in doors_of.values():
                call()
        """,
    )


RELEASES = (
    IN_BOTH
    + """
    def let_go():
        global view, other
        given[4] = None
        for one in given[:4]:
            one.release()
        given.clear()
        held.clear()
        while taken:
            taken.pop().delete()
        assert [tensor.deleted for tensor in tensors] == [0, 0, 0, 1]
        view.release()
        del view, other
    in_a_fork(let_go)
    assert [tensor.deleted for tensor in tensors] == [0] * 4
    assert cuda.read(view) == [1.0] * 4
    given.clear()
    held.clear()
    while taken:
        taken.pop().delete()
    assert [tensor.deleted for tensor in tensors] == [1] * 4
"""
)
# The producer's stream is unknown, so the tensor is kept until the consumer's work is done.
PARKED = (
    IN_BOTH
    + """
    late, mine = HandMade(x.ptr), cuda.stream()
    mine.fill(x, 2.0)
    to_cai(late.capsule(), stream=mine)
    def look():
        held.clear()
        for view_of in given[:4]:
            view_of.release()
        assert late.deleted == 0
    in_a_fork(look)
    assert late.deleted == 0
    cuda.synchronize()
    assert late.deleted == 1
"""
)
QUIET_ENDS = (
    IN_BOTH
    + """
    def leave():
        raise SystemExit
    for end in (sys.exit, lambda: os._exit(0), leave, lambda: None):
        in_a_fork(end)
        assert cuda.read(to_cai(view)) == [1.0] * 4
"""
)
LOCKS = (
    IN_BOTH
    + """
    mine, going = cuda.stream(), True
    def convert():
        while going:
            to_cai(arrays["exchange"], stream=mine)
            view.__dlpack__(stream=mine)
    threads = [threading.Thread(target=convert) for _ in range(3)]
    [thread.start() for thread in threads]
    def use_and_drop():
        for call in (lambda: view.__dlpack__(stream=1), lambda: to_cai(arrays["exchange"])):
            try:
                call()
            except DriverError:
                continue
            os._exit(1)
        arrays.clear()
        os._exit(0)
    import warnings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for _ in range(40):
            in_a_fork(use_and_drop)
    going = False
    [thread.join() for thread in threads]
"""
)
NO_DRIVER = (
    FORK
    + """
    def work():
        with simulated_cuda() as cuda:
            x = cuda.array([1.0, 2.0])
            assert cuda.read(from_cai(to_cai(x))) == [1.0, 2.0]
            tensor = capsules.HandMade(x.ptr)
            to_cai(tensor.capsule()).release()
            assert tensor.deleted == 1
            del x
    in_a_fork(work)
    in_a_fork(lambda: in_a_fork(work))
    work()
    in_a_fork(work)
"""
)
ITS_OWN = (
    IN_BOTH
    + """
    def work():
        with simulated_cuda() as mine:
            x = mine.array([3.0], speaks="exchange")
            assert mine.read(to_cai(x)) == [3.0]
            for late in (view.__dlpack__, lambda: to_cai(arrays["dlpack"])):
                try:
                    late()
                except DriverError:
                    continue
                raise AssertionError("taken")
        to_cai(capsules.HandMade(4096).capsule())
    in_a_fork(work)
    assert cuda.read(view) == [1.0] * 4
"""
)
PARENTS = (
    IN_BOTH
    + """
    calls = {
        "array": lambda: cuda.array([1.0]),
        "stream": lambda: cuda.stream(),
        "synchronize": lambda: cuda.synchronize(),
        "reports": lambda: cuda.reports,
        "calls": lambda: cuda.calls,
        "read": lambda: cuda.read(x),
        "fill": lambda: producer.fill(x, 2.0),
        "the stream's synchronize": lambda: producer.synchronize(),
        "check": lambda: cuda.check(),
        "fail": lambda: cuda.fail("cuEventQuery"),
        "a consumer": lambda: cuda.consumer("dlpack", producer).read(x),
        "__dlpack__": lambda: x.__dlpack__(stream=1),
        "the exchange API": lambda: tables.managed(arrays["exchange"]),
    }
    def use():
        for name, call in calls.items():
            try:
                call()
            except DriverError as error:
                assert str(error).startswith("process: got a fork of the process"), (name, error)
            else:
                raise AssertionError(name)
    in_a_fork(use)
    for call in calls.values():
        call()
"""
)
WITH_BLOCK = (
    FORK
    + """
    def leave():
        cuda.__exit__(SystemExit, SystemExit(), None)
        assert repr(cuda)
    with simulated_cuda() as cuda:
        x = cuda.array([1.0])
        in_a_fork(leave)
        assert cuda.read(x) == [1.0]
"""
)
RULES = {
    "releases and deleters in a fork leave the producer's tensors alone": RELEASES,
    "what waits for its consumer in the parent is left alone in a fork": PARKED,
    "a fork ends quietly with everything of its parent alive": QUIET_ENDS,
    "a fork does not wait for a lock that a thread of its parent held": LOCKS,
    "a fork of a process that used no driver works as any does": NO_DRIVER,
    "a fork may have a simulated device of its own": ITS_OWN,
    "the parent's simulated device is refused in a fork": PARENTS,
    "a with block of the parent's device ends in a fork without a word": WITH_BLOCK,
}


@pytest.mark.parametrize("rule", RULES)
def test_forks_keep_the_rule_that(rule):
    program = RULES[rule]
    assert_quiet(*([DEVICE] if program.startswith(PARENT) else []), program)
