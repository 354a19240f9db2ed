"""That nothing grows, and that a process ends quietly whatever is still alive."""

import ctypes
import gc
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path

import pytest
from fakes import OnlyCai, interface

from cai_bridge import from_cai, to_cai

ROUNDS = 10_000


class Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def heap():
    """The bytes that C and Rust have allocated; where glibc does not tell, the resident bytes."""
    try:
        info = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    info.restype = Mallinfo
    said = info()
    return said.uordblks + said.hblkhd


def rounds_of(call, cuda):
    for turn in range(ROUNDS):
        call()
        if turn % 500 == 0:
            # The simulated device notes every call of its driver.
            cuda.clear_calls()
    cuda.clear_calls()
    gc.collect()


def refuse(x):
    try:
        to_cai(x, stream=0)
    except ValueError:
        return
    pytest.fail("taken")


CALLS = {
    "to_cai of the exchange API": ("exchange", to_cai),
    "to_cai of a method": ("dlpack", to_cai),
    "to_cai of a legacy method": ("dlpack-legacy", to_cai),
    "to_cai of CAI": ("cai", to_cai),
    "the dict": ("exchange", lambda x: to_cai(x).__cuda_array_interface__),
    "from_cai": ("cai", from_cai),
    "a capsule": ("cai", lambda x: from_cai(x).__dlpack__()),
    "a versioned capsule": ("cai", lambda x: from_cai(x).__dlpack__(max_version=(1, 3))),
    "there and back": ("exchange", lambda x: to_cai(from_cai(to_cai(x)).__dlpack__())),
    "many dimensions": ("cai", lambda x: from_cai(x).__dlpack__()),
    "a refusal": ("dlpack", refuse),
    "released": ("cai", lambda x: from_cai(x).release()),
}


@pytest.mark.parametrize("call", CALLS)
def test_ten_thousand_conversions_leave_nothing_behind(call, cuda):
    speaks, convert = CALLS[call]
    x = cuda.array(shape=(1,) * 9 if call == "many dimensions" else 4, speaks=speaks)
    rounds_of(lambda: convert(x), cuda)
    before = heap()
    tracemalloc.start()
    try:
        python = tracemalloc.get_traced_memory()[0]
        rounds_of(lambda: convert(x), cuda)
        grown = tracemalloc.get_traced_memory()[0] - python
    finally:
        tracemalloc.stop()
    # A single pointer a round would be 80,000 bytes.
    assert grown < 20_000
    assert heap() - before < 60_000
    assert x.exports == 0


def test_types_of_producers_come_and_go(cuda):
    x = cuda.array(shape=4)

    def convert():
        kind = type("Fleeting", (OnlyCai,), {})
        return from_cai(kind(interface(x)))

    for _ in range(200):
        convert()
    gc.collect()
    alive = len(OnlyCai.__subclasses__())
    for _ in range(200):
        convert()
    gc.collect()
    # Those that were seen last are remembered.
    assert len(OnlyCai.__subclasses__()) <= alive <= 64


# --- the end of a process -------------------------------------------------------------------------

PRELUDE = """
    import sys, threading
    sys.path.insert(0, {here!r})
    import capsules, tables
    from cai_bridge import DLPackView, from_cai, to_cai
    from cai_bridge.testing import simulated_cuda
    cuda = simulated_cuda(check=False).__enter__()
    x = cuda.array([1.0] * 4, speaks=("exchange", "dlpack", "cai"))
"""
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
    "an exit in a with block": """
        with to_cai(x) as view:
            sys.exit(0)
    """,
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_ends_quietly_with(ending):
    prelude = textwrap.dedent(PRELUDE).format(here=str(Path(__file__).parent))
    done = subprocess.run(
        [
            sys.executable,
            "-X",
            "dev",
            "-W",
            "error",
            "-c",
            prelude + textwrap.dedent(ENDINGS[ending]),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stderr, done.stdout, done.returncode) == ("", "", 0)
