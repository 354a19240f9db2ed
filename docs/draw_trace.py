"""Draw a trace that `cai_bridge.trace` wrote as an SVG: `draw_trace.py trace.json trace.svg`.

For a page of docs, so every event is readable and time is not to scale: calls are as wide as their
names need, and the microseconds are written above. Trace viewers show the rest.
"""

import json
import sys
from collections import defaultdict
from html import escape
from pathlib import Path

LEFT, TOP, ROW, LINE = 225, 54, 22, 28
LETTER = 7.3  # pixels, about, of the font
TICK = 7
COLORS = {"exchange": "#4c78a8", "release": "#72a98f", "copy": "#b279a2", "host wait": "#d1605e"}
STYLE = """<style>
text { font: 12px ui-monospace, 'DejaVu Sans Mono', monospace; fill: #222; }
.head { font-weight: bold; } .in { fill: #fff; } .time { fill: #888; font-size: 10px; }
.why { fill: #555; } .arrow { fill: none; stroke: #c2410c; stroke-width: 1.8; }
.page { fill: #fff; } .lane { stroke: #e3e3e3; } .mark { fill: #999; } .tip { fill: #c2410c; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } .in { fill: #fff; } .time, .why { fill: #a0a8b0; }
.page { fill: #1a1c23; } .lane { stroke: #3b424b; }
.arrow { stroke: #ff9d5c; } .tip { fill: #ff9d5c; }
}
</style>
<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"
 orient="auto" markerUnits="userSpaceOnUse"><path class="tip" d="M0 0L8 4L0 8z"/></marker>"""


def lanes_of(events):
    """List the lanes with their names, each process before its threads."""
    names = defaultdict(dict)
    for event in events:
        if event["ph"] == "M" and event["name"].endswith("_name"):
            names[event["pid"]][event["tid"]] = event["args"]["name"]
    return [((pid, tid), name) for pid in sorted(names) for tid, name in sorted(names[pid].items())]


def depths(slices):
    """How many slices each one is inside of."""
    found, inside = {}, defaultdict(list)
    for event in sorted(slices, key=lambda e: (e["ts"], -e["dur"])):
        stack = inside[event["pid"], event["tid"]]
        while stack and stack[-1] <= event["ts"]:
            stack.pop()
        found[id(event)] = len(stack)
        stack.append(event["ts"] + event["dur"])
    return found


def positions(events, slices):
    """Where each time is, from left to right: as far from others as the names between them need."""
    times = sorted({e["ts"] for e in events} | {e["ts"] + e["dur"] for e in slices})
    where = {time: LEFT + 20 + 9.0 * at for at, time in enumerate(times)}

    def push(after, least):
        behind = [time for time in times if time >= after]
        if behind and (short := least - where[behind[0]]) > 0:
            for time in behind:
                where[time] += short

    for event in sorted(events, key=lambda e: e["ts"] + e.get("dur", 0)):
        x, text = where[event["ts"]], LETTER * len(event["name"])
        if event["ph"] == "i":
            push(min((t for t in times if t > event["ts"]), default=1e30), x + 16)
        elif event["cat"] != "order":
            push(event["ts"] + event["dur"], x + text + 10)
    return where


def notes(marks, where, width):
    """Where each mark's words have room, and in which line below its lane."""
    lines, found = [], {}
    for event in sorted(marks, key=lambda e: e["ts"]):
        long = LETTER * len(event["name"])
        x = min(where[event["ts"]] - 3, width - long - 12)
        line = next((at for at, end in enumerate(lines) if end <= x), len(lines))
        lines[line : line + 1] = [x + long]
        found[id(event)] = x, line
    return found


def mark(event, x, y, note):
    """Draw a mark, and its words below the lane."""
    y_words = y + 20 + 14 * note[1]
    words = f'<text class="why" x="{note[0]:.0f}" y="{y_words}">{escape(event["name"])}</text>'
    return f'<path d="M{x:.0f} {y - 6}l5 6l-5 6l-5 -6z" class="mark"/>{words}'


def bar(event, x, right, y):
    """Draw a slice of a thread with its name; all else is shown by pointing at it."""
    color = COLORS[event["cat"]] if "error" not in event["args"] else "#d1605e"
    about = escape("\n".join(f"{name}: {value}" for name, value in event["args"].items()))
    return (
        f'<g><title>{about}</title><rect x="{x:.0f}" y="{y - 9}" width="{right - x:.0f}"'
        f' height="18" rx="3" fill="{color}"/>'
        f'<text class="in" x="{x + 5:.0f}" y="{y + 4}">{escape(event["name"])}</text></g>'
    )


def arrow(first, then):
    """Draw an order, from the stream that an event is recorded on to the one that waits."""
    (x, y), (u, v) = first, then
    ends = "".join(
        f'<rect x="{a - TICK / 2:.0f}" y="{b - 7}" width="{TICK}" height="14" class="tip"/>'
        for a, b in (first, then)
    )
    tip = v - 8 if v > y else v + 8
    path = f"M{x:.0f} {y}C{x + 26:.0f} {y} {u + 26:.0f} {(y + v) / 2} {u:.0f} {tip}"
    return f'{ends}<path class="arrow" marker-end="url(#tip)" d="{path}"/>'


def draw(trace):
    """Draw the whole picture."""
    events = trace["traceEvents"]
    timed = [e for e in events if e["ph"] in "Xi"]
    slices = [e for e in timed if e["ph"] == "X"]
    deep, where, rows, lines, y, out = depths(slices), positions(timed, slices), {}, {}, TOP, []
    width = max(where.values()) + 120
    for lane, name in lanes_of(events):
        if not lane[1]:
            y += 14
            out.append(f'<text class="head" x="14" y="{y + 4}">{escape(name)}</text>')
            y += ROW
            continue
        own = [e for e in timed if (e["pid"], e["tid"]) == lane]
        bars = [deep[id(e)] for e in own if e["ph"] == "X" and e["cat"] != "order"]
        rows[lane] = y
        out.append(f'<path d="M{LEFT} {y}H{width:.0f}" class="lane"/>')
        out.append(f'<text x="28" y="{y + 4}">{escape(name)}</text>')
        lines |= (noted := notes([e for e in own if e["ph"] == "i"], where, width))
        y += LINE + ROW * max(bars, default=0) + 14 * len({line for _, line in noted.values()})
    for time in sorted({e["ts"] for e in slices if e["cat"] != "order" and not deep[id(e)]}):
        out.append(f'<text class="time" x="{where[time]:.0f}" y="36">{time:.1f}</text>')
    out.append(f'<text class="time" x="{LEFT - 8}" y="36" text-anchor="end">host time, µs</text>')
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
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {y}">\n{STYLE}'
    page = '<rect width="100%" height="100%" class="page"/>'
    return "\n".join([head, page, *out, "</svg>\n"])


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(draw(json.loads(source.read_text())), encoding="utf-8")
