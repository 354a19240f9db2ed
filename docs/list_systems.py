"""Write docs/systems.md: the systems that the specifications name, and the tests that show them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("systems.md")
SYSTEMS = tomllib.loads((ROOT / "tests/data/systems.toml").read_text())["system"]
HEAD = """\
# Systems

The systems that the specifications name, and some more: what to pass to each, and what to do with
its arrays.
The CUDA Array Interface lists the libraries that adopted it, from Numba to RMM;
the memory class has its own specification.

*Judged by* says what ran in the tests: the library itself, with its version,
or a stand-in that follows the library's source.
The stand-ins are in [systems.py](../tests/python/systems.py),
[systems_out.py](../tests/python/systems_out.py) and the tests' files.
Each test is about values, about the order at hand-over and at the end, or about who keeps what.
In `to_cai(x, stream=s)` the system works on the stream `s`;
in `from_cai(x, stream=s)` its pending work is on `s`.

The script `docs/list_systems.py` writes this page from `tests/data/systems.toml`.
"""

OWNED = re.compile(
    r"\b((?:a|the|its) (?:dict|view|producer|consumer|system|array|owner|caller|stream|library)"
    r"|numba|cupy|torch|warp|jax)s (?=\w)"
)


def prose(test: str) -> str:
    """Write a test's name as the sentence that it is."""
    return OWNED.sub(r"\1's ", test.removeprefix("test_").replace("_", " "))


def links(tests: list[str]) -> str:
    """Write links to tests, as ``file::test``."""
    made = []
    for test in tests:
        file, name = test.split("::")
        made.append(f"[{prose(name)}](../tests/{file})")
    return "; ".join(made)


def part(system: dict[str, str]) -> str:
    """Write what there is of a system."""
    lines = [f"## {system['name']}", ""]
    for way, words in (("into", "Into it"), ("out", "Out of it")):
        lines.append(f"- **{words}**: {system[way].rstrip('.')}.")
        if tests := links(system[f"{way}_tests"]):  # type: ignore[arg-type]
            lines.append(f"  Tests: {tests}.")
    return "\n".join([*lines, f"- **Judged by**: {system['by'].rstrip('.')}.", ""])


def page() -> str:
    """Write the page."""
    return "\n".join([HEAD, *map(part, SYSTEMS)])


if __name__ == "__main__":
    PAGE.write_text(page())
