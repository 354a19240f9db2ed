"""Pages of the contract's tables: refusals, element types, requirements and systems."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cai_bridge.conformance import Requirement, requirements
from generating import DATA, DOCS, ROOT, code, grid, link, toml

# A kind of error: its comment, name, class, field and the allowed values.
KIND = re.compile(
    r'((?:^ {4}///.+\n)+) {4}(\w+): (\w+), "([^"]*)", "((?:[^"\\]|\\.)*)";$', re.MULTILINE
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
The script `docs/generate.py contract` writes this page from the table that the tests run.
"""
DTYPES = """\
# Element types

Each row works in both directions. The CUDA Array Interface (CAI) gives a type as a `typestr`, DLPack as a code, bits and lanes.

{rows}

CAI has no typestr for bfloat16 and the 8-bit floats: `<V2` and `|V1` say only how long an item is.
`from_cai` asks the object's `dtype` attribute for the name, or takes `dtype="bfloat16"`. Without both it refuses.
Some libraries write another typestr of the same size: Warp `<u2` and TensorRT-LLM `<f2` for bfloat16. So an object's `dtype` counts wherever its size is the typestr's. A contradiction, such as a dtype `>f4` beside the typestr `<f4`, is refused. `from_cai(x, dtype=)` takes any type of as many bytes.
A view keeps the exact type on the way back.
Their NumPy arrays have the types of `ml_dtypes`. If that package is missing, they have `|V2` and `|V1`, which are bytes without a meaning.

DLPack's lanes become a last dimension: a tensor of shape `(5,)` with two lanes of `float32` is an array of shape `(5, 2)`.

The bridge reads other spellings of a typestr by their meaning: {spellings}. Like NumPy and CuPy it reads `=`, or no sign at all, as this machine's byte order. It also reads one character in place of letter and size: DALI's `=f` and `=B`. Characters whose size is the compiler's, such as `l`, are ambiguous and refused.

Other types, which one protocol alone can name, stay in that protocol. Between the two they are [refused](refusals.md):

- `fp4`, `fp6`, `int4`, their lanes, long doubles and opaque handles go from DLPack to DLPack. Use `to_dlpack`, or `convert` to a library that takes DLPack. A copy of packed items needs them side by side.
- Dates, structured types, text, long doubles, the other byte order, and a `<V2` or `|V1` without a name go from CAI to CAI. Use `to_cai`, or `convert` and `adapt` to a library that takes CAI, or to NumPy. The new dict has the same `typestr`, `descr` and `strides`. The view's `dtype` is the object's own, or made of `descr`: gaps, titles and arrays in records come back. A copy for a library on the GPU is refused.

A GPU reads a type of 2, 4, 8 or 16 bytes at multiples of its size, complex numbers as a whole; another address ends the context. So other addresses and strides are refused, except for `convert(x, "numpy")`, which copies the bytes.

Objects, fields of bits and masked arrays are refused everywhere.
The script `docs/generate.py contract` writes this page.
"""
REQUIREMENTS = """\
# What is required

Every requirement that `cai_bridge.conformance` tests, with its place in the specification.
A specification demands them, except those with *should*, which it recommends.
[Test your library](test-your-library.md) says how to run them.
The script `docs/generate.py contract` writes this page.
"""
SYSTEMS = """\
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

The script `docs/generate.py contract` writes this page from `tests/data/systems.toml`.
"""


def refusals() -> str:
    """Write every message, grouped by exception."""
    source = (ROOT / "src" / "error" / "kinds.rs").read_text(encoding="utf-8")
    cases: dict[str, list[dict[str, Any]]] = toml(DATA / "refusals.toml")
    seen: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for row in (row for rows in cases.values() for row in rows):
        if (said := (row["field"], row.get("shown", row["got"]))) not in seen[row["kind"]]:
            seen[row["kind"]].append(said)
    found: dict[str, list[list[str]]] = {name: [] for name in MEANING}
    for comment, kind, short, _, allowed in KIND.findall(source):
        what = " ".join(line.strip().removeprefix("/// ") for line in comment.splitlines())
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
        found[name].append([when, cell])
    parts = [REFUSALS]
    for name, rows in found.items():
        lines = grid(["when", "the message, with an example of what it was"], rows)
        parts += [f"## {name}\n", MEANING[name], "", *lines, ""]
    arguments = [
        [code(row["program"]), f"`{row['class']}`", code(row["message"])]
        for row in toml(DATA / "arguments.toml")["argument"]
    ]
    lines = grid(["program", "raises", "message"], arguments)
    return "\n".join([*parts, "## Arguments in Python\n", *lines, ""])


def dtypes() -> str:
    """Write the table of element types."""
    types = toml(DATA / "dtype.toml")
    rows = [
        [code(row["name"]), code(row["typestr"]), f"{row['code']}, {row['bits']}"]
        for row in types["dtype"]
    ]
    named = [row for row in types["spelling"] if "name" in row]
    spellings = ", ".join(f"`{row['typestr']}` ({row['name']})" for row in named)
    lines = grid(["type", "CAI `typestr`", "DLPack code, bits"], rows)
    return DTYPES.format(rows="\n".join(lines), spellings=spellings)


def required() -> str:
    """Write the requirements: a table for each role and specification."""
    parts = [REQUIREMENTS]
    for role in ("producer", "consumer"):
        found = requirements(role)  # type: ignore[arg-type]
        parts += [f"## Of a {role}", "", f"{len(found)} requirements.", ""]
        for source in dict.fromkeys(one.specification for one in found):
            heads = ["name", "what is required", "what goes wrong otherwise", "section"]
            rows = [cells(one) for one in found if one.specification == source]
            parts += [f"From [{source.name}]({source.url}):", "", *grid(heads, rows), ""]
        parts += along(found)
    return "\n".join(parts)


def along(found: Sequence[Requirement]) -> list[str]:
    """Write the axes of requirements and the reasons for missing ones; equal rows are one."""
    groups: dict[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], list[str]] = {}
    for one in found:
        key = tuple(one.over), tuple(one.left_out.items())
        groups.setdefault(key, []).append(f"`{one.name}`")
    lines = ["They hold along these axes of `conformance/axes.toml`:", ""]
    for (axes, left_out), names in groups.items():
        reasons = "; ".join(f"*{axis}* ({why})" for axis, why in left_out)
        more = f" Not along {reasons}." if reasons else ""
        lines.append(f"- {', '.join(names)}: {', '.join(axes)}.{more}".replace("__", r"\_\_"))
    return [*lines, ""]


def cells(one: Requirement) -> list[str]:
    """Write a requirement's cells."""
    name = f"`{one.name}`" if one.level == "must" else f"`{one.name}` (*{one.level}*)"
    return [text.replace("__", r"\_\_") for text in (name, one.rule, one.why, one.section)]


def systems() -> str:
    """Write a part for each system."""
    return "\n".join([SYSTEMS, *map(of_system, toml(DATA / "systems.toml")["system"])])


def of_system(system: dict[str, Any]) -> str:
    """Write the part of a system."""
    lines = [f"## {system['name']}", ""]
    for way, words in (("into", "Into it"), ("out", "Out of it")):
        tests = "; ".join(link(*test.split("::")) for test in system[f"{way}_tests"])
        lines += [f"- **{words}**: {system[way].rstrip('.')}.", f"  Tests: {tests}."]
    return "\n".join([*lines, f"- **Judged by**: {system['by'].rstrip('.')}.", ""])


def files() -> dict[Path, str]:
    """List the pages."""
    made = {
        "refusals": refusals(),
        "dtypes": dtypes(),
        "requirements": required(),
        "systems": systems(),
    }
    return {DOCS / f"{name}.md": text for name, text in made.items()}
