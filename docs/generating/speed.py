"""The times of conversions: the picture, the table of speed.md and the README's sentence.

All of it is of one run, in pictures/speed.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from generating import DOCS, PICTURES, ROOT, between, data, grid
from generating.drawing import svg, text

PAGE, README = DOCS / "speed.md", ROOT / "README.md"
TIMES = PICTURES / "speed.json"
IN_PAGE = ("<!-- run -->", "<!-- end of run -->")
# The README has no room for more.
IN_README = ("<!--speed-->", "<!--/speed-->")

# The rows of the benchmark in each panel of the picture.
PANELS: dict[str, dict[str, list[str]]] = {
    "convert: host time in µs, shorter is better": {
        "CuPy to torch": ["convert(cupy, torch)"],
        "torch to CuPy": ["convert(torch, cupy)", "convert(torch, cupy), against CAI"],
        "Numba to torch": ["convert(numba, torch), against CAI"],
        "torch to Numba": ["convert(torch, numba)"],
        "CuPy to JAX": ["convert(cupy, jax)"],
    },
    "views: host time in µs, beside the floor": {
        "torch, its dict": ["to_cai(torch) and its dict"],
        "torch, both waits": ["to_cai(torch, stream=handle), ordered back"],
        "CuPy, a view": ["from_cai(cupy)"],
        "CuPy, both waits": ["from_cai(cupy).__dlpack__(stream=side), ordered back"],
    },
}
LETTER = 6.4  # pixels, about, of a small one
RACES = {"cupy.asarray(t)", 'torch.as_tensor(n, device="cuda")', "cuda.as_cuda_array(t)"}
# The groups of the table, in this order.
SHOWN = ("convert", "convert, a thousand tensors", "to_cai", "from_cai")
# A row's name may end with the call that it is compared with.
BESIDE = re.compile(r", (against \w+|ordered back)$")
MET = {"PASS": "met", "at floor": "at its floor", "over": "missed"}


def rows(run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the rows that are compared with another call, by name."""
    found = [row for name in SHOWN for row in run["rows"] if row["group"] == name]
    return {row["name"]: row for row in found if row.get("ratio")}


def peer(row: dict[str, Any]) -> str:
    """Write the call that a row is compared with."""
    said: str = row["peer"].replace("SMV.", "cuda.core's ")
    return f"{said} (a race)" if row["peer"] in RACES else said


def where(run: dict[str, Any]) -> str:
    """Name the machine, the libraries and the day."""
    about = run["environment"]
    names = {"torch": "torch", "jax": "JAX", "cupy-cuda13x": "CuPy", "numba-cuda": "numba-cuda"}
    versions = [f"{shown} {about[name]}" for name, shown in names.items() if name in about]
    return ", ".join([about["gpu"], *versions, about["date"]])


def picture(run: dict[str, Any]) -> str:
    """Draw each call as a bar beside the library's own, with its floor as a line."""
    parts, y, wide, known = [], 12, 940.0, rows(run)
    for head, pairs in PANELS.items():
        shown = [[known[name] for name in names] for names in pairs.values()]
        scale = 370 / max(max(row["value"], row["peer_value"]) for some in shown for row in some)
        parts.append(text(20, y + 18, head, "head"))
        y += 38
        for name, some in zip(pairs, shown, strict=True):
            parts.append(text(20, y + 14, name, "small"))
            bars = [(some[0]["value"], BESIDE.sub("", some[0]["name"]), "ours")]
            bars += [(row["peer_value"], peer(row), "theirs") for row in some]
            floor = some[0].get("floor")
            for took, words, kind in bars:
                width = took * scale
                place = f'x="190" y="{y}" width="{width:.1f}" height="16"'
                parts.append(f'<rect class="{kind}" {place} rx="2"/>')
                label = f"{took / 1000:.1f}  {words}"
                line = floor * scale if floor and kind == "ours" else 0
                start = 190 + max(width, line) + 8
                wide = max(wide, start + LETTER * len(label))
                parts.append(text(start, y + 13, label, "small"))
                if line:
                    parts.append(f'<path class="floor" d="M{190 + line:.1f} {y - 2}v20"/>')
                y += 20
            y += 12
    note = "The line is the floor: what anyone has to call for this, timed from Python."
    parts += [text(20, y + 12, note, "small soft"), text(20, y + 30, where(run), "small soft")]
    return svg(round(wide), y + 46, "What a call costs", parts)


def called(name: str) -> str:
    """Write a call as code, and the words around it as text: `__dlpack__` would be bold."""
    return re.sub(r"[\w.\[\]]+\([^()]*(?:\([^()]*\))*\)(?:\.\w+\([^()]*\))*", r"`\g<0>`", name)


def table(run: dict[str, Any]) -> Iterator[list[str]]:
    """List the calls beside the calls they are compared with, and whether each meets its aim."""
    for name, row in rows(run).items():
        aim = f"{row['budget']:g}: {MET[row['verdict']]}" if row.get("budget") else ""
        floor = f"{row['from_floor']:.2f}" if row.get("from_floor") else ""
        beside = f"`{row['peer']}`".replace("SMV.", "cuda.core's ")
        if row["peer"] in RACES:
            beside += ", a race"
        times = (f"{row['value']:,.0f}", f"{row['ratio']:.2f}", aim)
        yield [called(BESIDE.sub("", name)), *times, beside, f"{row['peer_value']:,.0f}", floor]


def on_page(run: dict[str, Any]) -> str:
    """Write the page's part about a run."""
    heads = ["call", "ns", "ratio", "aim", "beside", "ns", "of its floor"]
    return "\n".join([f"\n\n{where(run)}\n", *grid(heads, table(run)), "\n"])


def in_readme(run: dict[str, Any]) -> str:
    """Write the README's part about a run."""
    about, known = run["environment"], rows(run)
    first, *_ = PANELS.values()
    shown = [known[name] for names in first.values() for name in names]
    ours, theirs = ([row[key] / 1000 for row in shown] for key in ("value", "peer_value"))
    alt = (
        f"Microseconds: convert takes {min(ours):.1f} to {max(ours):.1f}, the libraries' own ways"
        f" {min(theirs):.1f} to {max(theirs):.1f}"
    )
    gpu = re.search(r"\b[A-Z]+\d+\w*", about["gpu"])
    said = f"The host's time for a call ({gpu[0] if gpu else about['gpu']}, {about['date']}):"
    return f"\n\n{said}\n\n![{alt}](docs/pictures/speed.svg)\n\n"


def update(file: str) -> None:
    """Store a run of the benchmark: a row in each line, without empty fields."""
    run = data(Path(file))
    lines = [
        json.dumps({name: told(one) for name, one in row.items() if one not in (None, "")})
        for row in run["rows"]
    ]
    about = json.dumps(run["environment"])
    listed = ",\n".join(lines)
    TIMES.write_text(f'{{"environment": {about}, "rows": [\n{listed}\n]}}\n', encoding="utf-8")


def told(one: Any) -> Any:
    """Round a number to the digits that a reader can use."""
    return round(one, 3 if abs(one) < 100 else 0) if isinstance(one, float) else one


def files() -> dict[Path, str]:
    """List the picture and the pages, with their contents."""
    run = data(TIMES)
    page, readme = (path.read_text(encoding="utf-8") for path in (PAGE, README))
    return {
        PICTURES / "speed.svg": picture(run),
        PAGE: between(page, *IN_PAGE, on_page(run)),
        README: between(readme, *IN_README, in_readme(run)),
    }
