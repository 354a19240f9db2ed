"""An extension for the manual's reference: functions with overloads have one general form."""

from __future__ import annotations

from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """Shows only the last overload of a function, with the docstring of the first."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Go through the stub, once the package's sources are read."""
        if pkg.name == "cai_bridge":
            for name, forms in pkg["_core"].overloads.items():
                if forms and name not in pkg["_core"].members:
                    forms[-1].docstring = forms[0].docstring
                    pkg["_core"].set_member(name, forms[-1])
