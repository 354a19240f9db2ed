"""`cai-bridge perturb` sees each operation, however and by whichever process it is called."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from perturbing import CC, DRIVER, TWO, driver, needs, run, sides, source

from cai_bridge._cli import perturbed
from cai_bridge._cli.perturbed import LIBRARY, Program

__all__ = ["driver", "run"]

pytestmark = needs


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("way", ["symbol", "asked"])
def test_every_function_is_hooked_however_the_program_comes_by_it(way):
    called = {}
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


@pytest.mark.usefixtures("run")
def test_a_program_that_is_linked_with_the_driver_is_seen(driver, tmp_path):
    source, program = tmp_path / "linked.c", tmp_path / "linked"
    source.write_text(
        "unsigned cuMemsetD32Async(unsigned long long, unsigned, unsigned long, void *);\n"
        "static unsigned word;\n"
        "int main(void) { return cuMemsetD32Async((unsigned long long)&word, 1, 1, 0); }\n"
    )
    library = str(driver / "libcuda.so.1")
    subprocess.run([str(CC), str(source), library, "-o", str(program)], check=True)
    found = perturbed.run(Program((str(program),)), "serial")
    assert (found.status, found.functions["cuMemsetD32Async"], found.counts["seen"]) == (0, 1, 1)


def test_another_preloaded_library_stays(driver, monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", str(driver / "libcuda.so.1"))
    found = perturbed.run(Program(("sh", "-c", "echo $LD_PRELOAD")), "serial")
    assert found.lines == [f"{LIBRARY}:{driver / 'libcuda.so.1'}"]
    assert os.environ["LD_PRELOAD"] == str(driver / "libcuda.so.1")


def test_counts_outlast_a_process_that_is_killed(run):
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


# Programs, and how many operations of each are seen.
SEEN = {
    "a function from the driver's own lookup": (
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
        """,
        1,
    ),
    "forked workers, which end without their exit functions": (
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
        """,
        3,
    ),
    "a worker that is killed when the program ends": (
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
        """,
        2,
    ),
}


@pytest.mark.parametrize("name", SEEN)
def test_operations_of_every_process_are_seen(name, run):
    text, count = SEEN[name]
    status, found = run(text)
    assert status == 0, found
    assert [one["seen"] for one in found["runs"]] == [count] * 4


OVERWRITTEN = """
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_void_p
for name in [one for one in os.environ if one.startswith("CAI_BRIDGE_PERTURB_")]:
    ctypes.memset(getenv(name.encode()), ord("7"), len(os.environ[name]))
"""


@pytest.mark.parametrize("change", ["os.environ.clear()", OVERWRITTEN], ids=["cleared", "title"])
def test_a_program_that_changes_its_environment_is_seen(change, run):
    """As `setproctitle` does, which writes its title over it."""
    work = "launch('fill', a, x, 7)\nlaunch('copy', b, y, x)\nprint(read(y, b))"
    program = f"import ctypes, os\n{change}\n{TWO}\n{work}"
    status, found = run(program, named=True)
    assert (status, found["runs"][0]["seen"]) == (1, 3), found
    assert sides(found) == ["launch('fill', a, x, 7)", "launch('copy', b, y, x)"], found["race"]


def test_the_program_that_a_process_goes_on_with_is_told_from_the_one_before(run):
    """Both have the same process number, and the same numbers for their operations."""
    _, found = run(
        f"""
        import os, sys
        {TWO}
        if len(sys.argv) == 1:
            launch("fill", a, x, 1)
            order(a, b)
            launch("copy", b, y, x)
            read(y, b)
            os.execv(sys.executable, [sys.executable, __file__, "again"])
        launch("fill", a, x, 7)
        launch("copy", b, y, x)
        print(read(y, b))
        """,
        named=True,
    )
    race = found["race"]
    assert race, found
    for side, line in (("late", 'launch("fill", a, x, 7)'), ("early", 'launch("copy", b, y, x)')):
        told = {source(one) for one in (race[side], *race[side]["others"])}
        assert line in told, race
        assert all(len(one["stack"]) < 4 for one in (race[side], *race[side]["others"])), race


TESTS = """
    import time
    import pytest
    from soft import *

    @pytest.mark.parametrize("how", ["racy", "right", "a name - of words"])
    def test_it(how):
        a, b, x, y = stream(), stream(), word(), word()
        launch("fill", a, x, 7)
        end = time.monotonic() + 1
        if how != "racy":
            order(a, b)
        while how == "racy" and peek(x) != 7 and time.monotonic() < end:
            time.sleep(0.001)  # right by itself, however slow the thread that fills it
        launch("copy", b, y, x)
        assert read(y, b) == 7

    def test_it_is_pending():
        a, began = stream(), time.monotonic()
        launch("spin", a, 1_000_000)
        assert time.monotonic() - began < 1

    def test_fails():
        assert 0
    """


@pytest.mark.usefixtures("run")
def test_of_the_gpu_tests_those_that_fail_under_a_seed_alone_are_told(tmp_path):
    tests = tmp_path / "test_it.py"
    tests.write_text(textwrap.dedent(TESTS))
    command = [sys.executable, "-m", "tests.gpu.perturbed", "--processes", "1", "--delay", "3"]
    command += [str(tests), "-c", os.devnull, f"--rootdir={tmp_path}"]
    told = {"cwd": DRIVER.parents[1], "capture_output": True, "text": True, "timeout": 100}
    done = subprocess.run(command, check=False, **told)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("by itself: 4 passed, 1 failed, "), done
    said = [one.partition("::")[2] or one.partition(" + where")[0].strip() for one in lines[4:]]
    assert said == [
        "test_it[racy]",
        "seed 1: assert 0 == 7",
        "4 pass by themselves and ended in every run: 1 fail under a seed alone, 1 serially",
    ]
    assert done.returncode == 1


@pytest.mark.usefixtures("run")
def test_a_library_whose_path_has_a_space_or_a_colon_is_preloaded(tmp_path, monkeypatch):
    """Both end a name in LD_PRELOAD."""
    folder = tmp_path / "a b:c"
    folder.mkdir()
    monkeypatch.setattr(perturbed, "LIBRARY", Path(shutil.copy(LIBRARY, folder)))
    command = (sys.executable, str(DRIVER / "launches.py"), "symbol", "named")
    assert perturbed.run(Program(command), "serial").counts["seen"] > 0
