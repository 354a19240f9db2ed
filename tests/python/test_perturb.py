"""`cai-bridge perturb` over a driver in software, in which each stream is a thread.

The driver is tests/software_driver. Each run is a process of its own, with the library that ships
preloaded and the driver loaded as libcuda.so.1.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cai_bridge._cli import perturb, perturbed
from cai_bridge._cli.perturbed import LIBRARY, Program, same

DRIVER = Path(__file__).parents[1] / "software_driver"
CC = shutil.which("cc")
pytestmark = pytest.mark.skipif(
    not (LIBRARY.exists() and CC), reason="make perturb builds the library; cc builds the driver"
)
Perturb = Callable[..., tuple[int, dict[str, Any]]]

TWO = "a, b, x, y = stream(), stream(), word(), word()"
# Racy programs and their right twins: the twin's line replaces the one marked, or follows it.
RACY = {
    "a write and a read on two streams": f"""
        {TWO}
        for i in range(1, 4):
            launch("fill", a, x, i)
            {{wait}}
            launch("copy", b, y, x)
            print(read(y, b))
            order(b, a)
        """,
    "a read and the next write": f"""
        {TWO}
        for i in range(1, 4):
            launch("fill", a, x, i)
            order(a, b)
            launch("copy", b, y, x)
            {{back}}
            launch("fill", a, x, 777)
            print(read(y, b))
        """,
    "pinned memory that the host reads": """
        a, x, h = stream(), word(), pinned()
        for i in range(1, 4):
            launch("fill", a, x, i)
            call("cuMemcpyAsync", h, x, 8, a)
            {host}
            time.sleep(0.01)  # the host does something else
            print(peek(h))
            call("cuStreamSynchronize", a)
        """,
    "a non-blocking stream and the legacy one": """
        a, x, y = stream(), word(), word()
        for i in range(1, 4):
            launch("fill", a, x, i)
            {legacy}
            launch("copy", 0, y, x)
            print(read(y, 0))
        """,
    "a graph whose input is written elsewhere": f"""
        {TWO}
        call("cuStreamBeginCapture_v2", b, 0)
        launch("copy", b, y, x)
        graph = ended(b)
        for i in range(1, 4):
            launch("fill", a, x, i)
            {{wait}}
            call("cuGraphLaunch", graph, b)
            print(read(y, b))
            order(b, a)
        """,
    "a thread's own default stream": """
        a, x, y = stream(), word(), word()
        for i in range(1, 4):
            launch("fill", a, x, i)
            {own}
            launch("copy", 0, y, x, symbol="cuLaunchKernel_ptsz")
            print(read(y, PER_THREAD))
            order(PER_THREAD, a)
        """,
}
WAITS = {
    "wait": "order(a, b)",
    "back": "order(b, a)",
    "host": 'call("cuStreamSynchronize", a)',
    "legacy": "order(a, LEGACY)",
    "own": "order(a, PER_THREAD)",
}
NO_WAITS = dict.fromkeys(WAITS, "pass")


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    command = [str(CC), "-O1", "-shared", "-fPIC", "-pthread", "-o", str(folder / "libcuda.so.1")]
    subprocess.run([*command, str(DRIVER / "cuda.c")], check=True)
    return folder


@pytest.fixture
def run(driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Perturb:
    """Runs the command on a program, and returns the exit status and what it says."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    monkeypatch.setenv("PYTHONPATH", str(DRIVER))

    def perturb(text: str, *options: str, named: bool = False) -> tuple[int, dict[str, Any]]:
        program = tmp_path / "program.py"
        program.write_text(f"from soft import *\n{textwrap.dedent(text)}")
        command = [sys.executable, "-m", "cai_bridge", "perturb", "--json", *options]
        command += [*([] if named else ["--no-name"]), "--", sys.executable, str(program)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return perturb


def seeds(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in found["runs"] if one["run"].startswith("seed")]


@pytest.mark.parametrize("name", RACY)
def test_a_racy_program_differs_within_the_covering_seeds(name: str, run: Perturb) -> None:
    status, found = run(RACY[name].format(**NO_WAITS))
    assert status == 1, found
    assert "a wait is missing" in found["conclusion"]


# The late operation, and the early one; of the second of two `fill` the source tells which.
NAMES = {
    "a write and a read on two streams": ('launch("fill", a, x, i)', 'launch("copy", b, y, x)'),
    "a read and the next write": ('launch("copy", b, y, x)', 'launch("fill", a, x, 777)'),
    "pinned memory that the host reads": (None, None),
    "a non-blocking stream and the legacy one": (
        'launch("fill", a, x, i)',
        'launch("copy", 0, y, x)',
    ),
    "a graph whose input is written elsewhere": (
        'launch("fill", a, x, i)',
        'call("cuGraphLaunch", graph, b)',
    ),
    "a thread's own default stream": (
        'launch("fill", a, x, i)',
        'launch("copy", 0, y, x, symbol="cuLaunchKernel_ptsz")',
    ),
}


@pytest.mark.parametrize("name", RACY)
def test_the_two_operations_are_named_with_their_lines(name: str, run: Perturb) -> None:
    def source(side: dict[str, Any] | None) -> str | None:
        lines = [frame[3] for frame in side["stack"] if "program.py" in frame[0]] if side else []
        return lines[-1] if lines else None

    _, found = run(RACY[name].format(**NO_WAITS), named=True)
    race = found["race"]
    assert race, found
    late, early = NAMES[name]
    assert source(race["early"]) == early, race
    if late:
        assert source(race["late"]) == late, race
    else:
        assert race["late"]["function"] in {"cuLaunchKernel", "cuMemcpyAsync"}, race


def test_a_hand_over_between_the_two_lines_is_named(run: Perturb) -> None:
    _, found = run(
        """
        class cupy:
            asarray = staticmethod(lambda x: x)
        a, b, x, y = stream(), stream(), word(), word()
        for i in range(1, 4):
            launch("fill", a, x, i)
            z = cupy.asarray(x)
            launch("copy", b, y, z)
            print(read(y, b))
            order(b, a)
        """,
        named=True,
    )
    assert found["race"]["advice"].startswith("between them: z = cupy.asarray(x)\n")
    assert "handed over by CAI" in found["race"]["advice"]


@pytest.mark.parametrize("name", RACY)
def test_with_the_wait_it_never_differs(name: str, run: Perturb) -> None:
    status, found = run(RACY[name].format(**WAITS), "--seeds", "14")
    assert status == 0, found
    assert sum(one["gates"] for one in found["runs"]) > 0


def test_seeds_cover_as_many_streams_as_the_program_has(run: Perturb) -> None:
    text = "x = word()\nfor s in [stream() for _ in range(5)]: launch('fill', s, x, 1)\nprint(1)"
    status, found = run(text)
    assert (status, len(seeds(found))) == (0, 6), found


def test_a_capture_is_left_alone(run: Perturb) -> None:
    status, found = run(
        """
        a, b, x, y = stream(), stream(), word(), word()
        launch("fill", b, y, 1)
        call("cuStreamBeginCapture_v2", a, 0)
        for i in range(20):
            launch("fill", a, x, i)
            launch("fill", b, y, i)
            read(y, b)
        ended(a)
        print(cuda.soft_count(2))
        """
    )
    assert status == 0, found
    assert all(one["captured"] == 20 for one in found["runs"])
    # A stream on which the program only captures needs no seed.
    assert all(one["streams"] == 1 for one in found["runs"])


def test_a_gate_opens_when_its_time_is_up_though_the_host_never_waits_for_it(run: Perturb) -> None:
    status, found = run(
        """
        import time
        a, h = stream(), pinned()
        launch("fill", a, h, 1)
        ends = time.monotonic() + 20
        while not peek(h) and time.monotonic() < ends:
            time.sleep(0.001)
        print(peek(h), cuda.soft_count(1) < 500_000_000)
        """
    )
    assert status == 0, found
    assert [one["opened"] for one in seeds(found)] == [0, 0]
    assert [one["gates"] for one in seeds(found)] == [0, 1]


def test_a_host_that_waits_opens_the_gate_at_once(run: Perturb) -> None:
    text = (
        "a, x = stream(), word()\nfor i in range(20):\n launch('fill', a, x, i)\n print(read(x, a))"
    )
    status, found = run(text, "--delay", "5")
    assert status == 0, found
    assert seeds(found)[1]["opened"] == 20
    assert seeds(found)[1]["seconds"] < 20


def test_before_a_gate_opens_all_that_it_does_not_hold_up_runs(run: Perturb) -> None:
    text = """
        a, b, x, y = stream(), stream(), word(), word()
        launch("fill", a, x, 1)
        launch("spin", b, 20_000)  # microseconds
        launch("copy", b, y, x)
        call("cuCtxSynchronize")
        print(read(y, b))
        """
    status, found = run(text, "--delay", "5")
    assert status == 1, found


def test_a_program_without_cuda_cannot_be_judged(run: Perturb) -> None:
    status, found = run("print(1)")
    assert (status, len(found["runs"])) == (2, 1)
    assert found["conclusion"].startswith("0 operations seen")


def test_a_program_that_differs_from_itself_cannot_be_judged(run: Perturb) -> None:
    text = "import time\nx, s = word(), stream()\nlaunch('fill', s, x, 1)\nprint(time.time_ns())"
    status, found = run(text)
    assert (status, len(found["runs"])) == (2, 2)
    assert "two serial runs differ" in found["conclusion"]


def test_a_program_that_fails_cannot_be_judged(run: Perturb) -> None:
    status, found = run("x, s = word(), stream()\nlaunch('fill', s, x, 1)\nraise SystemExit('why')")
    assert status == 2
    assert found["conclusion"].endswith("exit status 1, as it does without the command: why")


def test_a_program_that_fails_under_the_command_alone_is_said_to(run: Perturb) -> None:
    text = """
        import os
        launch("fill", stream(), word(), 1)
        raise SystemExit("LD_PRELOAD" in os.environ)
        """
    status, found = run(text)
    assert status == 2
    assert "exit status 1, but without the command it ends with 0: " in found["conclusion"]


def test_a_program_without_output_cannot_be_judged(run: Perturb) -> None:
    text = "x, s = word(), stream()\nlaunch('fill', s, x, 1)\nprint(7)"
    status, found = run(text, "--match", "nothing")
    assert status == 2
    assert "nothing to compare" in found["conclusion"]


def test_what_could_not_be_delayed_is_said(run: Perturb) -> None:
    fill = "launch('fill', s, x, 1)\n"
    text = f"x, s = word(), stream()\ncuda.soft_fail()\n{fill * 2}print(7)"
    status, found = run(text, "--delay", "5")
    # The second is not late either: the gate of the first is not there.
    counted = [seeds(found)[1][name] for name in ("failed", "late", "gates")]
    assert (status, counted) == (2, [2, 0, 0]), found
    assert "no operation could be delayed" in found["conclusion"]


def test_a_run_that_takes_too_long_is_ended(run: Perturb) -> None:
    text = "import time\nx, s = word(), stream()\nlaunch('fill', s, x, 1)\ntime.sleep(60)"
    status, found = run(text, "--timeout", "1")
    assert status == 2
    assert found["conclusion"].startswith("the serial run was ended after 1.0 s")


def test_forked_workers_are_counted_though_they_end_without_their_exit_functions(
    run: Perturb,
) -> None:
    status, found = run(
        """
        import os
        x, s = word(), stream()
        launch("fill", s, x, 1)
        for i in range(2):
            if not (child := os.fork()):
                x, s = word(), stream()
                launch("fill", s, x, i)
                os._exit(0)
            os.waitpid(child, 0)
        print(1)
        """
    )
    assert status == 0, found
    assert [one["seen"] for one in found["runs"]] == [3, 3, 3, 3]


def test_counts_outlast_a_process_that_is_killed(run: Perturb) -> None:
    status, found = run(
        """
        import os, signal
        for i in range(3):
            launch("fill", stream(), word(), i)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    assert (status, found["runs"][0]["exit_status"]) == (2, -9), found
    assert (found["runs"][0]["seen"], found["runs"][0]["streams"]) == (3, 3)


def test_a_worker_that_is_killed_when_the_program_ends_is_counted(run: Perturb) -> None:
    status, found = run(
        """
        import os
        x, s = word(), stream()
        launch("fill", s, x, 1)
        come, go = os.pipe()
        if not os.fork():
            launch("fill", stream(), word(), 1)
            os.write(go, b".")
            time.sleep(100)
        print(os.read(come, 1))
        """
    )
    assert status == 0, found
    assert [one["seen"] for one in found["runs"]] == [2, 2, 2, 2]


BESIDE = """
    import threading
    for mode in (0, 1, 2):
        for flags in (0, NON_BLOCKING):
            for in_a_thread in (False, True):
                c, a, b, x, y, z = stream(flags), stream(), stream(0), word(), word(), word()
                call("cuStreamBeginCapture_v2", c, mode)
                launch("fill", c, x, 5)
                def beside():
                    launch("spin", a, 20_000)  # microseconds
                    launch("fill", a, y, 7)
                    {order}
                    launch("copy", b, z, y)
                if in_a_thread:
                    thread = threading.Thread(target=beside)
                    thread.start()
                    thread.join()
                else:
                    beside()
                graph = ended(c)
                {host}
                print(mode, flags, in_a_thread, peek(z))
                call("cuCtxSynchronize")
                call("cuGraphLaunch", graph, c)
                print(read(x, c))
    assert not cuda.soft_count(4)
    """


@pytest.mark.parametrize("racy", [False, True])
def test_beside_a_capture_in_any_mode_the_host_does_not_wait(run: Perturb, racy: bool) -> None:
    right = {"order": "order(a, b)", "host": 'call("cuStreamSynchronize", b)'}
    none = dict.fromkeys(right, "pass")
    status, found = run(BESIDE.format(**(none if racy else right)), "--seeds", "2")
    assert status == racy, found
    if racy:
        # In the reference each operation waits for the one before, and the capture's end for all.
        assert "False 0' against '0 0 False 7'" in found["conclusion"]


# As torch.cuda.graph captures: on a stream of its own, with an allocator that asks for the capture
# and allocates in the relaxed mode, a backward pass in a thread, and a fork that joins.
TORCHS = """
    import threading
    main, own, fork, x, y = stream(), stream({flags}), stream(), word(), word()
    call("cuThreadExchangeStreamCaptureMode", byref(c_uint(0)))
    launch("fill", own, x, 1)
    order(own, main)
    call("cuCtxSynchronize")
    call("cuStreamBeginCapture_v2", own, {mode})
    relaxed, capturing = c_uint(2), c_uint()
    call("cuThreadExchangeStreamCaptureMode", byref(relaxed))
    call("cuStreamIsCapturing", c_uint64(own), byref(capturing))
    assert capturing.value == 1
    z = word()
    call("cuThreadExchangeStreamCaptureMode", byref(relaxed))
    launch("copy", own, z, x)
    backward = threading.Thread(target=launch, args=("add", own, y, z))
    backward.start()
    backward.join()
    order(own, fork)
    launch("add", fork, y, z)
    order(fork, own)
    launch("copy", own, z, y)
    graph = ended(own)
    for i in range(3):
        launch("fill", main, x, i + 2)
        {order}
        call("cuGraphLaunch", graph, own)
        order(own, main)
        print(read(z, main))
    assert not cuda.soft_count(2)
    """


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("flags", [0, 1])
def test_a_program_captures_as_torch_does(run: Perturb, mode: int, flags: int) -> None:
    text = TORCHS.format(mode=mode, flags=flags, order="order(main, own)")
    status, found = run(text, "--seeds", "2")
    assert status == 0, found
    assert {one["captured"] for one in found["runs"]} == {4}, found
    racy = TORCHS.format(mode=mode, flags=flags, order="pass")
    assert run(racy, "--seeds", "2")[0] == 1


@pytest.mark.parametrize("way", ["symbol", "asked"])
def test_every_function_is_hooked_however_the_program_comes_by_it(
    way: str, driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    called: dict[str, int] = {}
    for where in ("named", "own", "legacy"):
        command = (sys.executable, str(DRIVER / "launches.py"), way, where)
        serial = perturbed.run(Program(command), "serial")
        late = perturbed.run(Program(command, delay=5), "late", seed=1)
        assert (serial.status, late.status) == (0, 0), serial.errors + late.errors
        assert {one.split()[1] for one in serial.lines} == {"done"}, serial.lines
        pending = {one.split()[0] for one in late.lines if one.endswith("pending")}
        assert pending == (LATE if where == "named" else LATE | LATE_BY_DEFAULT)
        assert late.counts["gates"] == late.counts["late"] >= len(pending)
        assert late.counts["failed"] == 0
        for name, times in serial.functions.items():
            called[name] = called.get(name, 0) + times
    assert [name for name, times in called.items() if not times] == []


LATE = {
    *("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuGraphLaunch"),
    *("cuLaunchHostFunc", "cuStreamAddCallback", "cuMemcpyAsync", "cuMemcpyHtoDAsync_v2"),
    *("cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpy2DAsync_v2", "cuMemcpy3DAsync_v2"),
    *("cuMemcpyPeerAsync", "cuMemcpy3DPeerAsync", "cuMemcpyBatchAsync", "cuMemcpyBatchAsync_v2"),
    *("cuMemcpy3DBatchAsync", "cuMemcpy3DBatchAsync_v2", "cuMemsetD8Async", "cuMemsetD16Async"),
    *("cuMemsetD32Async", "cuMemsetD2D8Async", "cuMemsetD2D16Async", "cuMemsetD2D32Async"),
    *("cuMemFreeAsync", "cuMemPrefetchAsync", "cuMemPrefetchAsync_v2"),
    *("cuStreamWriteValue32_v2", "cuStreamWriteValue64_v2"),
}
LATE_BY_DEFAULT = {"cuMemcpyDtoD_v2", "cuMemsetD8_v2", "cuMemsetD16_v2", "cuMemsetD32_v2"}


def test_the_output_is_as_on_the_page(
    driver: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The page's is of a GPU. `PERTURB_WRITE=1` writes the file anew."""
    from cai_bridge._cli.command import main

    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    monkeypatch.chdir(DRIVER)
    monkeypatch.setenv("PYTHONPATH", ".")
    status = main(["perturb", "--", sys.executable, "race.py"])
    out = re.sub(r"\d+\.\d\d s", "0.10 s", capfd.readouterr().out)
    # On a busy machine a gate's time may be up before the host's wait opens it.
    out = re.sub(r"(?m)^(seed 1 .* 3 +3 +)\d", r"\g<1>1", out)
    out = re.sub(r"named by \d+ runs", "named by 9 runs", out)
    out = out.replace(f"{DRIVER}/", "").replace("./soft.py", "soft.py")
    page = DRIVER / "race.txt"
    if os.environ.get("PERTURB_WRITE"):
        page.write_text(out)
    assert (status, out) == (1, page.read_text())


def test_a_program_that_is_linked_with_the_driver_is_seen(
    driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, program = tmp_path / "linked.c", tmp_path / "linked"
    source.write_text(
        "unsigned cuMemsetD32Async(unsigned long long, unsigned, unsigned long, void *);\n"
        "static unsigned word;\n"
        "int main(void) { return cuMemsetD32Async((unsigned long long)&word, 1, 1, 0); }\n"
    )
    library = str(driver / "libcuda.so.1")
    subprocess.run([str(CC), str(source), library, "-o", str(program)], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    found = perturbed.run(Program((str(program),)), "serial")
    assert (found.status, found.functions["cuMemsetD32Async"], found.counts["seen"]) == (0, 1, 1)


def test_a_function_of_the_hosts_that_needs_pythons_lock_does_not_hang_the_program(
    run: Perturb,
) -> None:
    status, found = run(
        """
        import ctypes
        seen, a, x = [], stream(), word()
        call_back = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: seen.append(1))
        launch("fill", a, x, 1)
        locked = ctypes.PyDLL("libcuda.so.1")  # keeps Python's lock, as some libraries do
        locked.cuLaunchHostFunc(c_uint64(a), call_back, None)
        call("cuStreamSynchronize", a)
        print(seen)
        """,
        "--timeout",
        "20",
    )
    assert status == 0, found


def test_a_kernel_that_waits_for_the_host_does_not_hang_the_program(run: Perturb) -> None:
    """After a second of waiting the reference orders what comes next on the device."""
    status, found = run(
        """
        import ctypes
        a, b, x, y, flag = stream(), stream(), word(), word(), pinned()
        for step in range(1, 3):
            # It ends when the flag is as high as the step, or after a minute.
            launch("gate", a, flag, step, 1 << 62, 60_000_000_000)
            launch("fill", a, x, step)
            {wait}
            launch("copy", b, y, x)
            ctypes.c_uint64.from_address(flag).value = step
            print(read(y, b))
        """.format(wait="order(a, b)"),
        "--timeout",
        "20",
    )
    assert status == 0, found
    assert found["runs"][0]["seconds"] < 10, found


def test_a_function_from_the_drivers_own_lookup_is_seen(run: Perturb) -> None:
    status, found = run(
        """
        import ctypes
        found = ctypes.c_void_p()
        none = c_uint64(0)
        call("cuGetProcAddress_v2", b"cuLaunchKernel", ctypes.byref(found), 12000, none, None)
        kind = ctypes.CFUNCTYPE(c_uint, *[c_uint64], *[c_uint] * 7, c_uint64, c_void_p, c_void_p)
        x, s = word(), stream()
        values = [c_uint64(x), c_uint64(1)]
        addresses = (c_void_p * 2)(*[ctypes.addressof(one) for one in values])
        kind(found.value)(3, 1, 1, 1, 1, 1, 1, 0, s, ctypes.addressof(addresses), None)
        print(1)
        """
    )
    assert status == 0, found
    assert [one["seen"] for one in found["runs"]] == [1, 1, 1, 1]


def test_checkpoints_of_host_arrays_are_compared(run: Perturb) -> None:
    text = """
        import ctypes, numpy
        from cai_bridge.testing import checkpoint
        a, x, h = stream(), word(), pinned()
        launch("fill", a, x, 1)
        call("cuMemcpyAsync", h, x, 8, a)
        checkpoint("h", numpy.frombuffer((ctypes.c_char * 8).from_address(h), "u8").copy())
        """
    status, found = run(text, "--compare", "checkpoints")
    assert status == 1, found
    assert "'h' uint64 (1,)" in found["conclusion"]


def test_checkpoints_of_a_worker_are_compared(run: Perturb) -> None:
    text = """
        import multiprocessing, numpy
        from cai_bridge.testing import checkpoint
        launch("fill", stream(), word(), 1)
        made = multiprocessing.get_context("fork").Process
        worker = made(target=checkpoint, args=("in a worker", numpy.array([1])))
        worker.start()
        worker.join()
        """
    status, found = run(text, "--compare", "checkpoints")
    assert status == 0, found


HANDED_OVER = """
    import cai_bridge
    a, b, x, y = stream(), stream(), word(), word()
    class X:
        def __init__(self, pointer, stream):
            data = (pointer, False)
            self.__cuda_array_interface__ = {"shape": (1,), "typestr": "<u8", "data": data,
                                             "version": 3, "stream": stream}
    @cai_bridge.adapt(to="cai")
    def take(v):
        return None
    for i in range(1, 4):
        launch("fill", a, x, i)
        %s
        launch("copy", b, y, x)
        %s
        call("cuStreamSynchronize", a)
        call("cuStreamSynchronize", b)
    """


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("v = cai_bridge.from_cai(X(y, b))", "from_cai"),
        ("v = cai_bridge.to_cai(X(y, b))", "to_cai"),
        ("v = cai_bridge.to_dlpack(X(y, b))", "to_dlpack"),
        ("v = cai_bridge.convert([X(y, b)], 'cai')", "convert"),
        ("take(X(y, b))", "adapt take"),
    ],
)
def test_what_the_bridge_hands_over_is_a_checkpoint_of_itself(
    call: str, name: str, run: Perturb
) -> None:
    compare = ("--compare", "checkpoints")
    status, found = run(HANDED_OVER % ("pass", call), *compare)
    assert status == 1, found
    assert f"'{name} 1' uint64 (1,)" in found["conclusion"]
    assert run(HANDED_OVER % ("order(a, b)", call), *compare)[0] == 0


TESTS = """
    import time
    import pytest
    from soft import *

    @pytest.mark.parametrize("how", ["racy", "right", "a name - of words"])
    def test_it(how):
        a, b, x, y = stream(), stream(), word(), word()
        launch("fill", a, x, 7)
        if how != "racy":
            order(a, b)
        launch("copy", b, y, x)
        assert read(y, b) == 7

    def test_it_is_pending():
        a, began = stream(), time.monotonic()
        launch("spin", a, 300_000)
        assert time.monotonic() - began < 0.3

    def test_fails():
        assert 0
    """


def test_of_the_gpu_tests_those_that_fail_under_a_seed_alone_are_told(
    driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = tmp_path / "test_it.py"
    tests.write_text(textwrap.dedent(TESTS))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    monkeypatch.setenv("PYTHONPATH", str(DRIVER))
    command = [sys.executable, "-m", "tests.gpu.perturbed", "--processes", "1", "--delay", "1"]
    command += [str(tests), "-c", os.devnull, f"--rootdir={tmp_path}"]
    root = DRIVER.parents[1]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=False, timeout=100
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("by itself: 4 passed, 1 failed, "), done
    said = [one.partition("::")[2] or one.partition(" + where")[0].strip() for one in lines[4:]]
    assert said == [
        "test_it[racy]",
        "seed 1: assert 0 == 7",
        "4 pass by themselves and ended in every run: 1 fail under a seed alone, 1 serially",
    ]
    assert done.returncode == 1


def test_a_checkpoint_does_nothing_without_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    from cai_bridge.testing import checkpoint

    monkeypatch.delenv("CAI_BRIDGE_PERTURB_LOG", raising=False)
    checkpoint("x", object())


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--seeds", "0"),
        ("--tolerance", "1"),
        ("--tolerance", "-0.1"),
        ("--delay", "0"),
        ("--delay", "11"),
        ("--timeout", "0"),
        ("--match", "("),
    ],
)
def test_an_option_out_of_its_range_is_refused(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from cai_bridge._cli.command import main

    assert main(["perturb", f"{option}={value}", "--", "true"]) == 2
    assert f"{option}: got" in capsys.readouterr().err


def test_numbers_are_the_same_within_the_tolerance_and_text_exactly() -> None:
    assert same("loss 1.000 at 3", "loss 1.001 at 3", 0.01)
    assert not same("loss 1.000 at 3", "loss 1.001 at 3", 0.0001)
    assert not same("loss 1.000", "lost 1.000", 0.5)
    assert not same("1 2", "1", 0.5)


@pytest.mark.parametrize(
    ("streams", "seeds"), [(0, 2), (1, 2), (2, 2), (3, 4), (4, 4), (5, 6), (64, 12), (1000, 12)]
)
def test_the_number_of_covering_seeds(streams: int, seeds: int) -> None:
    assert perturb.covering(streams) == seeds


def test_a_program_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    from cai_bridge._cli.command import main

    assert main(["perturb", "--", "/no/such/program"]) == 2
    assert "/no/such/program: No such file" in capsys.readouterr().err


def test_without_its_library_the_command_says_how_to_build_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from cai_bridge._cli.command import main

    monkeypatch.setattr(perturbed, "LIBRARY", tmp_path / "none.so")
    assert main(["perturb", "--", "true"]) == 2
    assert "make perturb" in capsys.readouterr().err


def test_another_preloaded_library_stays(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", str(driver / "libcuda.so.1"))
    found = perturbed.run(Program(("sh", "-c", "echo $LD_PRELOAD")), "serial")
    assert found.lines == [f"{LIBRARY}:{driver / 'libcuda.so.1'}"]
    assert os.environ["LD_PRELOAD"] == str(driver / "libcuda.so.1")
