"""Write docs/requirements.md: every requirement, with the section that it comes from."""

from __future__ import annotations

from pathlib import Path

from cai_bridge.conformance import Requirement, requirements

PAGE = Path(__file__).with_name("requirements.md")
HEAD = """\
# What is required

Every requirement that `cai_bridge.conformance` tests, with its place in the specification.
A specification demands a *must*, and recommends a *should*.
[Test your library](test-your-library.md) says how to run them.
The script `docs/list_requirements.py` writes this page.
"""


def line(one: Requirement) -> str:
    """Write a row of the table."""
    text = f"[{one.specification.name}]({one.specification.url}), {one.section}"
    return f"| `{one.name}` | {one.level} | {one.rule} | {text} | {one.why} |"


def page() -> str:
    """Write the page."""
    parts = [HEAD]
    for role in ("producer", "consumer"):
        rows = requirements(role)  # type: ignore[arg-type]
        parts += [
            f"## Of a {role}",
            "",
            f"{len(rows)} requirements.",
            "",
            "| name | level | what is required | where | what goes wrong otherwise |",
            "|---|---|---|---|---|",
            *(line(one).replace("__", r"\_\_") for one in rows),
            "",
        ]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
