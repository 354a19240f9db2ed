"""The real CUDA door over a driver of stubs (tests/fake_driver), on machines without a GPU.

Each test is a process of its own: the driver is found once in one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import cai_bridge

ROOT = Path(__file__).parents[2]
FAKES = ROOT / ".venv" / "fakes"
DRIVER = FAKES / "libcuda.so.1"
pytestmark = pytest.mark.skipif(
    not DRIVER.exists(), reason="the driver of stubs is not built: make fakes builds it"
)

PRELUDE = """
    import ctypes, gc, logging, sys, types
    import numpy as np
    driver = ctypes.CDLL("libcuda.so.1")
    driver.fake_driver_fail.argtypes = [ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint64]
    driver.fake_driver_say.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
    driver.fake_driver_calls.argtypes = [ctypes.c_char_p]
    driver.fake_driver_calls.restype = ctypes.c_uint64
    driver.fake_driver_name.argtypes = [ctypes.c_size_t]
    driver.fake_driver_name.restype = ctypes.c_char_p

    def fail(name, code, after=0):
        assert driver.fake_driver_fail(name.encode(), code, after) == 0, name

    def say(name, value):
        assert driver.fake_driver_say(name.encode(), value) == 0, name

    def calls(name=""):
        return driver.fake_driver_calls(name.encode())

    NAMES = []
    while (name := driver.fake_driver_name(len(NAMES))) is not None:
        NAMES.append(name.decode())

    from cai_bridge import DriverError, from_cai, to_cai, to_dlpack

    class Array:
        def __init__(self, stream=None, pointer=0x7000_0000):
            self.__cuda_array_interface__ = dict(
                shape=(2, 3), typestr="<f4", data=(pointer, False), version=3, strides=None,
                stream=stream,
            )

    class Stream:
        def __init__(self, handle):
            self.handle = handle
        def __cuda_stream__(self):
            return (0, self.handle)

    def module(name, **members):
        made = types.ModuleType(name)
        made.__dict__.update(members)
        sys.modules[name] = made
        return made

    MINE, OTHER = 0x5000_0000, 0x6000_0000

    def refused(call):
        try:
            call()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        raise AssertionError("not refused")
"""


def run(body: str, folder: Path = FAKES) -> str:
    """Run `body` over the driver of stubs in `folder`, and give what it printed."""
    source = textwrap.dedent(PRELUDE) + textwrap.dedent(body)
    package = Path(cai_bridge.__file__).parents[1]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": f"{package}:{FAKES}"}
    done = subprocess.run(
        [sys.executable, "-c", source],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def without(symbol: str, folder: Path) -> Path:
    """Copy the driver without the entry point, as an older one is."""
    copied = folder / "libcuda.so.1"
    shutil.copy(DRIVER, copied)
    text = copied.read_bytes()
    # The name in the table of symbols alone: another of the same length, which nobody looks up.
    wanted = b"\0" + symbol.encode() + b"\0"
    assert wanted in text, symbol
    copied.write_bytes(text.replace(wanted, b"\0" + b"x" * len(symbol) + b"\0"))
    return folder


def symbols(table: str) -> list[str]:
    """The entry points in a table of the door."""
    source = (ROOT / "src" / "driver" / "cuda" / "calls.rs").read_text()
    (_, found) = source.split(f"calls! {{ {table}:", 1)
    names = re.findall(r"= (cu\w+): fn", found.split("\n}\n", 1)[0])
    assert names, table
    return names


def test_an_order_is_one_event_recorded_and_waited_for() -> None:
    run("""
        view = from_cai(Array(MINE))
        before = {name: calls(name) for name in NAMES}
        capsule = view.__dlpack__(stream=Stream(OTHER))
        made = {name: calls(name) - before[name] for name in NAMES}
        assert made["cuEventRecord"] == made["cuStreamWaitEvent"] == 1, made
        assert made["cuModuleUnload"] == 0, made
        del capsule
    """)


def test_the_memory_goes_back_by_an_order_too() -> None:
    run("""
        view = to_cai(Array(MINE), stream=Stream(OTHER))
        records, waits = calls("cuEventRecord"), calls("cuStreamWaitEvent")
        view.release()
        assert calls("cuEventRecord") == records + 1
        assert calls("cuStreamWaitEvent") == waits + 1
    """)


def test_an_event_is_used_again_but_not_in_another_life_of_its_context() -> None:
    run("""
        def once():
            to_cai(Array(MINE), stream=Stream(OTHER)).release()

        once()
        made = calls("cuEventCreate")
        for _ in range(10):
            once()
        assert calls("cuEventCreate") == made
        say("context_id", 8)
        once()
        assert calls("cuEventCreate") > made
    """)


@pytest.mark.parametrize("symbol", ["cuGetErrorName", *symbols("Calls")])
def test_a_driver_without_an_entry_point_is_refused_by_its_name(
    symbol: str, tmp_path: Path
) -> None:
    told = run("print(refused(lambda: from_cai(Array())))", without(symbol, tmp_path))
    assert "DriverError" in told or "BufferError" in told
    assert symbol in told


def test_a_driver_from_before_contexts_had_numbers_works(tmp_path: Path) -> None:
    run(
        """
        to_cai(Array(MINE), stream=Stream(OTHER)).release()
        assert "cuCtxGetId" not in NAMES
        """,
        without("cuCtxGetId", tmp_path),
    )


WORKS_THERE = """
    import types
    from cai_bridge import Library, register

    HANDLE = 0x5000_1000
    sys.modules["mine"] = types.ModuleType("mine")
    sys.modules["mine"].Array = type("Array", (), {})

    class Mine(Library):
        name, arrays = "mine", ("mine:Array",)

        def make(self, view, stream):
            raise NotImplementedError

        def current_stream(self, device):
            return HANDLE

    register(Mine())
    view = to_cai(Array(stream=MINE), stream=HANDLE)
"""


def test_a_stream_with_another_number_is_not_the_one_that_had_its_handle() -> None:
    run(
        WORKS_THERE
        + """
    waits = calls("cuModuleUnload")
    say("stream_id", 2)
    view.release()
    assert calls("cuModuleUnload") == waits + 3, "its first wait looks three times"
    """
    )


def test_a_stream_with_the_same_number_is_the_one_that_was_named() -> None:
    run(
        WORKS_THERE
        + """
    waits, records = calls("cuModuleUnload"), calls("cuEventRecord")
    view.release()
    assert calls("cuModuleUnload") == waits
    assert calls("cuEventRecord") > records
    """
    )


def test_a_driver_from_before_streams_had_numbers_takes_a_handle_for_the_stream(
    tmp_path: Path,
) -> None:
    body = """
    assert "cuStreamGetId" not in NAMES
    waits = calls("cuModuleUnload")
    view.release()
    assert calls("cuModuleUnload") == waits
    """
    run(WORKS_THERE + body, without("cuStreamGetId", tmp_path))


@pytest.mark.parametrize("symbol", symbols("CopyCalls"))
def test_a_driver_without_a_copy_still_hands_memory_over(symbol: str, tmp_path: Path) -> None:
    run(
        f"""
        view = from_cai(Array(MINE))
        view.__dlpack__(stream=Stream(OTHER))
        told = refused(lambda: view.__dlpack__(copy=True))
        assert {symbol!r} in told, told
        """,
        without(symbol, tmp_path),
    )


@pytest.mark.parametrize(
    ("code", "named"),
    [
        (100, "CUDA_ERROR_NO_DEVICE"),
        (3, "CUDA_ERROR_NOT_INITIALIZED"),
        (4242, "an unknown error"),
    ],
)
def test_a_driver_that_does_not_start_is_said_to_be_none(code: int, named: str) -> None:
    told = run(f"""
        fail("cuInit", {code})
        told = refused(lambda: from_cai(Array()))
        print(told)
        # It is not asked again: a machine does not grow a driver.
        fail("cuInit", 0)
        assert refused(lambda: from_cai(Array())) == told
    """)
    assert named in told or "fork" in told


def test_a_driver_that_shows_no_device_is_said_to_be_none() -> None:
    told = run("""
        say("devices", 0)
        print(refused(lambda: from_cai(Array())))
    """)
    assert "no device" in told


@pytest.mark.parametrize("code", [1, 2, 201, 400, 700, 709, 906, 4242, 0xFFFF_FFFF])
def test_whatever_an_entry_point_answers_is_an_error_and_all_works_again(code: int) -> None:
    run(f"""
        from cai_bridge import _core
        logging.getLogger("cai_bridge").addHandler(logging.NullHandler())

        def use():
            view = from_cai(Array(MINE))
            capsule = view.__dlpack__(stream=Stream(OTHER))
            copied = view.__dlpack__(stream=Stream(OTHER), copy=True)
            dictionary = to_cai(Array(MINE), stream=Stream(OTHER)).__cuda_array_interface__
            assert dictionary["stream"] == OTHER
            to_cai(Array()).__cuda_array_interface__

        use()
        failed = set()
        for name in NAMES:
            for after in range(6):
                fail(name, {code}, after)
                try:
                    use()
                except DriverError as error:
                    # 906 is what the legacy stream beside a capture answers.
                    is_named = name.split("_")[0] in str(error) or "graph capture" in str(error)
                    assert is_named, (name, error)
                    failed.add(name)
                fail(name, 0)
                gc.collect()
                _core._settle()
                use()
        assert {{"cuPointerGetAttributes", "cuEventRecord", "cuStreamWaitEvent"}} <= failed, failed
    """)


def test_the_pointer_tells_whose_memory_it_is() -> None:
    told = run("""
        assert from_cai(Array()).device == (2, 0)
        say("ordinal", 1)
        assert from_cai(Array()).device == (2, 1)
        say("managed", 1)
        assert from_cai(Array()).device == (13, 0)
        say("managed", 0)
        say("memory_type", 1)
        assert from_cai(Array()).device == (3, 0)
        say("memory_type", 0)
        print(refused(lambda: from_cai(Array())))
    """)
    assert "which CUDA does not know" in told


def test_a_stream_of_another_device_is_refused() -> None:
    told = run("print(refused(lambda: to_cai(Array(MINE), stream=0x3000_0000_0000)))")
    assert "of device 1 for an array on device 0" in told


def test_a_stream_that_is_captured_is_not_made_to_wait_at_the_end() -> None:
    run("""
        logging.getLogger("cai_bridge").addHandler(logging.NullHandler())
        from cai_bridge import _core
        view = to_cai(Array(MINE), stream=Stream(OTHER))
        say("capturing", 1)
        waits = calls("cuStreamWaitEvent")
        view.__cuda_array_interface__
        del view
        say("capturing", 0)
        gc.collect()
        assert _core._settle() == 0
    """)


def test_a_thread_without_a_context_is_left_without_one() -> None:
    run("""
        say("current", 0)
        to_cai(Array(MINE), stream=Stream(OTHER)).release()
        current = ctypes.c_void_p(1)
        assert driver.cuCtxGetCurrent(ctypes.byref(current)) == 0
        assert current.value is None
    """)


def test_the_work_of_a_context_that_is_gone_is_let_go_of() -> None:
    told = run("""
        class Heard(logging.Handler):
            def emit(self, record):
                print(record.getMessage())
        logging.getLogger("cai_bridge").addHandler(Heard())
        from cai_bridge import _core
        view = to_cai(Array(MINE), stream=Stream(OTHER))
        fail("cuEventRecord", 709)
        del view
        gc.collect()
        assert _core._settle() == 0
    """)
    assert "could not be given back in order" in told


def test_a_stream_of_torchs_pool_that_another_thread_takes_while_it_is_listed_is_of_the_pool() -> (
    None
):
    said = run(
        """
        import types
        made = 0

        class PoolStream:
            @staticmethod
            def priority_range():
                return (0, 0)

            def __init__(self, device, priority):
                global made
                # The third of the pool goes to another thread while this one lists it.
                made += 2 if made == 2 else 1
                self.cuda_stream = 0x5000_0000 + 16 * ((made - 1) % 4)

        torch = types.ModuleType("torch")
        torch.Tensor = type("Tensor", (), {})
        torch.cuda = types.ModuleType("torch.cuda")
        torch.cuda.Stream, torch.cuda.is_initialized = PoolStream, lambda: True
        sys.modules["torch"], sys.modules["torch.cuda"] = torch, torch.cuda
        for number in range(4):
            view = to_cai(Array(stream=1), stream=0x5000_0000 + 16 * number)
            view.release()
        print(calls("cuModuleUnload"))
        view = to_cai(Array(stream=1), stream=0x5000_1000)
        view.release()
        print(calls("cuModuleUnload"))
        """
    )
    assert said.split() == ["0", "3"], "the first wait looks three times"
