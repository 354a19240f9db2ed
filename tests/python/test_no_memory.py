"""That whichever allocation lacks memory there is a `MemoryError`, and nothing is lost."""

import pytest
from children import assert_quiet

pytest.importorskip("_testcapi")

PRELUDE = """
    import gc, logging, sys, warnings
    import _testcapi
    sys.path.insert(0, {here!r})
    import capsules
    from cai_bridge import _core, from_cai, to_cai
    from cai_bridge.testing import simulated_cuda
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
    x = {{
        speaks: cuda.array([1.0] * 4, speaks=speaks, stream=cuda.stream(speaks))
        for speaks in ("exchange", "dlpack", "cai3", "cai2")
    }}
    mine, memory = cuda.stream("mine"), cuda.array([1.0] * 4)

    def hand_made():
        return capsules.HandMade(memory.ptr)


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

    def held():
        gc.collect()
        return [(sys.getrefcount(made), made.exports) for made in x.values()]

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
        for made in x.values():
            without_memory(lambda: made, to_cai)
            without_memory(lambda: made, lambda made: to_cai(made, stream=mine))
            without_memory(lambda: made, lambda made: to_cai(made, stream=-1, readonly=True))
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
    "a capsule": """
        def capsule():
            return hand_made().capsule()
        without_memory(capsule, to_cai)
        without_memory(capsule, lambda made: to_cai(made, stream=mine))
    """,
    "what is handed out": """
        def view():
            return from_cai(x["cai3"])
        without_memory(view, lambda view: view.__dlpack__())
        without_memory(view, lambda view: view.__dlpack__(stream=mine.handle, max_version=(1, 3)))
        without_memory(view, lambda view: view.__dlpack__(copy=True))
        without_memory(view, lambda view: view.__dlpack_device__())
        for made in x.values():
            without_memory(lambda: to_cai(made), lambda view: view.__cuda_array_interface__)
    """,
    "getters": """
        def look(view):
            view.shape, view.strides, view.typestr, view.itemsize, view.ndim, view.size, view.nbytes
            view.ptr, view.device, view.readonly, view.stream, view.owner
        for made in x.values():
            without_memory(lambda: to_cai(made, stream=mine), look)
            without_memory(lambda: to_cai(made, stream=mine), lambda view: view.dtype)
            without_memory(lambda: to_cai(made, stream=mine), repr)
    """,
    "release": """
        def block(view):
            with view:
                pass
        for made in x.values():
            without_memory(lambda: to_cai(made, stream=mine), lambda view: view.release())
            without_memory(lambda: to_cai(made, stream=mine), lambda view: view.release(mine))
            without_memory(lambda: to_cai(made, stream=mine), block)
    """,
    "an end": """
        not_raised = True
        for made in x.values():
            without_memory(lambda: [to_cai(made, stream=mine)], list.clear)
            without_memory(lambda: [from_cai(to_cai(made)).__dlpack__(stream=mine)], list.clear)
            without_memory(lambda: [to_cai(from_cai(to_cai(made)).__dlpack__())], list.clear)
    """,
    "a refusal": """
        class Torn:
            @property
            def __cuda_array_interface__(self):
                return {"shape": (-1,), "typestr": "<f4", "version": 3, "data": (1, False)}
        for call, allowed in {
            to_cai: TypeError,
            from_cai: TypeError,
            lambda made: to_cai(x["cai3"], stream=-5): ValueError,
            lambda made: to_cai(x["cai3"], stream=True): TypeError,
            lambda made: to_cai(x["dlpack"], readonly=made): TypeError,
            lambda made: to_cai(x["exchange"], stream="1"): TypeError,
            lambda made: from_cai({}): (TypeError, ValueError),
            lambda made: from_cai(Torn()): ValueError,
            lambda made: from_cai(x["cai3"], dtype="nothing"): (TypeError, ValueError),
        }.items():
            without_memory(object, call, allowed if isinstance(allowed, tuple) else (allowed,))
    """,
}


@pytest.mark.parametrize("logging", [False, True], ids=["quiet", "logging"])
@pytest.mark.parametrize("case", CASES)
def test_whichever_allocation_fails_it_is_a_memory_error_and_nothing_is_lost(case, logging):
    assert_quiet(LOGGING if logging else "", CASES[case], CHECK, prelude=PRELUDE)
