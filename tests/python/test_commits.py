"""The check of commit messages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[2] / "make" / "commits.py"


def checked(tmp_path: Path, message: str) -> str:
    file = tmp_path / "message"
    file.write_text(message)
    command = [sys.executable, str(CHECK), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == bool(done.stderr)
    return done.stderr.strip()


@pytest.mark.parametrize(
    "message",
    [
        "A view's end waits for the consumer",
        "x" * 72,
        "A subject\n\nA body, " + "x" * 100,
        "\n# what git says\nA subject\n# and more\n\nA body\n",
        "Updates of the table are one step",
    ],
)
def test_a_message_that_says_what_changes_is_accepted(tmp_path: Path, message: str) -> None:
    assert checked(tmp_path, message) == ""


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("x" * 73, "subject: got 73 characters; allowed: 72"),
        ("wip", "subject: got 'wip'; allowed: what changes"),
        ("WIP: streams", "subject: got 'WIP: streams'; allowed"),
        ("fixup! A view", "subject: got 'fixup! A view'; allowed"),
        ("Update.", "subject: got 'Update.'; allowed"),
        ("# only what git says", "subject: got ''; allowed"),
        ("A subject\nthat goes on", "second line: got 'that goes on'; allowed: an empty line"),
    ],
)
def test_a_message_that_does_not_is_refused(tmp_path: Path, message: str, said: str) -> None:
    assert checked(tmp_path, message).startswith(f"commit message: {said}")
