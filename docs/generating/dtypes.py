"""The parts of the code that follow the table of element types: rows and a refusal's words."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import Any

from generating import DATA, ROOT, toml

TABLE = ROOT / "src" / "dtype" / "table.rs"
KINDS = ROOT / "src" / "error" / "kinds.rs"
REFUSAL = re.compile(r'^( {4}Dtype: Buffer, "dtype", ")[^"]*(";)$', re.MULTILINE)
ROWS = """\
//! The table's rows. `docs/generate.py dtypes` writes this file from `tests/data/dtype.toml`.

/// An element type: a row of the table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {{
    pub(super) name: &'static str,
    pub(super) code: u8,
    pub(super) bits: u8,
    pub(super) typestr: &'static str,
}}

pub(super) const fn row(name: &'static str, code: u8, bits: u8, typestr: &'static str) -> Row {{
    Row {{ name, code, bits, typestr }}
}}

/// Every type that both protocols can carry. The codes are `DLDataTypeCode`'s of DLPack 1.3.
pub(super) const TABLE: [Row; {count}] = [
{rows}
];
"""


def family(row: dict[str, Any]) -> str:
    """Name the family of a type: its name without the size, or the size of a float."""
    name: str = row["name"]
    return "8-bit floats" if name.startswith("float8_") else name.rstrip("0123456789")


def words(rows: list[dict[str, Any]]) -> str:
    """Write the allowed types in a few words, for the refusal of any other type."""
    said: list[str] = []
    for what, some in groupby(rows, family):
        names = [row["name"] for row in some]
        if what == "8-bit floats":
            said.append(what)
        else:
            said += names if len(names) < 3 else [f"{names[0]} to {names[-1]}"]
    return ", ".join(said)


def files() -> dict[Path, str]:
    """List the files with their contents."""
    rows = toml(DATA / "dtype.toml")["dtype"]
    lines = [
        f'    row("{row["name"]}", {row["code"]}, {row["bits"]}, "{row["typestr"]}"),'
        for row in rows
    ]
    table = ROWS.format(count=len(rows), rows="\n".join(lines))
    kinds = KINDS.read_text(encoding="utf-8")
    allowed = words(rows)
    return {TABLE: table, KINDS: REFUSAL.sub(lambda line: line[1] + allowed + line[2], kinds)}
