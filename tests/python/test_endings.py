"""That a process ends quietly whatever is alive, and whichever threads are in the bridge."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from children import DEVICE, PRELUDE, assert_quiet

# C calls a deleter as the process ends.
BY_C = """
    import ctypes
    c, thread = ctypes.CDLL(None), ctypes.c_ulong()
    def at_the_end(taken):
        address = ctypes.c_void_p(ctypes.addressof(taken.struct))
        c.__cxa_atexit(ctypes.c_void_p(taken.struct.deleter), address, None)
"""
ENDINGS = {
    "what is alive in modules, in cycles, in threads and in the ends of objects": """
        import logging
        logging.basicConfig(level=logging.DEBUG, stream=open(os.devnull, "w"))
        views = to_cai(x), from_cai(x), to_cai(from_cai(x))
        sys.view = from_cai(x); threading.view = to_cai(x)
        def forms():
            yield from (from_cai(x).__dlpack__(max_version=form) for form in (None, (1, 3)))
            yield to_cai(from_cai(x).__dlpack__())
            yield capsules.take(from_cai(x).__dlpack__())
            yield tables.managed(from_cai(x))
        alive = list(forms())
        cycle = [*forms(), capsules.HandMade(x.ptr).capsule()]
        cycle.append(cycle)
        x.view = from_cai(x)
        del cycle
        local = threading.local()
        threads = [threading.Thread(target=lambda: setattr(local, "it", [*forms()])) for _ in "123"]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        class Late:
            taken = capsules.take(from_cai(x).__dlpack__())
            def __del__(self):
                self.taken.delete()
        sys.late = Late()
    """,
    "a deleter after the interpreter is gone": """
        at_the_end(capsules.take(from_cai(x).__dlpack__()))
        at_the_end(tables.managed(from_cai(x)))
    """,
    "no device any more": "views = to_cai(x), from_cai(x); cuda.__exit__(None, None, None)",
    "views that are made, released and deleted at exit": """
        import atexit
        atexit.register(capsules.take(from_cai(x).__dlpack__()).delete)
        atexit.register(lambda: setattr(sys, "late", to_cai(from_cai(x).__dlpack__(stream=2))))
        for view in (to_cai(x), from_cai(x)):
            atexit.register(view.release)
            atexit.register(lambda view=view: view.__exit__(None, None, None))
    """,
    "foreign tensors in a module, in a cycle and in a thread": """
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
        taken = [capsules.take(from_cai(x).__dlpack__()) for _ in range(300)]
        for one in taken:
            arguments = (ctypes.c_void_p(one.struct.deleter), ctypes.byref(one.struct))
            assert c.pthread_create(ctypes.byref(thread), None, *arguments) == 0
            c.pthread_detach(thread)
    """,
    "a trace that is never closed, and a deleter after the interpreter is gone": """
        from cai_bridge import trace
        def forever():
            with trace(os.devnull):
                started.set()
                threading.Event().wait()
        started = threading.Event()
        threading.Thread(target=forever, daemon=True).start()
        started.wait()
        at_the_end(capsules.take(from_cai(x).__dlpack__()))
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
    assert_quiet(DEVICE, BY_C, ENDINGS[ending])


ON_THREADS = """
    import logging, time

    class Slow:
        # A producer in Python, inside of which other threads get their turn.
        @property
        def __cuda_array_interface__(self):
            time.sleep(0)
            return x.__cuda_array_interface__

    def on_threads(*works):
        def forever(work):
            while True:
                work()
        for work in works:
            threading.Thread(target=forever, args=(work,), daemon=True).start()
"""
PROGRAMS = {
    "use views": """
        view = to_cai(x)
        def read():
            view.__cuda_array_interface__, view.shape, view.typestr, view.owner, repr(view)
        def release():
            to_cai(Slow()).release()
            with from_cai(Slow()) as view:
                view.__dlpack__()
        def delete():
            taken = [capsules.take(from_cai(Slow()).__dlpack__()), tables.managed(from_cai(x))]
            for one in taken:
                one.delete()
        class Late:
            def __del__(self):
                view = from_cai(Slow())
                to_cai(view.__dlpack__())
                view.release()
        on_threads(read, release, delete, Late)
    """,
    "convert": """
        on_threads(*[lambda: to_cai(from_cai(to_cai(x)).__dlpack__(stream=2))] * 3)
    """,
    "make arrays of a library": """
        from cai_bridge import Library, convert
        class Array:
            pass
        class Mine(Library):
            name, types = "mine", (Array,)
            def current_stream(self, device):
                time.sleep(0)
                return 1
            def make(self, view, stream):
                time.sleep(0)
                return view
        mine = Mine()
        tree = [x, {"y": x}]
        on_threads(*[lambda x=x: convert(x, mine) for x in (x, tree, Slow())])
    """,
    "convert in a log handler": """
        class Converting(logging.Handler):
            def emit(self, record):
                from_cai(Slow()).__dlpack__()
        logging.getLogger("cai_bridge").addHandler(Converting())
        logging.getLogger("cai_bridge").setLevel(logging.DEBUG)
        on_threads(*[lambda: to_cai(Slow(), stream=2)] * 3)
    """,
    "convert while other exit handlers run": """
        on_threads(*[lambda: to_cai(from_cai(Slow()).__dlpack__(stream=2))] * 3)
    """,
    "hold a lock that an exit handler needs": """
        # `logging` takes its handlers' locks at exit.
        class Locked(logging.Handler):
            def emit(self, record):
                from_cai(Slow())
        handler = Locked()
        record = logging.LogRecord("other", 10, "", 0, "", (), None)
        on_threads(*[lambda: handler.handle(record)] * 3)
    """,
}
# It is there before the bridge's own exit handler, so it runs after it.
EARLIER = "\nimport atexit, time\natexit.register(time.sleep, 0.05)\n"


@pytest.mark.some(2)
@pytest.mark.parametrize("turn", range(2))
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_process_ends_cleanly_while_daemon_threads(program, turn):
    earlier = EARLIER if "exit handlers run" in program else ""
    assert_quiet(
        *(DEVICE, ON_THREADS, PROGRAMS[program], "\ntime.sleep(0.02)\n"),
        prelude=earlier + dedent(PRELUDE),
    )


# Functions that cannot give up the lock, and that a thread may call while another one ends the
# interpreter.
WITHOUT = {
    "libraries/mod.rs new",
    "observe/trace.rs take",
    "observe/trace.rs _start_trace",
    "producers/host.rs __array_interface__",
    "views/class.rs __len__",
}


def _block(text: str, start: int) -> str:
    """From `start` to the brace that closes the first one."""
    depth, at = 1, text.index("{", start) + 1
    while depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return text[start:at]


def test_every_call_from_python_that_may_fail_is_counted_as_inside():
    folder = Path(__file__).parents[2] / "src" / "py"
    function = r"^ *(?:pub(?:\([^)]*\))? )?fn (\w+)"
    found, bad = 0, set()
    for path in folder.rglob("*.rs"):
        name = str(path.relative_to(folder))
        if name.startswith("simulated/"):
            continue
        text = path.read_text()
        for begun in re.finditer(r"#\[(pymethods\]|pyfunction)", text):
            part = _block(text, begun.start())
            for one in re.finditer(function, part, re.MULTILINE):
                body = _block(part, one.start())
                head = body[: body.index("{")]
                if "-> PyResult<" in head or "-> Answer<" in head:
                    found += 1
                    if not re.search(r"\b(entry|act|inside)\(", body):
                        bad.add(f"{name} {one[1]}")
    assert found > 50
    assert bad == WITHOUT


# Ends that follow from one another need no stack, however many they are: 5,000 ends one inside the
# other would have 52 bytes of this stack each.
SMALL = """
    import gc
    from cai_bridge import _core
    cuda = simulated_cuda(check=False).__enter__()
    x, many, held = cuda.array([1.0] * 4, speaks="dlpack"), 5_000, []
    mine = cuda.stream("mine")

    def on_a_small_stack(call):
        threading.stack_size(256 * 1024)
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        assert x.exports == 0, x.exports

    def chain(more, many=many):
        view = to_cai(x)
        for _ in range(many):
            view = more(view)
        return view

    def of_capsules(view):
        return to_cai(from_cai(view).__dlpack__())
"""
CHAINS = {
    "a view of a capsule of a view": "of_capsules",
    "a view of a dict whose owner is a view": (
        "lambda v: to_cai(from_cai(v.__cuda_array_interface__, owner=v).__dlpack__())"
    ),
    "a capsule that nobody takes": "lambda capsule: from_cai(to_cai(capsule)).__dlpack__()",
}
ENDS = {
    "views that wait for the same work": """
        mine.fill(cuda.array([1.0]), 2.0)
        for _ in range(many):
            to_cai(x, stream=mine)
        assert x.exports == many
        cuda.synchronize()
        on_a_small_stack(_core._settle)
    """,
    **{
        name: f"held.append(chain({more}))\non_a_small_stack(held.clear)"
        for name, more in CHAINS.items()
    },
    "a view that is released": "on_a_small_stack(chain(of_capsules).release)",
    "views in a cycle": """
        held = [chain(of_capsules)]
        held.append(held)
        del held
        on_a_small_stack(gc.collect)
    """,
    "views whose ends are orders": """
        held.append(chain(lambda v: to_cai(from_cai(v).__dlpack__(stream=mine), stream=mine), 1000))
        def end():
            while x.exports:
                held.clear()
                cuda.synchronize()
                _core._settle()
        on_a_small_stack(end)
    """,
}


@pytest.mark.parametrize("end", ENDS)
def test_many_ends_need_no_more_stack_than_one(end):
    assert_quiet(SMALL, ENDS[end])


# The extension's classes are made once a process, so a subinterpreter is refused.
KINDS = ["legacy"] if sys.version_info < (3, 12) else ["legacy", "isolated"]
# CPython's own modules for its tests; each version has another.
CREATE = """
    try:
        import _interpreters as interpreters
        interpreter = interpreters.create({kind!r})
    except ImportError:
        import warnings
        warnings.simplefilter("ignore")
        import _xxsubinterpreters as interpreters
        interpreter = interpreters.create(isolated={kind!r} == "isolated")
    # Without -X dev and -W error, which the children of this process would take over.
    TEXT = '''if True:
        import sys
        sys.path[:] = {{path!r}}
        for name in ("cai_bridge", "cai_bridge._core"):
            try:
                __import__(name)
            except ImportError as error:
                said = str(error)
            else:
                raise AssertionError(name + " was imported")
            assert "subinterpreter" in said, said
    '''
    def refused():
        failed = interpreters.run_string(interpreter, TEXT.format(path=sys.path))
        assert failed is None, failed
    refused()
"""
GOES_ON = """
    from cai_bridge import from_cai, to_cai
    from cai_bridge.testing import simulated_cuda
    with simulated_cuda() as cuda:
        x = cuda.array([1.0])
        refused()
        interpreters.destroy(interpreter)
        assert cuda.read(from_cai(to_cai(x))) == [1.0]
"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("asks", ["first", "second"])
def test_an_import_in_a_subinterpreter_is_refused_and_the_main_one_goes_on(asks, kind):
    prelude = "\nimport sys\n" if asks == "first" else PRELUDE
    assert_quiet(CREATE.format(kind=kind), GOES_ON, prelude=prelude)
