"""The host's wait for all work, and ends that wait for work, over the driver of stubs.

The real driver's side is in tests/gpu/test_host_wait.py.
"""

from __future__ import annotations

import re
import textwrap
import time
from pathlib import Path

import pytest
from test_cuda_door import ROOT, run, symbols, without
from test_cuda_door import pytestmark as needs_the_driver_of_stubs

pytestmark = needs_the_driver_of_stubs

WAITS = """
    import threading, time
    logging.getLogger("cai_bridge").addHandler(logging.NullHandler())

    def wait():
        # Nothing keeps the stream of a bare handle alive, so the host waits at the end.
        to_cai(Array(MINE), stream=OTHER).release()

    def counted(what=wait):
        names = dict(
            load="cuModuleLoadData", unload="cuModuleUnload", free="cuMemFree_v2",
            free_host="cuMemFreeHost", asked="cuLaunchHostFunc",
        )
        before = {short: calls(name) for short, name in names.items()}
        what()
        assert calls("cuCtxSynchronize") == 0
        return {short: calls(name) - before[short] for short, name in names.items()}

    def mode():
        one = ctypes.c_uint(0)
        driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(one))
        was = one.value
        driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(one))
        return was

    BY_MODULE = dict(load=1, unload=1, free=0, free_host=0, asked=0)
    BY_MEMORY = dict(load=0, unload=0, free=1, free_host=0, asked=0)
"""


def waiting(body: str, **where: Path) -> None:
    """Run `body` beside what waits and counts."""
    run(textwrap.dedent(WAITS) + textwrap.dedent(body), **where)


# Unloading does not wait, which the first wait has seen in its three looks.
NOT_BY_MODULE = """
    say("unload_waits", 0)
    first = counted()
    assert first["free"] == 1, "held up for as long as the work takes, three times"
"""
STORIES = {
    "it unloads a module that was loaded before, and loads the next": """
        assert counted() == {**BY_MODULE, "load": 4, "unload": 3, "asked": 3}, "seen to wait"
        for _ in range(3):
            assert counted() == BY_MODULE
    """,
    # The stubs refuse each of the calls in any other mode than the relaxed one.
    "the thread is in its own mode again, whatever comes of it": """
        for code in (0, 1):
            for name in ("cuModuleUnload", "cuModuleLoadData", "cuMemFree_v2", "cuLaunchHostFunc"):
                fail(name, code)
                if name == "cuMemFree_v2":
                    fail("cuModuleUnload", code)
                try:
                    wait()
                except DriverError:
                    assert code
                assert mode() == 0, name
                fail(name, 0)
                fail("cuModuleUnload", 0)
    """,
    # The stubs abort where a module is unloaded in another life than it was loaded in.
    "each life of a context has a module of its own": """
        wait()
        for life in (8, 9):
            say("context_id", life)
            assert counted() == {**BY_MODULE, "load": 2}
            assert counted() == BY_MODULE
    """,
    "each context has a module of its own": """
        wait()
        say("ordinal", 1)
        far = lambda: to_cai(Array(0x2000_0000_0100), stream=0x2000_0000_0200).release()
        assert counted(far) == {**BY_MODULE, "load": 2}
        say("ordinal", 0)
        assert counted() == BY_MODULE
    """,
    "where unloading does not wait, memory is freed from then on": NOT_BY_MODULE
    + """
    looks = first["asked"]
    assert 1 <= looks <= 3
    assert first == dict(load=looks, unload=looks, free=1, free_host=0, asked=looks)
    for _ in range(3):
        assert counted() == BY_MEMORY
    """,
    "where device memory is out, host memory is freed": NOT_BY_MODULE
    + """
    fail("cuMemAlloc_v2", 2)
    assert counted() == {**BY_MEMORY, "free": 0, "free_host": 1}
    fail("cuMemAllocHost_v2", 2)
    assert "cuMemAllocHost: got CUDA_ERROR_OUT_OF_MEMORY" in refused(wait)
    """,
    "a broken context is told": """
        for name in ("cuMemAlloc_v2", "cuMemFree_v2"):
            fail("cuModuleUnload", 700)
            fail("cuModuleLoadData", 700)
            fail(name, 700)
            told = refused(wait)
            assert name.removesuffix("_v2") + ": got CUDA_ERROR_ILLEGAL_ADDRESS" in told, told
            assert mode() == 0
            fail(name, 0)
    """,
    "the interpreter goes on, and threads that wait load one module each": """
        wait()
        # What a stream of the program's runs on the host: until then, unloading waits.
        gone_on, begun = threading.Event(), threading.Event()

        @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        def until_told(_):
            begun.set()
            assert gone_on.wait(60), "nobody could run Python meanwhile"

        driver.cuLaunchHostFunc(None, until_told, None)
        begun.wait()

        def all_at_once():
            threads = [threading.Thread(target=wait) for _ in range(4)]
            for thread in threads:
                thread.start()
            time.sleep(0.05)
            assert all(thread.is_alive() for thread in threads)
            gone_on.set()
            for thread in threads:
                thread.join()

        assert counted(all_at_once) == {**BY_MODULE, "load": 4, "unload": 4}
    """,
}


@pytest.mark.parametrize("story", STORIES)
def test_the_hosts_wait(story):
    waiting(STORIES[story])


@pytest.mark.parametrize("symbol", [*symbols("ModuleCalls"), "cuCtxGetId"])
def test_where_an_entry_point_is_missing_memory_is_freed(symbol, tmp_path):
    """Where contexts have no numbers, too."""
    counts = "for _ in range(2): assert counted() == BY_MEMORY"
    waiting(counts, folder=without(symbol, tmp_path))


@pytest.mark.parametrize("code", [1, 2, 209, 221, 900, 4242])
@pytest.mark.parametrize(
    "name", ["cuModuleLoadData", "cuModuleUnload", "cuStreamCreate", "cuLaunchHostFunc"]
)
def test_what_fails_is_made_good_by_freeing_memory(name, code):
    waiting(f"""
        fail({name!r}, {code})
        assert counted()["free"] == 1
        fail({name!r}, 0)
        wait()
        assert counted() == BY_MODULE, "tried again"
        fail("cuModuleUnload", {code})
        assert counted()["free"] == 1
        fail("cuModuleUnload", 0)
        assert counted()["free"] == 0
        fail("cuModuleLoadData", {code})
        assert counted()["free"] == 1, "without a module for the next"
    """)


def test_nothing_calls_what_ends_captures():
    """`cuCtxSynchronize` ends every capture of the context, and kills beside other threads'."""
    named = []
    for source in sorted((ROOT / "src").rglob("*.rs")):
        code = re.sub(r"(?m)//.*$", "", source.read_text())
        if re.search(r"cuCtxSynchronize|ctx_synchronize|cuCtxRecordEvent", code):
            named.append(source.relative_to(ROOT / "src").as_posix())
    # A program's own call on the simulated device, by which it ends its own captures there.
    assert named == ["driver/simulated/entry_points.rs"]


PARKED = """
    import threading, time
    from cai_bridge import _core
    from cai_bridge.testing._kit.dlpack_abi import ManagedTensor

    class Owner:
        # A library that says nothing of its stream: its memory stays until its consumers are done.
        gone, begun = 0, threading.Event()

        def __dlpack_device__(self):
            return (2, 0)

        def __dlpack__(self, **_):
            return ManagedTensor(0x7000_0000).capsule()

        def __del__(self):
            Owner.gone += 1
            Owner.begun.set()
            self.end()

        def end(self):
            pass

    def park(stream=OTHER, owner=Owner):
        # An object of its own for each, which ends with the view.
        to_cai(owner(), stream=Stream(stream)).release()

    def until_gone(number, seconds):
        until = time.monotonic() + seconds
        while Owner.gone < number and time.monotonic() < until:
            time.sleep(0.01)
        assert Owner.gone == number

    say("reached", 0)
"""


def parked(body: str) -> str:
    return run(textwrap.dedent(PARKED) + textwrap.dedent(body))


ENDING = """
    class Ends(Owner):
        def end(self):
            {end}

    held = threading.Lock()
    held.acquire()
    park(owner=Ends)
    say("reached", 1)
    assert Owner.begun.wait(20)
"""


@pytest.mark.parametrize("blocks", ["time.sleep(3600)", "held.acquire()"])
def test_a_destructor_that_blocks_there_does_not_keep_the_process(blocks):
    told = parked(ENDING.format(end=blocks) + "    print(time.time())\n")
    assert time.time() - float(told) < 5


def test_a_destructor_that_takes_a_while_is_waited_for():
    # The bridge is there for it, too.
    end = "time.sleep(0.2); from_cai(Array()).__dlpack__(); print('done')"
    assert parked(ENDING.format(end=end)) == "done\n"


@pytest.mark.parametrize("streams", [1, 1000])
def test_a_backlog_costs_neither_calls_nor_the_thread_more_than_a_few_questions(streams):
    """5,000 ends wait for work on one stream, or on a thousand."""
    parked(f"""
        def queries(what):
            before = calls("cuEventQuery")
            what()
            return calls("cuEventQuery") - before

        def others():
            for _ in range(200):
                from_cai(Array()).__dlpack__()

        made = queries(lambda: [park(OTHER + 16 * (n % {streams})) for n in range(5_000)])
        # Each call asks four at most, and the thread 256 at a time, once in 50 ms.
        asked = queries(others)
        assert asked < 200 * 2 * 4 + 256 * 40, asked
        idle = queries(lambda: time.sleep(2))
        assert idle < min({streams} + 1, 256) * 60, idle
        assert made < 5_000 * 8 + min({streams}, 256) * 40 * 60, made
        assert Owner.gone == 0
        say("reached", 1)
        asked = queries(lambda: until_gone(5_000, seconds=60))
        assert asked < 5_000 + 2_000, asked
    """)
