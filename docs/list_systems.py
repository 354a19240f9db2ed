"""Write docs/systems.md: the systems that the specifications name, and the tests that show them."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("systems.md")
SYSTEMS = tomllib.loads((ROOT / "tests/data/systems.toml").read_text())["system"]
HEAD = """\
# Systems

The systems that the specifications name, and some beside them: what you hand to whom.
The CUDA Array Interface lists those that adopted it, from Numba to RMM;
the memory class is a specification of its own.

*Judged by* says what ran in the tests: the library itself, with its version,
or a stand-in that does with the protocols what the library's source does.
The stand-ins are in [systems.py](../tests/python/systems.py),
[systems_out.py](../tests/python/systems_out.py) and the tests' files.
Each test is of values, of the order at hand-over and at the end, or of who keeps what.
In `to_cai(x, stream=s)` the stream is that which the system works on;
in `from_cai(x, stream=s)` it is that of its pending work.

This page is written by `python docs/list_systems.py` from `tests/data/systems.toml`.

| system | into it | shown by | out of it | shown by | judged by |
|---|---|---|---|---|---|
"""


def links(tests: list[str]) -> str:
    """Write links to tests, as ``file::test``."""
    made = []
    for test in tests:
        file, name = test.split("::")
        made.append(f"[{name.removeprefix('test_').replace('_', ' ')}](../tests/{file})")
    return "; ".join(made)


def line(system: dict[str, str]) -> str:
    """Write a row of the table."""
    cells = [f"**{system['name']}**"]
    for way in ("into", "out"):
        cells += [system[way], links(system[f"{way}_tests"])]  # type: ignore[arg-type]
    return f"| {' | '.join([*cells, system['by']])} |"


def page() -> str:
    """Write the page."""
    return HEAD + "".join(f"{line(system)}\n" for system in SYSTEMS)


if __name__ == "__main__":
    PAGE.write_text(page())
