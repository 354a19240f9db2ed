"""Run a command while the README's links are absolute, as an index of packages shows it.

    python make/absolute_links.py COMMAND ...

An index shows the README without the files that it links to. `base-url` of `[tool.cai_bridge]` in
pyproject.toml is where these are; while it is empty, links stay as they are.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
RELATIVE = re.compile(r"(\]\(|src=\")(?![a-z]+:|#|/)([^)\"\s]+)")


def absolute(text: str, base: str) -> str:
    """Put `base` in front of each link to a file of the repository."""
    if not base:
        return text
    return RELATIVE.sub(lambda link: f"{link[1]}{base.rstrip('/')}/{link[2]}", text)


def main() -> None:
    """Run the command, and put the README back."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    before = README.read_bytes()
    after = absolute(before.decode(), project["tool"]["cai_bridge"]["base-url"]).encode()
    try:
        if after != before:
            README.write_bytes(after)
        sys.exit(subprocess.run(sys.argv[1:], check=False).returncode)
    finally:
        if after != before:
            README.write_bytes(before)


if __name__ == "__main__":
    main()
