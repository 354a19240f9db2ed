"""The style of the manual's pictures. It follows the light or dark theme of the reader."""

from __future__ import annotations

from html import escape

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
