"""Write docs/refusals.md and docs/dtypes.md from the contract's tables in tests/data.

python docs/list_contract.py
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from html import escape
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
DATA = DOCS.parent / "tests" / "data"
# A kind of error: its comment, name, class, field and what is allowed.
KIND = re.compile(
    r'^ {4}///\s*(.+)\n {4}(\w+): (\w+), "([^"]*)", "((?:[^"\\]|\\.)*)";$', re.MULTILINE
)
EXAMPLES = 3
MEANING = {
    "BufferError": "The array is well formed, and the other protocol, or the consumer, cannot take it.",
    "ValueError": "A dict, capsule or argument is malformed.",
    "TypeError": "An object speaks neither protocol, or an argument has another type.",
    "DriverError": "A call of the CUDA driver failed, there is no driver, or a graph capture cannot "
    "contain the hand-over. It is a `RuntimeError`, with `call` and `code`.",
}
REFUSALS = """\
# Refusals

The bridge refuses what it cannot do right. The exception names the field, what it was, and what is allowed:

```text
strides[0]: got 6 bytes for items of 4; allowed: multiples of the item size: DLPack counts strides in elements
```

After a refusal the array, dict or capsule is as usable as before. A refused capsule is not consumed.
Search this page for the words of your message. Messages shorten long values.
See also [the stream table](streams.md), [CUDA graphs](graphs.md), [element types](dtypes.md), [read-only memory](libraries.md#what-is-known) and [forked processes](threads.md).
The script `docs/list_contract.py` writes this page from the table that the tests run.
"""
DTYPES = """\
# Element types

Each row works in both directions. The CUDA Array Interface (CAI) gives a type as a `typestr`, DLPack as a code, bits and lanes.

| type | CAI `typestr` | DLPack code, bits |
|---|---|---|
{rows}

CAI has no typestr for bfloat16 and the 8-bit floats: `<V2` and `|V1` say only how long an item is.
`from_cai` asks the object's `dtype` attribute for the name, or takes `dtype="bfloat16"`. Without both it refuses.
A view keeps the exact type on the way back.
Their NumPy arrays have the types of `ml_dtypes`. If that package is missing, they have `|V2` and `|V1`, which are bytes without a meaning.

DLPack's lanes become a last dimension: a tensor of shape `(5,)` with two lanes of `float32` is an array of shape `(5, 2)`.

The bridge reads other spellings of a typestr by their meaning: {spellings}.

Other types, which one protocol alone can name, stay in that protocol. Between the two they are [refused](refusals.md):

- `fp4`, `fp6`, `int4`, lanes of them, long doubles and opaque handles go from DLPack to DLPack: by `to_dlpack`, and by `convert` to a library that takes DLPack. A copy of packed items needs them side by side.
- Dates, structured types, text, long doubles, the other byte order, a `<V2` or `|V1` without a name, and strides that are no multiple of the item go from CAI to CAI: by `to_cai`, and by `convert` and `adapt` to a library that takes CAI, or to NumPy. The new dict has the same `typestr`, `descr` and `strides`. A copy for a library on the GPU is refused.

Objects, fields of bits and masked arrays are refused everywhere.
The script `docs/list_contract.py` writes this page.
"""


def code(text: str) -> str:
    """Write a cell in the font of code; a bar would end the cell."""
    return (
        f"<code>{escape(text, quote=False)}</code>".replace("|", "&#124;")
        if "|" in text
        else f"`{text}`"
    )


def refusals() -> str:
    """Write every message, by the exception that it comes in."""
    source = (DOCS.parent / "src" / "error" / "kinds.rs").read_text(encoding="utf-8")
    with (DATA / "refusals.toml").open("rb") as file:
        table: dict[str, list[dict[str, Any]]] = tomllib.load(file)
    seen: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for row in (row for rows in table.values() for row in rows):
        if (said := (row["field"], row.get("shown", row["got"]))) not in seen[row["kind"]]:
            seen[row["kind"]].append(said)
    found: dict[str, list[str]] = {name: [] for name in MEANING}
    for what, kind, short, _, allowed in KIND.findall(source):
        name = f"{short}Error"
        (field, got), *others = seen[kind]
        plain = allowed.replace('\\"', '"')
        cell = code(f"{field}: got {got}; allowed: {plain}")
        # Each field, with a few examples.
        others = [
            said
            for number, said in enumerate(others)
            if [other[0] for other in others[:number]].count(said[0]) < EXAMPLES
        ]
        if others:
            cell += "; also " + ", ".join(code(f"{field}: got {got}") for field, got in others)
        when = re.sub(r"`([^`]+)`", lambda said: code(said[1]), what)
        found[name].append(f"| {when} | {cell} |")
    parts = [REFUSALS]
    for name, rows in found.items():
        head = ["| when | the message, with an example of what it was |", "|---|---|"]
        parts.append("\n".join([f"## {name}\n", MEANING[name], "", *head, *rows, ""]))
    with (DATA / "arguments.toml").open("rb") as file:
        arguments = tomllib.load(file)["argument"]
    head = ["## Arguments in Python\n", "| program | raises | message |", "|---|---|---|"]
    rows = [
        f"| {code(row['program'])} | `{row['class']}` | {code(row['message'])} |"
        for row in arguments
    ]
    parts.append("\n".join([*head, *rows, ""]))
    return "\n".join(parts)


def dtypes() -> str:
    """Write the table of element types."""
    with (DATA / "dtype.toml").open("rb") as file:
        table = tomllib.load(file)
    rows = [
        f"| {code(row['name'])} | {code(row['typestr'])} | {row['code']}, {row['bits']} |"
        for row in table["dtype"]
    ]
    named = [row for row in table["spelling"] if "name" in row]
    spellings = ", ".join(f"`{row['typestr']}` ({row['name']})" for row in named)
    return DTYPES.format(rows="\n".join(rows), spellings=spellings)


def pages() -> dict[Path, str]:
    """List the pages with what belongs into them."""
    return {DOCS / "refusals.md": refusals(), DOCS / "dtypes.md": dtypes()}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
