"""What conversions cost: two pictures and the tables of speed.md, from pictures/speed.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from generating import DOCS, PICTURES, between, data, grid
from generating.drawing import svg, text

PAGE = DOCS / "speed.md"
TIMES = PICTURES / "speed.json"

# What the picture of times shows: rows of the benchmark, by what they do.
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
PARTS = {
    "SMV(t)": "cuda.core's view of a torch tensor, unchecked",
    "guards": "torch is asked whether the tensor needs a gradient or is a negative view",
    "its handle": "torch's stream object is asked for its handle",
    "cupy's attributes": "shape, strides, dtype, pointer",
    "numba's dict": "Numba's own property",
    "a dict": "Python makes a dict of six entries",
    "a capsule": "NumPy's `__dlpack__()`, which is made in C",
    "a view": "Python's `memoryview` of a NumPy array",
    "a getter": "an attribute of a NumPy array's",
    "a CuPy array": "CuPy's memory, pointer and array, made by their types",
    "a managed tensor": "torch makes a managed tensor of its own by its table, and deletes it",
    "a torch tensor": "torch makes a tensor of a managed one by its table, and lets go of it",
    "pointer": "the driver is asked whose memory it is",
    "lock": "the interpreter's lock is let go and taken",
    "capturing": "the driver is asked whether a stream is being captured",
    "context": "the driver is asked which context is current, and for its number",
    "whose": "the driver is asked whose stream a handle is",
    "order there": "an event is recorded and waited for, with `lock`, `context`, twice `capturing`",
    "order back": "the same the other way",
    "current streams": "torch and CuPy are asked where they work now, by their C functions",
}
"""What the parts of the floors are."""
KEPT = ("convert", "to_cai", "from_cai")
COUNT = re.compile(r"([\d,]+) (dimensions|views|arrays|threads)")
WITH, WITHOUT = (
    f"growth with threads, {has} the interpreter's lock" for has in ("with", "without")
)
# What a panel of the picture of growth shows: its head, and its curves by their names.
CURVES: dict[str, dict[str, str]] = {
    "dimensions: to_cai(x) and its dict": {"growth with dimensions": ""},
    "views alive: to_cai(x)": {"growth with live views": ""},
    "arrays in a list: convert(list), each": {"growth with arrays in one call": ""},
    "threads: to_cai(x), each call": {WITH: "with the lock", WITHOUT: "free-threaded"},
}


def speed(times: dict[str, Any]) -> str:
    """Draw each call as a bar beside the library's own, with its floor as a line."""
    parts, y, wide = [], 12, 940.0
    for head, pairs in PANELS.items():
        rows = [[times["rows"][name] for name in names] for names in pairs.values()]
        scale = 370 / max(max(row["value"], row["peer_value"]) for some in rows for row in some)
        parts.append(text(20, y + 18, head, "head"))
        y += 38
        for name, some in zip(pairs, rows, strict=True):
            parts.append(text(20, y + 14, name, "small"))
            bars = [(some[0]["value"], some[0]["bridge"], "ours")]
            bars += [(row["peer_value"], row["peer"], "theirs") for row in some]
            floor = some[0]["floor"]
            for took, words, kind in bars:
                width = took * scale
                place = f'x="190" y="{y}" width="{width:.1f}" height="16"'
                parts.append(f'<rect class="{kind}" {place} rx="2"/>')
                race = " (a race)" if words in RACES else ""
                label = f"{took / 1000:.1f}  {words}{race}"
                line = floor * scale if floor and kind == "ours" else 0
                start = 190 + max(width, line) + 8
                wide = max(wide, start + LETTER * len(label))
                parts.append(text(start, y + 13, label, "small"))
                if line:
                    parts.append(f'<path class="floor" d="M{190 + line:.1f} {y - 2}v20"/>')
                y += 20
            y += 12
    note = "The line is the floor: what anyone has to call for this, timed from Python."
    where = f"{times['machine']}, {times['date']}. The least of the rounds."
    parts += [text(20, y + 12, note, "small soft"), text(20, y + 30, where, "small soft")]
    return svg(round(wide), y + 46, "What a call costs", parts)


def growth(times: dict[str, Any]) -> str:
    """Draw how a call's time grows: a point for each count, at equal distances."""
    left, bottom, high, wide = 50, 180, 120, 220
    parts = []
    for head, curves in CURVES.items():
        known = {
            name: points for group, name in curves.items() if (points := times["growth"].get(group))
        }
        if not known:
            continue
        counts = list(dict.fromkeys(count for points in known.values() for count, _ in points))
        most = max(took for points in known.values() for _, took in points)
        parts.append(text(left - 30, 28, head, "head small"))
        parts.append(f'<path class="lane" d="M{left} {bottom}h{wide}"/>')
        for at, count in enumerate(counts):
            x = left + 10 + at * (wide - 20) / (len(counts) - 1)
            parts.append(text(x, bottom + 18, short(count), "small soft", text_anchor="middle"))
        for (name, points), kind in zip(known.items(), ("ours", "read"), strict=False):
            places = [
                (
                    left + 10 + counts.index(count) * (wide - 20) / (len(counts) - 1),
                    bottom - high * took / most,
                )
                for count, took in points
            ]
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
            parts.append(f'<path class="curve of-{kind}" d="M{path}"/>')
            parts += [
                f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places
            ]
            ends = {0: points[0], -1: points[-1]}
            for at, (_, took) in ends.items():
                x, y = places[at]
                label = f"{took / 1000:.1f}" + (f" {name}" if at and name else "")
                anchor = "end" if at else "start"
                above = -8 if took >= points[0][1] else 18
                parts.append(text(x, y + above, label, "small", text_anchor=anchor))
        left += wide + 70
    over = "µs a call; threads over the driver, all else over the simulated device."
    where = f"{times['machine']}, {times['date']}"
    parts += [
        text(20, bottom + 44, over, "small soft"),
        text(20, bottom + 62, where, "small soft"),
    ]
    return svg(left - 20, bottom + 78, "How the time of a call grows", parts)


def short(count: int) -> str:
    """Write a count for an axis."""
    for size, letter in ((1_000_000, "M"), (1000, "k")):
        if count >= size:
            return f"{count // size}{letter}"
    return str(count)


def tables(times: dict[str, Any]) -> dict[str, list[str]]:
    """List the tables of the page by their names."""
    floors = ["call", "beside", "ns", "floor", "of its floor", "of the peer's", "aim"]
    parts = [[name, f"{took:,}", PARTS[name]] for name, took in times["floors"].items()]
    return {
        "convert": grid(["", "`convert`", "the library's own", "ratio"], of_convert(times)),
        "floors": grid(floors, of_floors(times)),
        "parts": grid(["part", "ns", "what it is"], parts),
        "growth": grid(["", "ns a call"], of_growth(times)),
    }


def of_convert(times: dict[str, Any]) -> Iterator[list[str]]:
    """List each way of `convert`, and below it the libraries' own."""
    (_, pairs), *_ = PANELS.items()
    for way, names in pairs.items():
        for at, name in enumerate(names):
            row = times["rows"][name]
            ours = "" if at else f"{row['value'] / 1000:.1f} µs"
            race = ", a race" if row["peer"] in RACES else ""
            theirs = f"`{row['peer'].partition('(')[0]}` {row['peer_value'] / 1000:.1f} µs{race}"
            yield ["" if at else way.replace(" to ", " → "), ours, theirs, f"{row['ratio']:.2f}"]


def of_floors(times: dict[str, Any]) -> Iterator[list[str]]:
    """List the calls with their floors, and whether each keeps its aim."""
    for name, row in times["rows"].items():
        if row["floor"]:
            met = {"PASS": "met", "at floor": "at its floor"}.get(row["verdict"], "missed")
            cells = [name, f"`{row['peer']}`", f"{row['value']:,}", f"{row['floor']:,}"]
            cells += [f"{row['from_floor']:.2f}", f"{row['ratio']:.2f}"]
            yield [*cells, f"{row['budget']:g}: {met}"]


def of_growth(times: dict[str, Any]) -> Iterator[list[str]]:
    """List how the time grows."""
    for head, curves in CURVES.items():
        for group, name in curves.items():
            if points := times["growth"].get(group):
                told = ", ".join(f"{count:,}: {took:,}" for count, took in points)
                yield [f"{head}{f', {name}' if name else ''}", told]


def kept(machine: str, date: str, benches: list[dict[str, Any]]) -> dict[str, Any]:
    """Take what is shown out of what the benchmark wrote."""
    bench, *others = benches
    rows, floors = {}, {}
    for row in bench["rows"]:
        name = row["name"]
        if row["group"] == "floors":
            floors[name] = round(row["median"])
        elif row["group"] in KEPT and row["value"] and row["ratio"]:
            rows[name] = {
                "bridge": name.removesuffix(", against CAI").removesuffix(", ordered back"),
                "peer": row["peer"].replace("SMV.", "cuda.core's "),
                **{key: row[key] and round(row[key]) for key in ("value", "peer_value", "floor")},
                **{
                    key: row[key] and round(row[key], 3)
                    for key in ("ratio", "from_floor", "budget")
                },
                "verdict": row["verdict"],
            }
    growth: dict[str, list[tuple[int, int]]] = {}
    for row in [*bench["rows"], *(row for one in others for row in one["rows"])]:
        count = COUNT.search(row["name"]) if row["group"].startswith("growth") else None
        # A later file's other groups are the same as the first one's, of another Python.
        if count and (row["group"] == WITHOUT or row in bench["rows"]):
            points = growth.setdefault(row["group"], [])
            points.append((int(count[1].replace(",", "")), round(row["value"])))
    return {
        "machine": machine,
        "date": date,
        "environment": bench["environment"],
        "rows": rows,
        "floors": floors,
        "growth": growth,
    }


def update(machine: str, date: str, *files: str) -> None:
    """Take what benchmarks wrote; from a second file come only the threads."""
    benches = [data(Path(file)) for file in files]
    known = json.dumps(kept(machine, date, benches), indent=1, ensure_ascii=False)
    TIMES.write_text(known + "\n", encoding="utf-8")


def files() -> dict[Path, str]:
    """List the pictures and the page with what they show."""
    times, page = data(TIMES), PAGE.read_text(encoding="utf-8")
    for name, lines in tables(times).items():
        marks = (f"<!-- {name} -->", f"<!-- end of {name} -->")
        page = between(page, *marks, "\n".join(["", *lines, ""]))
    return {
        PICTURES / "speed.svg": speed(times),
        PICTURES / "growth.svg": growth(times),
        PAGE: page,
    }
