"""The lists of the libraries that `convert` knows, made from the table of their files."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

from generating import DATA, ROOT

TABLE = ROOT / "python" / "cai_bridge" / "_libraries" / "__init__.py"
README, CONVERT = ROOT / "README.md", ROOT / "src" / "py" / "doors" / "convert.rs"
PROJECT, ARGUMENTS = ROOT / "pyproject.toml", DATA / "arguments.toml"
# Names that are no library, or a second name of one.
NO_LIBRARIES = {"cai", "dlpack", "jaxlib"}
CALLED = {"cuda": "cuda.core"}
"""The names of libraries whose modules are called otherwise."""


def names() -> list[str]:
    """List the names that `convert` finds a file by, in the table's order."""
    for node in ast.parse(TABLE.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FILES":
            return list(ast.literal_eval(node.value))
    raise SystemExit(f"{TABLE}: got no FILES; allowed: a dict of that name")


def listed(items: list[str]) -> str:
    """Write a list into a sentence."""
    return f"{', '.join(items[:-1])} and {items[-1]}"


def replaced(path: Path, pattern: str, text: str) -> str:
    """Return a file's text in which `text` replaces every match of the pattern."""
    before = path.read_text("utf-8")
    if not re.search(pattern, before, re.DOTALL):
        raise SystemExit(f"{path}: got no list of libraries; allowed: {pattern}")
    return re.sub(pattern, lambda _: text, before, flags=re.DOTALL)


def files() -> dict[Path, str]:
    """Return the files that list libraries."""
    every = names()
    own = [name for name in every if name not in NO_LIBRARIES]
    gpus = [name for name in own if name != "numpy"]
    quoted = [f'`"{name}"`' + (f" ({CALLED[name]})" if name in CALLED else "") for name in gpus]
    plain = [f"{name} ({CALLED[name]})" if name in CALLED else name for name in own]
    # Words that a line must not end between.
    sentence = f"The bridge knows {listed(plain)}; `register` adds others."
    sentence = sentence.replace(" (", "\0(")
    first = '``"cai"`` and ``"dlpack"`` give a `CaiView` and a `DLPackView`. '
    wrapped = textwrap.wrap(first + sentence, 94)
    docs = "\n".join(f"///     {line}" for line in wrapped).replace("\0", " ")
    modules = ", ".join(f'"{name}.*"' for name in sorted(gpus))
    types = ", ".join(sorted({*every} - {"jaxlib"}))
    return {
        README: replaced(
            README, r"The libraries are [^\n]*\.", f"The libraries are {listed(quoted)}."
        ),
        CONVERT: replaced(
            CONVERT, r'///     ``"cai"`` and ``"dlpack"`` give.*? adds others\.', docs
        ),
        PROJECT: replaced(PROJECT, r'module = \["cuda\.\*"[^\]]*\]', f"module = [{modules}]"),
        ARGUMENTS: replaced(
            ARGUMENTS, r"array type of [^\"]*?, or of a", f"array type of {types}, or of a"
        ),
    }
