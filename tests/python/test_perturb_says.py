"""`cai-bridge perturb`: what it says, of programs that it cannot judge too, and what it refuses."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from perturbing import CC, DRIVER, Perturb, driver, needs, run, seeds

from cai_bridge._cli import perturb, perturbed

__all__ = ["driver", "run"]

pytestmark = needs


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
    out = re.sub(r"stream 0x[0-9a-f]+", "stream 0x7f0000000010", out)
    out = out.replace(f"{DRIVER}/", "").replace("./soft.py", "soft.py")
    page = DRIVER / "race.txt"
    if os.environ.get("PERTURB_WRITE"):
        page.write_text(out)
    assert (status, out) == (1, page.read_text())


def test_a_program_without_cuda_cannot_be_judged(run: Perturb) -> None:
    status, found = run("print(1)")
    assert (status, len(found["runs"])) == (2, 1)
    assert found["conclusion"] == "0 operations seen: the program did not call the CUDA driver"


def test_work_without_the_environment_is_said_to_be_so(run: Perturb) -> None:
    _, found = run(
        """
        import os, sys
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(1)"], {})
        """
    )
    real = os.path.realpath(sys.executable)
    assert f"{real} ran without LD_PRELOAD" in found["conclusion"]


def test_a_static_program_is_said_to_be_so(
    driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_program_that_differs_from_itself_cannot_be_judged(run: Perturb) -> None:
    text = "import time\nx, s = word(), stream()\nlaunch('fill', s, x, 1)\nprint(time.time_ns())"
    status, found = run(text)
    assert (status, len(found["runs"])) == (2, 2)
    assert "two serial runs differ" in found["conclusion"]


def test_a_program_that_fails_cannot_be_judged(run: Perturb) -> None:
    status, found = run("x, s = word(), stream()\nlaunch('fill', s, x, 1)\nraise SystemExit('why')")
    assert status == 2
    assert found["conclusion"].endswith(
        "exit status 1, as without the command if stdin is empty: why"
    )


def test_a_program_that_fails_under_the_command_alone_is_said_to(run: Perturb) -> None:
    text = """
        import os
        launch("fill", stream(), word(), 1)
        raise SystemExit("LD_PRELOAD" in os.environ)
        """
    status, found = run(text)
    assert status == 2
    assert (
        "exit status 1, but without the command it ended with exit status 0: "
        in found["conclusion"]
    )


@pytest.mark.parametrize(
    ("program", "how"),
    [
        (["false"], "ended with exit status 1"),
        (["sh", "-c", "kill -SEGV $$"], "was killed by SIGSEGV"),
    ],
)
def test_a_program_that_ends_without_a_word_is_said_to(
    program: list[str], how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from cai_bridge._cli.command import main

    assert main(["perturb", "--", *program]) == 2
    told = f"the serial run {how}, as without the command if stdin is empty: nothing on stderr\n"
    assert capsys.readouterr().out.endswith(told)


def test_a_seed_that_kills_the_program_is_said_to(run: Perturb) -> None:
    status, found = run(
        """
        import os
        launch("fill", stream(), word(), 1)
        print(1)
        if os.environ["CAI_BRIDGE_PERTURB_MODE"] == "late":
            os.abort()
        """
    )
    assert status == 1
    assert "in its end, killed by SIGABRT against exit status 0: " in found["conclusion"]


@pytest.mark.parametrize(
    ("arguments", "write"),
    [
        ([], "python train.py"),
        (["--seeds", "2", "--"], "python train.py"),
        (["x.py", "--lr", "3"], "python x.py --lr 3"),
        (["--", "x.py"], "python x.py"),
    ],
)
def test_what_is_no_program_is_told_what_to_write(
    arguments: list[str], write: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from cai_bridge._cli.command import main

    assert main(["perturb", *arguments]) == 2
    assert capsys.readouterr().err.endswith(f"write: cai-bridge perturb [options] -- {write}\n")


@pytest.mark.parametrize("before", [[], ["--"]])
def test_what_follows_the_program_is_its_own(
    before: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from cai_bridge._cli.command import main

    text = "import sys; sys.exit(str(sys.argv[1:]))"
    program = [sys.executable, "-c", text, "--seeds", "x", "--", "--json"]
    assert main(["perturb", "--seeds", "2", *before, *program]) == 2
    assert "ty: ['--seeds', 'x', '--', '--json']" in capsys.readouterr().out


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


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--seeds", "0"),
        ("--tolerance", "1"),
        ("--tolerance", "-0.1"),
        ("--delay", "0"),
        ("--delay", "1e-7"),
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


@pytest.mark.usefixtures("run")
def test_a_program_that_hangs_with_late_work_alone_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
