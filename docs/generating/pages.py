"""Programs and tables in the manual's pages, so that the pages read well without a build.

A comment of a page says what the generator writes below it:

- `<!-- code: FILE -->` or `FILE:SECTION`: a fenced block with that file or section.
- `<!-- names: MODULE NAME ... -->`, up to `<!-- end -->`: a table of these names. The manual's
  build puts their whole docstrings in its place (hooks.py).
- `<!-- ends -->`, up to `<!-- end -->`: a table of tests/data/end.toml.
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

from generating import DATA, DOCS, ROOT, grid, toml

CODE = re.compile(r"(?m)^<!-- code: (\S+) -->\n+(```\w*\n)(?s:.*?)^```$")
ENDS = re.compile(r"(?m)^<!-- ends -->\n(?s:.*?)^<!-- end -->$")
NAMES = re.compile(r"(?m)^<!-- names: (\S+) ([^>]+) -->\n(?s:.*?)^<!-- end -->$")


def code(source: str) -> str:
    """Return a file, or a section of it."""
    path, _, section = source.partition(":")
    text = (ROOT / path).read_text(encoding="utf-8")
    if section:
        inside = re.search(rf"(?ms)^[^\n]*\[start:{section}\]\n(.*?)^[^\n]*\[end:{section}\]", text)
        if inside is None:
            raise SystemExit(f"{path}: has no section {section!r}")
        text = textwrap.dedent(inside[1])
    return text.strip("\n") + "\n"


def summary(module: str, name: str) -> str:
    """Return the first sentence of a docstring, as Markdown."""
    doc = inspect.getdoc(getattr(importlib.import_module(module), name)) or ""
    first = " ".join(doc.partition("\n\n")[0].split())
    return first.replace("``", "`").replace("|", "\\|")


def _bare(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return the parameter without its annotation, with a default that is the same in each run."""
    default = ... if " at 0x" in repr(parameter.default) else parameter.default
    return parameter.replace(annotation=parameter.empty, default=default)


def called(module: str, name: str) -> str:
    """Return a name, and for a function its parameters with their defaults."""
    found = getattr(importlib.import_module(module), name)
    if not inspect.isroutine(found):
        return name
    signature = inspect.signature(found)
    bare = [_bare(one) for one in signature.parameters.values()]
    return f"{name}{signature.replace(parameters=bare, return_annotation=signature.empty)}".replace(
        "Ellipsis", "..."
    )


def table(module: str, names: str) -> str:
    """Write a table of names and what they are."""
    rows = [[f"`{called(module, name)}`", summary(module, name)] for name in names.split()]
    return "\n".join(["", *grid([f"in `{module}`", "what it is"], rows), ""])


def stream(name: str | int) -> str:
    """Write a stream of end.toml for readers."""
    found, _, handle = str(name).partition(" ")
    return {
        "legacy": "legacy",
        "blocking": f"any blocking one {handle.replace('of', 'of GPU')}".strip(),
        "lost": f"{handle}, which nothing keeps",
        "met": f"{handle}, which nothing keeps; a library works there",
    }.get(found, str(name))


def happens(row: dict[str, Any]) -> str:
    """Write the outcome of an end."""
    if "order" in row:
        users, producers = (" and ".join(map(stream, side)) for side in row["order"])
        verb = "wait" if len(row["order"][1]) > 1 else "waits"
        kept = "; the memory is kept until that work is done" if "keep" in row else ""
        return f"{producers} {verb} for {users}{kept}"
    if "wait" in row:
        return "**the host waits**"
    return f"nothing: {row['nothing']}" if "nothing" in row else "the libraries are asked"


def ends() -> str:
    """Write the table of ends."""
    rows = []
    for row in toml(DATA / "end.toml")["end"]:
        of: dict[str, list[str]] = {"user": [], "producer": [], "upstream": []}
        for role, name in row["streams"]:
            of[role].append(stream(name))
        own = of["producer"] or ["not known"]
        users = of["user"] or {"unnamed": ["not named"], "declined": ["-1"]}.get(
            row["consumer"], ["none"]
        )
        if "libraries" in row:
            users.append(f"libraries on {' and '.join(map(stream, row['libraries'])) or 'none'}")
        own += [f"upstream {name}" for name in of["upstream"]]
        rows.append([row["rule"], "; ".join(own), "; ".join(users), happens(row)])
    return "\n".join(["", *grid(["when", "producer", "users", "what happens"], rows), ""])


def written(page: str) -> str:
    """Write what the comments of a page ask for below them."""
    page = CODE.sub(lambda at: f"<!-- code: {at[1]} -->\n\n{at[2]}{code(at[1])}```", page)
    page = ENDS.sub(lambda _: f"<!-- ends -->\n{ends()}\n<!-- end -->", page)
    return NAMES.sub(
        lambda at: f"<!-- names: {at[1]} {at[2]} -->\n{table(at[1], at[2])}\n<!-- end -->", page
    )


def files() -> dict[Path, str]:
    """List the pages."""
    pages = sorted(DOCS.glob("*.md"))
    return {path: written(path.read_text(encoding="utf-8")) for path in pages}
