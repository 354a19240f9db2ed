"""That whichever allocation lacks memory there is a `MemoryError`, and nothing is lost."""

import pytest
from children import assert_quiet

pytest.importorskip("_testcapi")

BEGIN = """
    import gc, logging, warnings
    import _testcapi
    from cai_bridge import _core
    warnings.simplefilter("ignore")
    # Reports of what could not be raised make objects themselves, and are looked at here.
    unraisable = []
    sys.unraisablehook = lambda said: unraisable.append(said.exc_type)

    def printed(kind, error, trace):
        # ctypes prints what it lacks memory for as it calls a deleter of the stand-ins.
        if kind is MemoryError and trace is None:
            unraisable.append(kind)
        else:
            sys.__excepthook__(kind, error, trace)

    sys.excepthook = printed
    cuda = simulated_cuda().__enter__()
    x = {
        speaks: cuda.array([1.0] * 4, speaks=speaks, stream=cuda.stream(speaks))
        for speaks in ("exchange", "dlpack", "cai3", "cai2")
    }
    mine, memory = cuda.stream("mine"), cuda.array([1.0] * 4)
    cuda.synchronize()
    seen, not_raised = set(), False

    def without_memory(make, act, allowed=()):
        # Fails one allocation after the other, until there are no more.
        fine = 0
        for nth in range(1000):
            state, failed = make(), None
            _testcapi.set_nomemory(nth, nth + 1)
            try:
                act(state)
            except BaseException as error:
                failed = error
            finally:
                _testcapi.remove_mem_hooks()
            assert failed is None or isinstance(failed, (MemoryError, *allowed)), (nth, failed)
            fine = 0 if isinstance(failed, MemoryError) else fine + 1
            seen.add(type(failed))
            failed = state = None
            if fine == 40:
                return
        raise AssertionError("there is no end of it")

    def each(make, *acts):
        # On a state made of each array.
        for act in acts:
            for made in x.values():
                without_memory(lambda: make(made), act)

    def held():
        gc.collect()
        return [(sys.getrefcount(made), made.exports) for made in x.values()]

    def for_mine(made):
        return to_cai(made, stream=mine)

    before = held()
"""
LOGGING = """
    class Formatting(logging.Handler):
        def emit(self, record):
            record.getMessage()
    logging.getLogger("cai_bridge").addHandler(Formatting())
    logging.getLogger("cai_bridge").setLevel(logging.DEBUG)
"""
CHECK = """
    made = None
    cuda.synchronize()
    assert _core._settle() == 0
    assert held() == before, (held(), before)
    # The SystemError is of CPython's own, inside of `logging`.
    assert set(unraisable) <= {MemoryError, SystemError}, set(unraisable)
    assert MemoryError in seen or not_raised, "nothing was tried"
    for made in x.values():
        view = to_cai(made, stream=mine)
        assert cuda.read(from_cai(view)) == [1.0] * 4
        view.release()
    cuda.check()
    sys.unraisablehook = sys.__unraisablehook__
"""
CASES = {
    "to_cai": """
        readonly = lambda made: to_cai(made, stream=-1, readonly=True)
        each(lambda made: made, to_cai, for_mine, readonly)
        for call in (to_cai, for_mine):
            without_memory(lambda: capsules.HandMade(memory.ptr).capsule(), call)
    """,
    "from_cai": """
        for speaks in ("cai3", "cai2"):
            without_memory(lambda: x[speaks], from_cai)
            without_memory(lambda: x[speaks], lambda made: from_cai(made, stream=mine, device=0))
            made = dict(x[speaks].__cuda_array_interface__)
            named = {"owner": x[speaks], "dtype": "float32"}
            without_memory(lambda: made, lambda made: from_cai(made, **named))
        made = named = None
    """,
    "what is handed out": """
        for act in (
            lambda view: view.__dlpack__(),
            lambda view: view.__dlpack__(stream=mine.handle, max_version=(1, 3)),
            lambda view: view.__dlpack__(copy=True),
            lambda view: view.__dlpack_device__(),
        ):
            without_memory(lambda: from_cai(x["cai3"]), act)
        each(to_cai, lambda view: view.__cuda_array_interface__)
    """,
    "getters": """
        def look(view):
            view.shape, view.strides, view.typestr, view.itemsize, view.ndim, view.size, view.nbytes
            view.ptr, view.device, view.readonly, view.stream, view.owner
        each(for_mine, look, lambda view: view.dtype, repr)
    """,
    "release": """
        def block(view):
            with view:
                pass
        each(for_mine, lambda view: view.release(), lambda view: view.release(mine), block)
    """,
    "an end": """
        not_raised = True
        each(lambda made: [for_mine(made)], list.clear)
        each(lambda made: [from_cai(to_cai(made)).__dlpack__(stream=mine)], list.clear)
        each(lambda made: [to_cai(from_cai(to_cai(made)).__dlpack__())], list.clear)
    """,
    "a refusal": """
        torn = {"shape": (-1,), "typestr": "<f4", "version": 3, "data": (1, False)}
        for call in (
            to_cai,
            from_cai,
            lambda made: to_cai(x["cai3"], stream=-5),
            lambda made: to_cai(x["cai3"], stream=True),
            lambda made: to_cai(x["dlpack"], readonly=made),
            lambda made: to_cai(x["exchange"], stream="1"),
            lambda made: from_cai({}),
            lambda made: from_cai(fakes.OnlyCai(torn)),
            lambda made: from_cai(x["cai3"], dtype="nothing"),
        ):
            without_memory(object, call, (TypeError, ValueError))
    """,
}


@pytest.mark.parametrize("logging", ["", LOGGING], ids=["quiet", "logging"])
@pytest.mark.parametrize("case", CASES)
def test_whichever_allocation_fails_it_is_a_memory_error_and_nothing_is_lost(case, logging):
    assert_quiet(BEGIN, logging, CASES[case], CHECK)
