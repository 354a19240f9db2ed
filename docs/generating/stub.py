"""The stub's docstrings, copied from the compiled module for editors."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from cai_bridge import _core
from generating import ROOT

STUB = ROOT / "python" / "cai_bridge" / "_core.pyi"
Documented = ast.ClassDef | ast.FunctionDef


def text_of(owner: object, node: Documented) -> str:
    """Return a name's docstring in the compiled module, without those of `object`."""
    found = (
        vars(owner).get(node.name) if isinstance(owner, type) else getattr(owner, node.name, None)
    )
    found = found.__func__ if isinstance(found, staticmethod) else found
    text = None if isinstance(found, type(object.__repr__)) else getattr(found, "__doc__", None)
    is_private = node.name.startswith("_") and not node.name.startswith("__")
    return inspect.cleandoc(text) if text and not is_private else ""


def documented(tree: ast.Module) -> list[tuple[Documented, str]]:
    """List the stub's declarations with their texts; overloads share the first one's text."""
    found: list[tuple[Documented, str]] = []
    seen: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found.append((node, "" if node.name in seen else text_of(_core, node)))
            seen.add(node.name)
        elif isinstance(node, ast.ClassDef):
            # Users see the members of a view's base, though it has no public name.
            kind = getattr(_core, node.name)
            found.append((node, text_of(_core, node)))
            is_public = node.name == "_View" or not node.name.startswith("_")
            inside = [one for one in node.body if isinstance(one, ast.FunctionDef)]
            found += [(one, text_of(kind, one) if is_public else "") for one in inside]
    return found


def docstring(text: str, indent: int) -> list[str]:
    """Write a docstring's lines."""
    blank = " " * indent
    lines = text.replace("\\", "\\\\").replace('"""', r"\"\"\"").splitlines()
    if len(lines) == 1:
        return [f'{blank}"""{lines[0]}"""']
    body = [f"{blank}{line}".rstrip() for line in lines[1:]]
    return [f'{blank}"""{lines[0]}', *body, f'{blank}"""']


def written(stub: str) -> str:
    """Put each docstring in its place."""
    lines = stub.splitlines()
    for node, text in reversed(documented(ast.parse(stub))):
        first, *others = node.body
        start, indent = first.lineno - 1, node.col_offset + 4
        start = min([start, *(one.lineno - 1 for one in getattr(first, "decorator_list", []))])
        if ast.get_docstring(node) is not None:
            lines[start : first.end_lineno] = [] if others else [f"{' ' * indent}..."]
        if not text:
            continue
        if lines[start].endswith(": ..."):  # the body is on the line of the head
            lines[start] = lines[start].removesuffix(" ...")
            start += 1
        elif lines[start].strip() == "...":
            lines[start : start + 1] = []
        lines[start:start] = docstring(text, indent)
    return "\n".join(lines) + "\n"


def files() -> dict[Path, str]:
    """List the stub."""
    return {STUB: written(STUB.read_text(encoding="utf-8"))}
