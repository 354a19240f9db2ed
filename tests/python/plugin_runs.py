"""Runs of pytest with the plugin, as an author of a library has them, and what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOY = "toy_library:Producer"
# Where a test is of the options and not of the verdicts: all requirements take three times as long.
ONE = ("-k", "cai-shape or cai-version")
# Where the package is not installed but found by its path, pytest does not know the plugin.
INSTALLED = any(one.value == "pytest_cai_bridge" for one in entry_points(group="pytest11"))
NAMED = ("-p", "pytest_cai_bridge")
# Last, so that `cai_bridge` itself is found where it was built.
OPTIONS = [] if INSTALLED else [ROOT / "python"]


def where(*places):
    """The environment of a run that finds these modules, and the plugin, and has no options."""
    path = [*map(str, places), os.environ.get("PYTHONPATH", ""), *map(str, OPTIONS)]
    own = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    own["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # other plugins take half a second to import
    return {**own, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def run(*arguments, cwd, program=(sys.executable, "-m", "pytest", *NAMED), **environment):
    command = [*program, "-c", "/dev/null", "--rootdir", cwd, "-q", "-rsfxX"]
    command += ["-p", "no:cacheprovider", "--pyargs", "cai_bridge.conformance", *arguments]
    places = (ROOT / "examples", ROOT / "tests" / "python", ROOT / "tests")
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=cwd,
        env={**where(*places), **environment},
    )
    return done.returncode, done.stdout + done.stderr


def counted(shown, what):
    """Count what pytest's last line says."""
    found = re.findall(rf"(\d+) {what}", shown.rstrip().rpartition("\n")[2])
    return int(found[-1]) if found else 0


def run_somebody_elses(folder, *options):
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "-q", "-p", "no:cacheprovider"]
    command += [*NAMED, "--rootdir", folder, folder, *options]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=where()
    )
    return done.returncode, done.stdout + done.stderr
