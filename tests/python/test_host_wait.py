"""The host's wait for all work, over the driver of stubs: what it is made by, and what else.

The real driver's side is in tests/gpu/test_host_wait.py.
"""

from __future__ import annotations

import re
import textwrap
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
        names = (
            "cuModuleLoadData", "cuModuleUnload", "cuMemAlloc_v2", "cuMemFree_v2",
            "cuMemAllocHost_v2", "cuMemFreeHost", "cuLaunchHostFunc",
        )
        before = [calls(name) for name in names]
        what()
        made = [calls(name) - once for name, once in zip(names, before)]
        assert calls("cuCtxSynchronize") == 0
        return dict(load=made[0], unload=made[1], free=made[3], free_host=made[5], asked=made[6])

    def mode():
        one = ctypes.c_uint(0)
        driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(one))
        was = one.value
        driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(one))
        return was

    BY_MODULE = dict(load=1, unload=1, free=0, free_host=0, asked=0)
    BY_MEMORY = dict(load=0, unload=0, free=1, free_host=0, asked=0)
"""


def waiting(body: str, folder: Path | None = None) -> str:
    """Run `body` beside what waits and counts."""
    source = textwrap.dedent(WAITS) + textwrap.dedent(body)
    return run(source) if folder is None else run(source, folder)


def where_unloading_does_not_wait(body: str) -> None:
    """Run `body` after the first wait has seen that unloading does not wait, in its three looks."""
    seen = """
        say("unload_waits", 0)
        first = counted()
        assert first["free"] == 1, "held up for as long as the work takes, three times"
    """
    waiting(textwrap.dedent(seen) + textwrap.dedent(body))


def test_it_unloads_a_module_that_was_loaded_before_and_loads_the_next() -> None:
    waiting("""
        assert counted() == {**BY_MODULE, "load": 4, "unload": 3, "asked": 3}, "seen to wait"
        for _ in range(3):
            assert counted() == BY_MODULE
    """)


def test_the_thread_is_in_its_own_mode_again_whatever_comes_of_it() -> None:
    """The stubs refuse each of the calls in any other mode than the relaxed one."""
    waiting("""
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
    """)


def test_each_life_of_a_context_has_a_module_of_its_own() -> None:
    """The stubs abort where a module is unloaded in another life than it was loaded in."""
    waiting("""
        wait()
        for life in (8, 9):
            say("context_id", life)
            assert counted() == {**BY_MODULE, "load": 2}
            assert counted() == BY_MODULE
    """)


def test_each_context_has_a_module_of_its_own() -> None:
    waiting("""
        wait()
        say("ordinal", 1)
        far = lambda: to_cai(Array(0x2000_0000_0100), stream=0x2000_0000_0200).release()
        assert counted(far) == {**BY_MODULE, "load": 2}
        say("ordinal", 0)
        assert counted() == BY_MODULE
    """)


def test_where_unloading_does_not_wait_memory_is_freed_from_then_on() -> None:
    where_unloading_does_not_wait("""
        looks = first["asked"]
        assert 1 <= looks <= 3
        assert first == dict(load=looks, unload=looks, free=1, free_host=0, asked=looks)
        for _ in range(3):
            assert counted() == BY_MEMORY
    """)


@pytest.mark.parametrize("symbol", symbols("ModuleCalls"))
def test_where_an_entry_point_is_missing_memory_is_freed(symbol: str, tmp_path: Path) -> None:
    waiting(
        """
        for _ in range(2):
            made = counted()
            assert (made["free"], made["asked"], made["free_host"]) == (1, 0, 0), made
        """,
        without(symbol, tmp_path),
    )


def test_where_contexts_have_no_numbers_memory_is_freed(tmp_path: Path) -> None:
    waiting("assert counted() == BY_MEMORY", without("cuCtxGetId", tmp_path))


@pytest.mark.parametrize("code", [1, 2, 209, 221, 900, 4242])
@pytest.mark.parametrize(
    "name", ["cuModuleLoadData", "cuModuleUnload", "cuStreamCreate", "cuLaunchHostFunc"]
)
def test_what_fails_is_made_good_by_freeing_memory(name: str, code: int) -> None:
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


def test_where_device_memory_is_out_host_memory_is_freed() -> None:
    where_unloading_does_not_wait("""
        fail("cuMemAlloc_v2", 2)
        assert counted() == {**BY_MEMORY, "free": 0, "free_host": 1}
        fail("cuMemAllocHost_v2", 2)
        assert "cuMemAllocHost: got CUDA_ERROR_OUT_OF_MEMORY" in refused(wait)
    """)


@pytest.mark.parametrize("name", ["cuMemAlloc_v2", "cuMemFree_v2"])
def test_a_broken_context_is_told(name: str) -> None:
    waiting(f"""
        fail("cuModuleUnload", 700)
        fail("cuModuleLoadData", 700)
        fail({name!r}, 700)
        told = refused(wait)
        assert {name!r}.removesuffix("_v2") + ": got CUDA_ERROR_ILLEGAL_ADDRESS" in told, told
        assert mode() == 0
    """)


def test_the_interpreter_goes_on_and_threads_that_wait_load_one_module_each() -> None:
    waiting("""
        wait()
        # What a stream of the program's runs on the host: until then, unloading waits.
        gone_on, begun = threading.Event(), threading.Event()
        HOST = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

        @HOST
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
    """)


def test_nothing_calls_what_ends_captures() -> None:
    """`cuCtxSynchronize` ends every capture of the context, and kills beside other threads'."""
    named = []
    for source in sorted((ROOT / "src").rglob("*.rs")):
        code = re.sub(r"(?m)//.*$", "", source.read_text())
        if re.search(r"cuCtxSynchronize|ctx_synchronize|cuCtxRecordEvent", code):
            named.append(source.relative_to(ROOT / "src").as_posix())
    # A program's own call on the simulated device, by which it ends its own captures there.
    assert named == ["driver/simulated/entry_points.rs"]
