"""That a process ends cleanly while daemon threads are in the bridge, or about to be."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from children import assert_quiet

PRELUDE = """
    import logging, os, sys, threading, time
    sys.path.insert(0, {here!r})
    import capsules, tables
    from cai_bridge import from_cai, to_cai
    from cai_bridge.testing import simulated_cuda
    cuda = simulated_cuda(check=False).__enter__()
    x = cuda.array([1.0] * 4, speaks=("exchange", "dlpack", "cai"))

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
LEAVE = "\ntime.sleep(0.02)\n"

PROGRAMS = {
    "convert": """
        def convert():
            to_cai(from_cai(to_cai(x)).__dlpack__(stream=2))
        on_threads(convert, convert, convert)
    """,
    "read producers in Python": """
        on_threads(*[lambda: from_cai(Slow())] * 3)
    """,
    "read dicts and properties": """
        view = to_cai(x)
        def read():
            view.__cuda_array_interface__, view.shape, view.typestr, view.owner, repr(view)
        on_threads(read, read, read)
    """,
    "release, and leave with blocks": """
        def release():
            to_cai(Slow()).release()
            with from_cai(Slow()) as view:
                view.__dlpack__()
        on_threads(release, release, release)
    """,
    "delete": """
        def delete():
            taken = [capsules.take(from_cai(Slow()).__dlpack__()), tables.managed(from_cai(x))]
            for one in taken:
                one.delete()
        on_threads(delete, delete, delete)
    """,
    "convert in a finalizer": """
        class Late:
            def __del__(self):
                view = from_cai(Slow())
                to_cai(view.__dlpack__())
                view.release()
        on_threads(*[Late] * 3)
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
    "log": """
        logging.basicConfig(level=logging.DEBUG, stream=open(os.devnull, "w"))
        on_threads(*[lambda: to_cai(Slow(), stream=2).__cuda_array_interface__] * 3)
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
        # It was there before the bridge's own handler, so it runs after it.
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
EARLIER = {
    "convert while other exit handlers run": """
        import atexit, time
        atexit.register(time.sleep, 0.05)
    """,
}


@pytest.mark.some(3)
@pytest.mark.parametrize("turn", range(2))
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_process_ends_cleanly_while_daemon_threads(program, turn):
    prelude = textwrap.dedent(EARLIER.get(program, "")) + textwrap.dedent(PRELUDE)
    assert_quiet(PROGRAMS[program], LEAVE, prelude=prelude)


# What `_core._end` begins, a thread of the program's finds out.
AFTER = """
    from cai_bridge import _core
    device = _core._IpcDevice(0)
    name = device.event().name
    made = {
        "a device": lambda: _core._IpcDevice(0),
        "a stream": device.stream,
        "an event": device.event,
        "an opened event": lambda: device.open_event(name),
    }
    found = {}
    def each():
        for what, call in made.items():
            try:
                call()
            except SystemExit:
                found[what] = "refused"
    _core._end()
    thread = threading.Thread(target=each, daemon=True)
    thread.start()
    thread.join(10)
    assert list(found) == list(made), found
"""


def test_the_calls_of_share_are_refused_once_the_interpreter_ends():
    assert_quiet(AFTER, prelude=PRELUDE)


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
        parts = [_block(text, one.start()) for one in re.finditer(r"#\[pymethods\]", text)]
        parts += [_block(text, one.start()) for one in re.finditer(r"#\[pyfunction", text)]
        for part in parts:
            for one in re.finditer(function, part, re.MULTILINE):
                body = _block(part, one.start())
                head = body[: body.index("{")]
                if "-> PyResult<" in head or "-> Answer<" in head:
                    found += 1
                    if not re.search(r"\b(entry|act|inside)\(", body):
                        bad.add(f"{name} {one[1]}")
    assert found > 50
    assert bad == WITHOUT
