"""The figures of a run of the GPU tests, and when the last run is too long ago."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpu.figures import Figures, page, read, skipped_for
from gpu.since import changed, complaint

ROOT = Path(__file__).parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"

TESTS = """
import pytest

@pytest.fixture
def leaves():
    yield
    assert False

def test_passes(): pass
def test_passes_too(): pass
def test_fails(): assert False
def test_leaves(leaves): pass
@pytest.mark.parametrize("n", range(3))
def test_skips(n): pytest.skip("two GPUs are needed")
def test_has_no_library(): pytest.importorskip("no_such_library")
@pytest.mark.xfail(reason="known")
def test_is_expected_to_fail(): assert False
"""


@pytest.mark.parametrize("beside", [(), ("-n", "2")], ids=["one process", "two"])
def test_each_test_is_counted_once_by_its_outcome(tmp_path, beside):
    (tmp_path / "test_it.py").write_text(TESTS)
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", str(tmp_path)]
    command += ["-p", "no:cacheprovider", *beside, f"--junitxml={report}", str(tmp_path)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1
    figures = read(report, 2.0)
    assert str(figures) == "2 passed, 2 failed, 4 skipped, 1 xfailed in 2 s"
    first, second = figures.skips()
    assert first == "skipped 3: two GPUs are needed"
    assert second.startswith("skipped 1: could not import 'no_such_library'")
    assert figures.without("two GPUs").skipped.total() == 1
    names = skipped_for("two GPUs", report)
    assert sorted(names) == [f"test_it.py::test_skips[{n}]" for n in range(3)]


def written(commit=COMMIT, failed=0, options=""):
    figures = Figures(passed=7, failed=failed)
    return page(figures, str(figures), "1 x a GPU, driver 1.2, 8 cores", commit, options)


@pytest.fixture
def repository(tmp_path):
    """One commit of a source of 400 lines."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.rs").write_text("a();\n" * 400)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "a")
    return tmp_path


def git(folder, *arguments):
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(("lines", "too_many"), [(0, False), (300, False), (301, True)])
def test_after_300_changed_lines_of_the_source_the_tests_are_due(repository, lines, too_many):
    commit = git(repository, "rev-parse", "HEAD").strip()
    (repository / "src" / "a.rs").write_text("a();\n" * (400 - lines))
    (repository / "other").write_text("x\n" * 500)
    (repository / "src" / "testing").mkdir()
    (repository / "src" / "testing" / "b.rs").write_text("b();\n" * 500)
    (repository / "src" / "a.md").write_text("x\n" * 500)
    git(repository, "add", "--all")
    assert changed(commit, repository) == lines
    said = complaint(written(commit), repository)
    assert bool(said) == too_many
    assert not too_many or said == f"src: got 301 lines changed since {commit[:12]}; allowed: 300"


def test_a_last_run_that_failed_or_is_of_no_known_commit_is_not_enough(repository):
    commit = git(repository, "rev-parse", "HEAD").strip()
    assert complaint(written(commit, failed=1), repository).startswith("figures: got '7 passed, 1")
    assert "this clone does not have" in complaint(written(), repository)
    assert complaint(written("unknown"), repository).startswith("commit: got 'unknown'")
    assert complaint("", repository).startswith("commit: got ''")


def test_where_no_test_can_run_the_run_fails():
    command = [sys.executable, "-m", "tests.gpu", "--processes", "0"]
    command += ["tests/gpu/test_interpreter_lock.py", "tests/gpu/test_driver_twins.py"]
    environment = {"CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "no GPU test ran: 0 passed, 0 failed" in done.stdout
