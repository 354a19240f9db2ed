"""`cai-bridge perturb`: what it compares, what it says, and what it refuses."""

import dataclasses
import os
import re
import subprocess
import sys

import pytest
from perturbing import CC, DRIVER, TWO, driver, needs, run, seeds

from cai_bridge._cli import perturb, perturbed
from cai_bridge._cli.command import main
from cai_bridge._cli.perturbed import same

__all__ = ["driver", "run"]

pytestmark = needs


def test_numbers_are_the_same_within_the_tolerance_and_text_exactly():
    assert same("loss 1.000 at 3", "loss 1.001 at 3", 0.01)
    assert not same("loss 1.000 at 3", "loss 1.001 at 3", 0.0001)
    assert not same("loss 1.000", "lost 1.000", 0.5)
    assert not same("1 2", "1", 0.5)
    assert same("1e999 1.0", "1e999 1.1", 0.2)


@pytest.mark.parametrize("what", ["bytes([0x80 + value, 10])", "(300 * '.' + str(value)).encode()"])
def test_bytes_that_are_no_text_and_the_end_of_a_long_line_are_compared_and_shown(what, run):
    status, found = run(
        f"""
        import sys
        {TWO}
        launch("fill", a, x, 1)
        launch("copy", b, y, x)
        value = read(y, b)
        sys.stdout.buffer.write({what})
        """
    )
    assert status == 1, found
    one, other = found["conclusion"].split("line 1: ")[1].split(" against ")
    assert one != other, found


FILL = "x, s = word(), stream()\nlaunch('fill', s, x, 1)\n"
CHECKPOINTS = ("--compare", "checkpoints")
# A program, the options, the exit status, and what the conclusion has.
CONCLUSIONS = {
    "no CUDA": (
        *("print(1)", (), 2),
        "^0 operations seen: the program did not call the CUDA driver$",
    ),
    "another environment": (
        """
        import os, sys
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(1)"], {})
        """,
        *((), 2, f"{re.escape(os.path.realpath(sys.executable))} ran without LD_PRELOAD"),
    ),
    "two serial runs differ": (
        *(FILL + "print(time.time_ns())", (), 2),
        "two serial runs differ",
    ),
    "it fails": (
        *(FILL + "raise SystemExit('why')", (), 2),
        "exit status 1, as without the command if stdin is empty: why$",
    ),
    "it fails under the command alone": (
        *(FILL + "import os\nraise SystemExit('LD_PRELOAD' in os.environ)", (), 2),
        "exit status 1, but without the command it ended with exit status 0: ",
    ),
    "a seed kills it": (
        """
        import os
        launch("fill", stream(), word(), 1)
        print(1)
        if os.environ["CAI_BRIDGE_PERTURB_MODE"] == "late": os.abort()
        """,
        *((), 1, "in its end, killed by SIGABRT against exit status 0: "),
    ),
    "no output": (FILL + "print(7)", ("--match", "nothing"), 2, "nothing to compare"),
    "too long": (
        *(FILL + "time.sleep(60)", ("--timeout", "1"), 2),
        "^the serial run was ended after 1.0 s",
    ),
    "checkpoints of host arrays": (
        """
        import ctypes, numpy
        from cai_bridge.testing import checkpoint
        a, x, h = stream(), word(), pinned()
        launch("fill", a, x, 1)
        call("cuMemcpyAsync", h, x, 8, a)
        checkpoint("h", numpy.frombuffer((ctypes.c_char * 8).from_address(h), "u8").copy())
        """,
        *(CHECKPOINTS, 1, r"'h' uint64 \(1,\)"),
    ),
    "checkpoints of a worker": (
        """
        import multiprocessing, numpy
        from cai_bridge.testing import checkpoint
        launch("fill", stream(), word(), 1)
        made = multiprocessing.get_context("fork").Process
        worker = made(target=checkpoint, args=("in a worker", numpy.array([1])))
        worker.start()
        worker.join()
        """,
        *(CHECKPOINTS, 0, ""),
    ),
}


@pytest.mark.parametrize("name", CONCLUSIONS)
def test_the_conclusion(name, run):
    text, options, expected, said = CONCLUSIONS[name]
    status, found = run(text, *options)
    assert status == expected, found
    assert re.search(said, found["conclusion"]), found


def test_what_could_not_be_delayed_is_said(run):
    fill = "launch('fill', s, x, 1)\n"
    text = f"x, s = word(), stream()\ncuda.soft_fail()\n{fill * 2}print(7)"
    status, found = run(text, "--delay", "5")
    # The second is not late either: the gate of the first is not there.
    counted = [seeds(found)[1][name] for name in ("failed", "late", "gates")]
    assert (status, counted) == (2, [2, 0, 0]), found
    assert "no operation could be delayed" in found["conclusion"]


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
        ("from cai_bridge.testing import checkpoint; checkpoint('my 1', X(y, b))", "my"),
    ],
)
def test_what_the_bridge_hands_over_is_a_checkpoint_of_itself(call, name, run):
    compare = ("--compare", "checkpoints", "--seeds", "2")
    status, found = run(HANDED_OVER % ("pass", call), *compare)
    assert status == 1, found
    assert f"'{name} 1' uint64 (1,)" in found["conclusion"]
    assert run(HANDED_OVER % ("order(a, b)", call), *compare)[0] == 0


def test_a_checkpoint_does_nothing_without_the_command(monkeypatch):
    from cai_bridge.testing import checkpoint

    monkeypatch.delenv("CAI_BRIDGE_PERTURB_LOG", raising=False)
    checkpoint("x", object())


def test_the_output_is_as_on_the_page(driver, monkeypatch, capfd):
    """The page's is of a GPU. `PERTURB_WRITE=1` writes the file anew."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    monkeypatch.chdir(DRIVER)
    monkeypatch.setenv("PYTHONPATH", ".")
    status = main(["perturb", "--", sys.executable, "race.py"])
    out = re.sub(r"\d+\.\d\d s", "0.10 s", capfd.readouterr().out)
    # On a busy machine a gate's time may be up before the host's wait opens it.
    out = re.sub(r"(?m)^(seed 1 .* 3 +3 +)\d", r"\g<1>1", out)
    out = re.sub(r"named by \d+ runs", "named by 9 runs", out)
    out = re.sub(r"stream 0x[0-9a-f]+", "stream 0x7f0000000010", out)
    out = out.replace(f"{DRIVER}/", "").replace("./soft.py", "soft.py")
    page = DRIVER / "race.txt"
    if os.environ.get("PERTURB_WRITE"):
        page.write_text(out)
    assert (status, out) == (1, page.read_text())


def ran(captured, *words):
    """Run the command here; its exit status and what it prints."""
    status = main([*words])
    return status, *captured.readouterr()


def test_a_static_program_is_said_to_be_so(driver, tmp_path, monkeypatch):
    # In a process of its own: the loader reads LD_LIBRARY_PATH at its start.
    source, made = tmp_path / "program.c", tmp_path / "program"
    source.write_text("#include <unistd.h>\nint main(void) { return usleep(200000); }")
    command = [str(CC), "-static", str(source), "-o", str(made)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no static C library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    for words in ([str(made)], ["sh", "-c", f"{made}; true"]):
        for name in ("perturb", "races"):
            told = [sys.executable, "-m", "cai_bridge", name, "--", *words]
            done = subprocess.run(told, capture_output=True, text=True, check=False)
            assert done.returncode == 2, done
            assert f"{made}" in done.stdout, done
            assert "is linked statically" in done.stdout, done


ENDED = "the serial run {}, as without the command if stdin is empty: nothing on stderr\n"
WRITE = "write: cai-bridge perturb [options] -- {}\n"
ITS_OWN = [sys.executable, "-c", "import sys; sys.exit(str(sys.argv[1:]))", "--seeds", "x", "--"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        # A program that ends without a word.
        (["--", "false"], ENDED.format("ended with exit status 1")),
        (["--", "sh", "-c", "kill -SEGV $$"], ENDED.format("was killed by SIGSEGV")),
        # What is no program is told what to write.
        ([], WRITE.format("python train.py")),
        (["--seeds", "2", "--"], WRITE.format("python train.py")),
        (["x.py", "--lr", "3"], WRITE.format("python x.py --lr 3")),
        (["--", "x.py"], WRITE.format("python x.py")),
        (["--", "/no/such/program"], "/no/such/program: No such file"),
        # What follows the program is its own.
        (["--seeds", "2", *ITS_OWN], "ty: ['--seeds', 'x', '--']"),
        (["--seeds", "2", "--", *ITS_OWN], "ty: ['--seeds', 'x', '--']"),
        *(
            ([f"{option}={value}", "--", "true"], f"{option}: got")
            for option, values in {
                "--seeds": ["0"],
                "--tolerance": ["1", "-0.1"],
                "--delay": ["0", "1e-7", "11"],
                "--timeout": ["0"],
                "--match": ["("],
            }.items()
            for value in values
        ),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_what_is_refused_or_ends_without_a_word_is_said(words, said, capsys):
    status, out, errors = ran(capsys, "perturb", *words)
    assert status == 2
    assert said in out + errors


def test_without_its_library_the_command_says_how_to_build_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(perturbed, "LIBRARY", tmp_path / "none.so")
    status, _, errors = ran(capsys, "perturb", "--", "true")
    assert status == 2
    assert "make perturb" in errors


@pytest.mark.usefixtures("run")
def test_a_program_that_hangs_with_late_work_alone_is_told(tmp_path, monkeypatch):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, time\nfrom soft import *\nlaunch('fill', stream(), word(), 1)\nprint(1)\n"
        "if os.environ['CAI_BRIDGE_PERTURB_MODE'] == 'late': time.sleep(100)\n"
    )
    monkeypatch.setattr(perturbed, "_PATIENCE", (1, 1))
    asked = perturbed.Program((sys.executable, str(program)))
    verdict = perturb.judge(asked, 1, lambda *_: None)
    assert (verdict.status, verdict.rows[-1].verdict) == (1, "hangs")
    assert re.match("under seed 0 it twice ran for longer than .* s, where", verdict.conclusion)
    limited = perturb.judge(dataclasses.replace(asked, timeout=1), 1, lambda *_: None)
    assert (limited.status, limited.rows[-1].verdict) == (2, "timed out")
