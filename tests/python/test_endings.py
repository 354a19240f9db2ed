"""That a process ends quietly whatever is still alive."""

import pytest
from children import DEVICE, assert_quiet

ENDINGS = {
    "live views": "views = to_cai(x), from_cai(x), to_cai(from_cai(x))",
    "live capsules": """
        one, two = from_cai(x).__dlpack__(), from_cai(x).__dlpack__(max_version=(1, 3))
        three = to_cai(one)
    """,
    "tensors that nobody deletes": """
        taken = [capsules.take(from_cai(x).__dlpack__()), tables.managed(from_cai(x))]
    """,
    "a foreign consumer": """
        import tvm_ffi
        tensor = tvm_ffi.from_dlpack(from_cai(to_cai(x)))
    """,
    "a foreign producer": """
        import tvm_ffi
        view = to_cai(tvm_ffi.from_dlpack(from_cai(x)))
    """,
    "views in a cycle": "view = from_cai(x); x.view = view; del view, x",
    "views in modules": "sys.view = from_cai(x); threading.view = to_cai(x)",
    "a deleter at exit": """
        import atexit
        taken = capsules.take(from_cai(x).__dlpack__())
        atexit.register(taken.delete)
    """,
    "a deleter after the interpreter is gone": """
        import ctypes
        register = ctypes.CDLL(None).__cxa_atexit
        for taken in (capsules.take(from_cai(x).__dlpack__()), tables.managed(from_cai(x))):
            address = ctypes.c_void_p(ctypes.addressof(taken.struct))
            register(ctypes.c_void_p(taken.struct.deleter), address, None)
    """,
    "a deleter in the end of an object": """
        class Late:
            taken = capsules.take(from_cai(x).__dlpack__())
            def __del__(self):
                self.taken.delete()
        sys.late = Late()
    """,
    "a view that another thread holds": """
        def hold(view, started):
            started.set()
            threading.Event().wait()
        started = threading.Event()
        threading.Thread(target=hold, args=(from_cai(x), started), daemon=True).start()
        started.wait()
    """,
    "threads that are converting": """
        def convert():
            while True:
                to_cai(from_cai(to_cai(x)).__dlpack__(stream=2))
        for _ in range(3):
            threading.Thread(target=convert, daemon=True).start()
    """,
    "a view in a thread's own storage": """
        local = threading.local()
        def keep():
            local.view = from_cai(x)
            local.taken = capsules.take(local.view.__dlpack__())
        threads = [threading.Thread(target=keep) for _ in range(3)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    """,
    "no device any more": "views = to_cai(x), from_cai(x); cuda.__exit__(None, None, None)",
    "logging on": """
        import logging
        logging.basicConfig(level=logging.DEBUG, stream=open("/dev/null", "w"))
        view = from_cai(x); view.__dlpack__(); sys.view = view
    """,
    "a view that is made at exit": """
        import atexit
        atexit.register(lambda: setattr(sys, "late", to_cai(from_cai(x).__dlpack__(stream=2))))
    """,
    "views that are released at exit": """
        import atexit
        for view in (to_cai(x), from_cai(x)):
            atexit.register(view.release)
            atexit.register(lambda view=view: view.__exit__(None, None, None))
    """,
    "unconsumed capsules in cycles": """
        for form in (None, (1, 3)):
            cycle = [from_cai(x).__dlpack__(max_version=form)]
            cycle.append(cycle)
        tensor = capsules.HandMade(x.ptr)
        cycle = [tensor.capsule(), tensor]
        cycle.append(cycle)
        del cycle
    """,
    "a foreign tensor in a module, in a cycle and in a thread": """
        import tvm_ffi
        sys.tensor = tvm_ffi.from_dlpack(from_cai(x))
        cycle = [tvm_ffi.from_dlpack(from_cai(to_cai(sys.tensor)))]
        cycle.append(cycle)
        del cycle
        def hold(tensor, started):
            started.set()
            threading.Event().wait()
        started = threading.Event()
        arguments = (tvm_ffi.from_dlpack(from_cai(x)), started)
        threading.Thread(target=hold, args=arguments, daemon=True).start()
        started.wait()
    """,
    "a thread that converts until its last moment": """
        def convert():
            while threading.main_thread().is_alive():
                to_cai(from_cai(to_cai(x)).__dlpack__(stream=2))
            threading.local().view = to_cai(x)
        threading.Thread(target=convert).start()
    """,
    "native threads that delete meanwhile": """
        import ctypes
        c, thread = ctypes.CDLL(None), ctypes.c_ulong()
        taken = [capsules.take(from_cai(x).__dlpack__()) for _ in range(300)]
        for one in taken:
            address = ctypes.byref(one.struct)
            arguments = (ctypes.c_void_p(one.struct.deleter), address)
            assert c.pthread_create(ctypes.byref(thread), None, *arguments) == 0
            c.pthread_detach(thread)
    """,
    "a trace that is never closed, and a deleter after the interpreter is gone": """
        import ctypes
        from cai_bridge import trace
        def forever():
            with trace(os.devnull):
                started.set()
                threading.Event().wait()
        started = threading.Event()
        threading.Thread(target=forever, daemon=True).start()
        started.wait()
        taken = capsules.take(from_cai(x).__dlpack__())
        address = ctypes.c_void_p(ctypes.addressof(taken.struct))
        ctypes.CDLL(None).__cxa_atexit(ctypes.c_void_p(taken.struct.deleter), address, None)
        sys.view = to_cai(x)
    """,
    "a trace that nobody closes but the interpreter": """
        from cai_bridge import trace
        opened = trace(os.devnull)
        opened.__enter__()
        sys.view = to_cai(x)
    """,
    "an exit in a with block": """
        with to_cai(x) as view:
            sys.exit(0)
    """,
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_ends_quietly_with(ending):
    assert_quiet(DEVICE, ENDINGS[ending])
