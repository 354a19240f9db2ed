"""``cai-bridge doctor``: what is installed, which protocols it speaks, and what is unsafe."""

from __future__ import annotations

import os
import textwrap
from dataclasses import dataclass
from typing import Any

from cai_bridge import __version__

from . import output
from .advice import LEVELS, Advice, Surroundings, advice_for
from .exits import FAILED, OK
from .libraries import Found, find_libraries
from .machine import Driver, Interpreter, find_driver, this_interpreter
from .text import escaped, line
from .theirs import own_stdout

_WIDTH = 96


@dataclass(frozen=True)
class Findings:
    """What the doctor found."""

    interpreter: Interpreter
    """The Python that runs the doctor."""
    driver: Driver
    """The CUDA driver, or the reason why there is none."""
    libraries: tuple[Found, ...]
    """The array libraries."""
    advice: tuple[Advice, ...]
    """The advice that applies, gravest first."""

    @property
    def ok(self) -> bool:
        """Whether no setting is unsafe."""
        return not any(one.level == "unsafe" for one in self.advice)

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as data for JSON."""
        return {
            "cai_bridge": __version__,
            "python": self.interpreter.to_dict(),
            "driver": vars(self.driver),
            "libraries": [one.to_dict() for one in self.libraries],
            "advice": [one.to_dict() for one in self.advice],
            "ok": self.ok,
        }

    def __str__(self) -> str:
        lines = [f"cai_bridge {__version__}", str(self.interpreter), self.driver.name, ""]
        lines += _table(self.libraries) or ["No array library is installed."]
        for level, meaning in LEVELS.items():
            advice = [one for one in self.advice if one.level == level]
            if advice:
                lines += ["", f"{level}: {meaning}"]
                for one in advice:
                    lines += _indented(one.what, "  - ") + _indented(one.action, "    -> ")
        return "\n".join(lines)


def _indented(text: str, mark: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark), break_on_hyphens=False
    )


def _table(libraries: tuple[Found, ...]) -> list[str]:
    rows = [(one.name, f"{one.distribution} {one.version}", _spoken(one)) for one in libraries]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
    return [f"{row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]}" for row in rows]


def _spoken(found: Found) -> str:
    if found.error:
        return f"does not import: {line(found.error)}"
    if found.name == "ml_dtypes":
        return "dtypes: bfloat16 and 8-bit floats"
    if found.doors is None:
        return "unknown for this version; --import looks at its array type"
    return str(found.doors)


def examine(*, imported: bool = False) -> Findings:
    """Examine the machine, the libraries and the environment."""
    libraries = find_libraries(imported=imported)
    driver = find_driver()
    surroundings = Surroundings({one.name: one for one in libraries}, os.environ, driver)
    return Findings(this_interpreter(), driver, libraries, advice_for(surroundings))


def run(*, imported: bool, as_json: bool, path: str | None) -> int:
    """Report the findings. Fail if a setting is unsafe."""
    output.check_asked(path)
    with own_stdout():
        findings = examine(imported=imported)
    text = escaped(str(findings))
    if as_json:
        text = output.as_json(findings.to_dict(), to_file=path is not None)
    output.give(text, path)
    return OK if findings.ok else FAILED
