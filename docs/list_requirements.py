"""Write docs/requirements.md: every requirement, with the section that it comes from."""

from __future__ import annotations

from pathlib import Path

from cai_bridge.conformance import Requirement, requirements

PAGE = Path(__file__).with_name("requirements.md")
HEAD = """\
# What is required

Every requirement that `cai_bridge.conformance` tests, with its place in the specification.
A specification demands them, except those with *should*, which it recommends.
[Test your library](test-your-library.md) says how to run them.
The script `docs/list_requirements.py` writes this page.
"""


def line(one: Requirement) -> str:
    """Write a row of the table."""
    name = f"`{one.name}`" if one.level == "must" else f"`{one.name}` (*{one.level}*)"
    return f"| {name} | {one.rule} | {one.why} | {one.section} |".replace("__", r"\_\_")


def page() -> str:
    """Write the page: a table for each role and specification."""
    parts = [HEAD]
    for role in ("producer", "consumer"):
        rows = requirements(role)  # type: ignore[arg-type]
        parts += [f"## Of a {role}", "", f"{len(rows)} requirements.", ""]
        for source in dict.fromkeys(one.specification for one in rows):
            parts += [
                f"From [{source.name}]({source.url}):",
                "",
                "| name | what is required | what goes wrong otherwise | section |",
                "|---|---|---|---|",
                *(line(one) for one in rows if one.specification == source),
                "",
            ]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
