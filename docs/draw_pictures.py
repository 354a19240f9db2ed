"""Draw the manual's pictures from committed data: `draw_pictures.py` writes docs/pictures/*.svg.

- race.svg and end.svg: a race and its cure, from races.json (docs/record_races.py writes that)
- matrix.svg: what the libraries do to each other, from docs/matrix/h200.json

Each is light or dark as the reader's system is.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from cai_bridge._cli.marks import OUTCOMES
from cai_bridge._cli.table import DOORS, Table
from cai_bridge.conformance.matrix import Matrix

DOCS = Path(__file__).parent
PICTURES = DOCS / "pictures"
STYLE = """<style>
text { font: 14px system-ui, 'DejaVu Sans', sans-serif; fill: #24292f; }
.head { font-weight: bold; } .small { font-size: 12px; } .soft { fill: #6e7781; }
.page { fill: #ffffff; } .lane { stroke: #d0d7de; stroke-width: 2; } .on { fill: #ffffff; }
.write { fill: #4c78a8; } .read { fill: #4f8a5b; } .bad { fill: #c8443f; } .badly { fill: #b3302b; }
.good { fill: #2e7040; } .tip { fill: #c2571a; }
.wait { fill: none; stroke: #c2571a; stroke-width: 2.5; }
.ours { fill: #4c78a8; } .theirs { fill: #a8b1ba; }
.floor { stroke: #24292f; stroke-width: 2.5; }
.curve { fill: none; stroke-width: 2; } .of-ours { stroke: #4c78a8; } .of-read { stroke: #4f8a5b; }
.s-wrong, .s-crashed { fill: #c8443f; } .s-ignored, .s-waits { fill: #b07a14; }
.s-refused { fill: #6e7781; } .s-right { fill: #4f8a5b; } .s-none { fill: #d0d7de; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } .soft { fill: #9aa4ae; } .page { fill: #1a1c23; } .on { fill: #ffffff; }
.lane { stroke: #444c56; } .theirs { fill: #6e7781; } .floor { stroke: #e6edf3; }
.badly { fill: #ff8a80; } .good { fill: #7ccf8e; }
.wait { stroke: #ff9d5c; } .tip { fill: #ff9d5c; }
.s-none { fill: #444c56; }
}
</style>
<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9"
 orient="auto" markerUnits="userSpaceOnUse"><path class="tip" d="M0 0L8 4L0 8z"/></marker>"""
CAPTIONS = {
    "race": ("hand_over", "The read does not wait for the write: it sees the old value"),
    "end": ("end", "The block is handed out again while it is read"),
}
CURES = {
    "race": "With the bridge the consumer's stream waits: no race, and the host goes on",
    "end": "With the bridge the producer's stream waits before it uses the block again",
}


def svg(width: int, height: int, title: str, parts: list[str]) -> str:
    """Put the parts into a picture."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
        f"<title>{escape(title)}</title>\n{STYLE}"
    )
    page = '<rect class="page" width="100%" height="100%" rx="6"/>'
    return "\n".join([head, page, *parts, "</svg>\n"])


def text(x: float, y: float, words: str, kind: str = "", **more: str) -> str:
    """Write words at a place."""
    rest = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return f'<text x="{x:.0f}" y="{y:.0f}" class="{kind}"{rest}>{escape(words)}</text>'


def bar(x: float, y: float, width: float, words: str, kind: str) -> str:
    """Draw work on a stream."""
    place = f'x="{x:.0f}" y="{y - 15:.0f}" width="{width:.0f}" height="30"'
    return f'<rect class="{kind}" {place} rx="4"/>' + text(
        x + width / 2, y + 5, words, "on", text_anchor="middle"
    )


def panel(top: int, head: str, found: dict[str, Any]) -> list[str]:
    """Draw the streams of one recording: time runs to the right."""
    lanes = {"producer": top + 42, "consumer": top + 96}
    out = [text(20, top + 12, head, "head")]
    for name, y in lanes.items():
        out.append(f'<path class="lane" d="M150 {y}H700"/>')
        out.append(text(20, y + 5, f"{name}'s stream", "small"))
    at = {}
    for place, one in enumerate(found["ran"]):
        x = 190 + 230 * place
        reads = one["name"] == "read"
        wrong = reads and bool(found["reports"])
        words = f"read: {one['value']:g}" if reads else one["name"]
        kind = "bad" if wrong else "read" if reads else "write"
        out.append(bar(x, lanes[one["stream"]], 120, words, kind))
        at[one["stream"]] = x
    first, then = (one["stream"] for one in found["ran"])
    if then in found["waits"]:
        (x, y), (u, v) = (at[first] + 120, lanes[first]), (at[then], lanes[then])
        middle = (x + u) / 2
        path = f"M{x} {y}C{middle} {y} {middle} {v} {u - 2} {v}"
        out.append(f'<path class="wait" marker-end="url(#tip)" d="{path}"/>')
        out.append(text(middle, min(y, v) - 10, "waits", "small soft", text_anchor="middle"))
    races = "a race" if found["reports"] else "in order"
    out.append(
        text(690, top + 12, races, "badly" if found["reports"] else "good", text_anchor="end")
    )
    return out


def race(name: str) -> str:
    """Draw a mistake, and below it the same with the bridge."""
    data = json.loads((PICTURES / "races.json").read_text(encoding="utf-8"))
    scene, alone = CAPTIONS[name]
    found = data[scene]
    parts = panel(24, f"{alone}", found["alone"]) + panel(164, CURES[name], found["bridged"])
    return svg(720, 300, f"{alone}. {CURES[name]}", parts)


def matrix() -> str:
    """Draw each pair as four letters: by CAI, by DLPack, by a view, by `convert`."""
    data = json.loads((DOCS / "matrix" / "h200.json").read_text(encoding="utf-8"))
    found = Matrix.from_dict(data)
    table = Table(found)
    names, parts, cell, left, top = found.consumers, [], 92, 110, 66
    parts.append(
        text(
            20,
            28,
            "From (rows) to (columns): alone by CAI and DLPack, then by a view and convert",
            "head",
        )
    )
    for column, name in enumerate(names):
        parts.append(text(left + column * cell + 40, top - 10, name, "small", text_anchor="middle"))
    for row, producer in enumerate(found.producers):
        y = top + row * 34
        parts.append(text(20, y + 19, producer, "small"))
        for column, consumer in enumerate(names):
            if producer == consumer:
                continue
            pair = (producer, consumer)
            outcomes = [table.best(pair, door=door, bridged=False) for door in DOORS]
            outcomes += [table.with_bridge(pair), table.by_convert(pair)]
            for at, outcome in enumerate(outcomes):
                x = left + column * cell + at * 20 + (4 if at > 1 else 0)
                parts.append(
                    f'<rect class="s-{outcome}" x="{x}" y="{y}" width="18" height="26" rx="3"/>'
                )
                letter = OUTCOMES[outcome].letter
                parts.append(text(x + 9, y + 18, letter, "small on", text_anchor="middle"))
    bottom = top + len(found.producers) * 34
    legend = ", ".join(f"{one.letter} {one.word}" for one in OUTCOMES.values())
    parts.append(text(20, bottom + 22, f"{legend}. {found.place}, {found.date[:10]}", "small soft"))
    width = left + len(names) * cell + 10
    return svg(width, bottom + 36, "What the libraries do to each other", parts)


def pictures() -> dict[Path, str]:
    """List the pictures with what they show."""
    drawn = {"race": race("race"), "end": race("end"), "matrix": matrix()}
    return {PICTURES / f"{name}.svg": picture for name, picture in drawn.items()}


if __name__ == "__main__":
    for path, picture in pictures().items():
        path.write_text(picture, encoding="utf-8")
