"""An extension for the manual's reference: the stubs give the types, the built package the docs."""

from __future__ import annotations

import inspect
from typing import Any

import griffe

import cai_bridge


class Docstrings(griffe.Extension):
    """Give what the stubs of the extension module declare the docs that the module has."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Go through all that is documented, once the package's sources are read."""
        if pkg.name == "cai_bridge":
            # Of a function with overloads alone the stub has no general form but the last one.
            for name, forms in pkg["_core"].overloads.items():
                if forms and name not in pkg["_core"].members:
                    pkg["_core"].set_member(name, forms[-1])
            for name in ("_core.CaiView", "_core.DLPackView", "_core"):
                self._fill(pkg[name], name)

    def _fill(self, parent: griffe.Object, path: str) -> None:
        there: Any = cai_bridge
        for name in path.split("."):
            there = getattr(there, name)
        for name, member in parent.members.items():
            if member.is_alias or (name.startswith("_") and not name.startswith("__")):
                continue
            text = inspect.getdoc(getattr(there, name, None))
            if text and member.docstring is None and not member.is_module:
                member.docstring = griffe.Docstring(text, parent=member, parser="numpy")
