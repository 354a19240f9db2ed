"""The picture of a trace that `cai_bridge.trace` wrote, pictures/trace.json.

For a page of docs, so every event is readable and time is not to scale: calls are as wide as their
names need, and the microseconds are written above. Trace viewers show the rest.
"""

from __future__ import annotations

from collections import defaultdict
from html import escape
from pathlib import Path
from typing import Any

from generating import PICTURES, data
from generating.drawing import svg, text

LEFT, TOP, ROW, LINE = 225, 54, 22, 28
LETTER = 7.3  # pixels, about, of the font
TICK = 7
COLORS = {"exchange": "#4c78a8", "release": "#72a98f", "copy": "#b279a2", "host wait": "#d1605e"}
Events = list[dict[str, Any]]
Lane = tuple[int, int]
STYLE = """<style>
text { font: 12px ui-monospace, 'DejaVu Sans Mono', monospace; }
.in { fill: #fff; } .time { fill: #888; font-size: 10px; } .why { fill: #555; }
.mark { fill: #999; }
@media (prefers-color-scheme: dark) { .in { fill: #fff; } .time, .why { fill: #a0a8b0; } }
</style>"""


def lanes_of(events: Events) -> list[tuple[Lane, str]]:
    """List the lanes with their names, each process before its threads."""
    names: dict[int, dict[int, str]] = defaultdict(dict)
    for event in events:
        if event["ph"] == "M" and event["name"].endswith("_name"):
            names[event["pid"]][event["tid"]] = event["args"]["name"]
    return [((pid, tid), name) for pid in sorted(names) for tid, name in sorted(names[pid].items())]


def depths(slices: Events) -> dict[int, int]:
    """Count the slices around each slice."""
    found: dict[int, int] = {}
    inside: dict[Lane, list[float]] = defaultdict(list)
    for event in sorted(slices, key=lambda e: (e["ts"], -e["dur"])):
        stack = inside[event["pid"], event["tid"]]
        while stack and stack[-1] <= event["ts"]:
            stack.pop()
        found[id(event)] = len(stack)
        stack.append(event["ts"] + event["dur"])
    return found


def positions(events: Events, slices: Events) -> dict[float, float]:
    """Place the times from left to right, as far apart as the names between them need."""
    times = sorted({e["ts"] for e in events} | {e["ts"] + e["dur"] for e in slices})
    where = {time: LEFT + 20 + 9.0 * at for at, time in enumerate(times)}

    def push(after: float, least: float) -> None:
        behind = [time for time in times if time >= after]
        if behind and (short := least - where[behind[0]]) > 0:
            for time in behind:
                where[time] += short

    for event in sorted(events, key=lambda e: e["ts"] + e.get("dur", 0)):
        x, wide = where[event["ts"]], LETTER * len(event["name"])
        if event["ph"] == "i":
            push(min((t for t in times if t > event["ts"]), default=1e30), x + 16)
        elif event["cat"] != "order":
            push(event["ts"] + event["dur"], x + wide + 10)
    return where


def notes(marks: Events, where: dict[float, float], width: float) -> dict[int, tuple[float, int]]:
    """Place each mark's words where they have room, in a line below its lane."""
    lines: list[float] = []
    found: dict[int, tuple[float, int]] = {}
    for event in sorted(marks, key=lambda e: e["ts"]):
        long = LETTER * len(event["name"])
        x = min(where[event["ts"]] - 3, width - long - 12)
        line = next((at for at, end in enumerate(lines) if end <= x), len(lines))
        lines[line : line + 1] = [x + long]
        found[id(event)] = x, line
    return found


def mark(event: dict[str, Any], x: float, y: int, note: tuple[float, int]) -> str:
    """Draw a mark, and its words below the lane."""
    shape = f'<path d="M{x:.0f} {y - 6}l5 6l-5 6l-5 -6z" class="mark"/>'
    return shape + text(note[0], y + 20 + 14 * note[1], event["name"], "why")


def bar(event: dict[str, Any], x: float, right: float, y: int) -> str:
    """Draw a thread's slice with its name. The other fields show when the mouse is over it."""
    color = COLORS[event["cat"]] if "error" not in event["args"] else "#d1605e"
    about = escape("\n".join(f"{name}: {value}" for name, value in event["args"].items()))
    return (
        f'<g><title>{about}</title><rect x="{x:.0f}" y="{y - 9}" width="{right - x:.0f}"'
        f' height="18" rx="3" fill="{color}"/>{text(x + 5, y + 4, event["name"], "in")}</g>'
    )


def arrow(first: tuple[float, int], then: tuple[float, int]) -> str:
    """Draw an order: from the stream with the recorded event to the waiting stream."""
    (x, y), (u, v) = first, then
    ends = "".join(
        f'<rect x="{a - TICK / 2:.0f}" y="{b - 7}" width="{TICK}" height="14" class="tip"/>'
        for a, b in (first, then)
    )
    tip = v - 8 if v > y else v + 8
    path = f"M{x:.0f} {y}C{x + 26:.0f} {y} {u + 26:.0f} {(y + v) / 2} {u:.0f} {tip}"
    return f'{ends}<path class="wait" marker-end="url(#tip)" d="{path}"/>'


def draw(trace: dict[str, Any]) -> str:
    """Draw the whole picture."""
    events = trace["traceEvents"]
    timed = [e for e in events if e["ph"] in "Xi"]
    slices = [e for e in timed if e["ph"] == "X"]
    deep, where, rows, lines, y, out = depths(slices), positions(timed, slices), {}, {}, TOP, []
    width = max(where.values()) + 120
    for lane, name in lanes_of(events):
        if not lane[1]:
            y += 14
            out.append(text(14, y + 4, name, "head"))
            y += ROW
            continue
        own = [e for e in timed if (e["pid"], e["tid"]) == lane]
        bars = [deep[id(e)] for e in own if e["ph"] == "X" and e["cat"] != "order"]
        rows[lane] = y
        out.append(f'<path d="M{LEFT} {y}H{width:.0f}" class="lane"/>')
        out.append(text(28, y + 4, name))
        lines |= (noted := notes([e for e in own if e["ph"] == "i"], where, width))
        y += LINE + ROW * max(bars, default=0) + 14 * len({line for _, line in noted.values()})
    for time in sorted({e["ts"] for e in slices if e["cat"] != "order" and not deep[id(e)]}):
        out.append(text(where[time], 36, f"{time:.1f}", "time"))
    out.append(text(LEFT - 8, 36, "host time, µs", "time", text_anchor="end"))
    for event in timed:
        x, level = where[event["ts"]], rows[event["pid"], event["tid"]]
        if event["ph"] == "i":
            out.append(mark(event, x, level, lines[id(event)]))
        elif event["cat"] != "order":
            right = where[event["ts"] + event["dur"]]
            out.append(bar(event, x, right, level + ROW * deep[id(event)]))
    tips = {e["id"]: e for e in events if e["ph"] == "f"}
    for start in (e for e in events if e["ph"] == "s"):
        sides = [(where[e["ts"]], rows[e["pid"], e["tid"]]) for e in (start, tips[start["id"]])]
        out.append(arrow(*sides))
    title = "A trace: what each thread called, and which stream waits for which"
    return svg(round(width), y, title, [STYLE, *out])


def files() -> dict[Path, str]:
    """List the picture."""
    return {PICTURES / "trace.svg": draw(data(PICTURES / "trace.json"))}
