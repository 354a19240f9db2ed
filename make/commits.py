"""Whether commit messages say what changes, on one line that fits.

    python make/commits.py FILE    a message, as git's hook commit-msg gives it
    python make/commits.py         the commits since the last tag, the last hundred at most

`make dev` installs the hook, and `make lint` checks the commits. Those before this file are not
looked at.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONGEST, MOST = 72, 100
# Placeholders, which do not say what changes.
UNNAMED = re.compile(
    r"wip\b|(fixup|squash|amend)!|(update|fix(es)?|changes?|misc)\W*$", re.IGNORECASE
)


def complaint(message: str) -> str:
    """Say what is wrong with a message, if anything is."""
    subject, *body = message.splitlines() or [""]
    if len(subject) > LONGEST:
        return f"subject: got {len(subject)} characters; allowed: {LONGEST}"
    if not subject.strip() or UNNAMED.match(subject.strip()):
        return f"subject: got {subject!r}; allowed: what changes, in plain words"
    if body and body[0].strip():
        return f"second line: got {body[0]!r}; allowed: an empty line before the body"
    return ""


def git(*arguments: str) -> str:
    """Ask git; nothing is the answer if it fails."""
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def since() -> str:
    """Find the commits to check: those after the last tag and after this file began."""
    began = git("log", "--diff-filter=A", "--format=%H", "--", "make/commits.py").split()
    if not began:
        return ""
    tag = git("describe", "--tags", "--abbrev=0").strip()
    ends = [f"^{one}" for one in (*began, tag) if one]
    return git("log", "--no-merges", f"--max-count={MOST}", "-z", "--format=%H%n%B", "HEAD", *ends)


def main() -> None:
    """Check one message, or the commits."""
    if len(sys.argv) > 1:
        lines = Path(sys.argv[1]).read_text().splitlines()
        message = "\n".join(line for line in lines if not line.startswith("#")).lstrip("\n")
        if wrong := complaint(message):
            sys.exit(f"commit message: {wrong}")
        return
    wrong = []
    for commit in filter(None, since().split("\0")):
        name, _, message = commit.partition("\n")
        if said := complaint(message):
            wrong.append(f"{name[:12]}: {said}")
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
