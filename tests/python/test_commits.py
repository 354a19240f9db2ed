"""The check of commit messages."""

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[2] / "make" / "commits.py"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("A view's end waits for the consumer", ""),
        ("x" * 72, ""),
        ("A subject\n\nA body, " + "x" * 100, ""),
        ("\n# what git says\nA subject\n# and more\n\nA body\n", ""),
        ("Updates of the table are one step", ""),
        ("x" * 73, "subject: got 73 characters; allowed: 72"),
        ("wip", "subject: got 'wip'; allowed: what changes"),
        ("WIP: streams", "subject: got 'WIP: streams'; allowed"),
        ("fixup! A view", "subject: got 'fixup! A view'; allowed"),
        ("Update.", "subject: got 'Update.'; allowed"),
        ("# only what git says", "subject: got ''; allowed"),
        ("A subject\nthat goes on", "second line: got 'that goes on'; allowed: an empty line"),
    ],
)
def test_a_message_says_what_changes(tmp_path, message, said):
    file = tmp_path / "message"
    file.write_text(message)
    command = [sys.executable, str(CHECK), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == bool(said)
    assert done.stderr.startswith(f"commit message: {said}" if said else "")
    assert said or not done.stderr
