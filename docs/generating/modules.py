"""The picture of the source's modules, from the code.

The modules are those of src/lib.rs and src/py/mod.rs, from the last to the first. A line is a use
that no other use implies. The text of a module is the first sentence of its docs. The table below
has its step: a module without a step is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from generating import PICTURES, ROOT
from generating.drawing import svg, text

SOURCE = ROOT / "src"
# Each step of the way with its color and the modules that take part in it.
STEPS = {
    "take in": ("#4c78a8", "py/producers py/habits py/library py/libraries py/cai_dict cai dlpack"),
    "describe": ("#2f8f8b", "py/source descriptor layout dtype device"),
    "order": ("#c2571a", "py/hand_over py/streams order capture stream"),
    "hand out": ("#4f8a5b", "py/views py/exchange_api py/numpy buffer copy_plan"),
    "give back": ("#8a5fa8", "py/lease lease"),
}
# And what stands around it.
AROUND = {
    "what is called": ("#a8497e", "py/doors py/rust py/c array"),
    "the driver": ("#9a6b1f", "driver py/simulated py/ipc testing"),
    "what all use": (
        "#6e7781",
        "py/errors py/this_thread py/native py/by_type py/interpreter py/imported py/plain py/text "
        "py/flag py/item_error py/anywhere py/observe local error",
    ),
}
ROW, NAMES, WORDS, WIDTH = 24, 190, 310, 1000
USE = re.compile(r"^\s*(?:pub(?:\([a-z ]+\))? )?use ([^;]+);", re.MULTILINE)
IN_CODE = re.compile(r"\bcrate(?:::\w+)+")


def names_in(file: Path) -> list[str]:
    """List the modules that a file declares, in its order."""
    return re.findall(r"^(?:pub(?:\(crate\))? )?mod (\w+);", file.read_text("utf-8"), re.MULTILINE)


def modules() -> list[str]:
    """List the modules. A module is below all modules that it may use."""
    core = [name for name in names_in(SOURCE / "lib.rs") if name != "py"]
    inside = [f"py/{name}" for name in names_in(SOURCE / "py" / "mod.rs")]
    return [*reversed(inside), *reversed(core)]


def sources(module: str) -> list[Path]:
    """List the files of a module, the one with its docs first."""
    folder = SOURCE / module
    return (
        [folder / "mod.rs", *sorted(folder.rglob("*.rs"))]
        if folder.is_dir()
        else [folder.with_suffix(".rs")]
    )


def opened(path: str) -> Iterator[str]:
    """Write `a::{b, c::{d, e}}` out as paths without braces."""
    base, brace, rest = path.partition("{")
    if not brace:
        yield path.strip()
        return
    depth, item = 0, ""
    for letter in rest[: rest.rindex("}")] + ",":
        depth += (letter == "{") - (letter == "}")
        if letter == "," and not depth:
            yield from opened(base + item.strip())
            item = ""
        else:
            item += letter


def used(module: str, known: list[str]) -> set[str]:
    """Find the modules that the code of one uses."""
    found = set()
    for file in sources(module):
        code = re.sub(r"//.*", "", file.read_text("utf-8"))
        paths = [one for use in USE.findall(code) for one in opened(" ".join(use.split()))]
        folder = file.parent if file.name == "mod.rs" else file.with_suffix("")
        for path in paths + IN_CODE.findall(code):
            first, *rest = path.split("::")
            place = {"crate": SOURCE, "super": folder.parent, "self": folder}.get(first)
            while place and rest and rest[0] == "super":
                place, rest = place.parent, rest[1:]
            if place:
                parts = [*place.relative_to(SOURCE).parts, *rest]
                name = "/".join(parts[: 2 if parts[:1] == ["py"] else 1])
                found |= {name} & set(known)
    return found - {module}


def lines(known: list[str]) -> dict[str, list[str]]:
    """Find the uses of each module that no other use of it implies."""
    direct = {module: used(module, known) for module in known}
    implied: dict[str, set[str]] = {}
    for module in reversed(known):
        implied[module] = {far for near in direct[module] for far in (near, *implied[near])}
    return {
        module: sorted(uses - {far for near in uses for far in implied[near]}, key=known.index)
        for module, uses in direct.items()
    }


def words(module: str) -> str:
    """Take the first sentence of a module's docs."""
    docs = []
    for line in sources(module)[0].read_text("utf-8").splitlines():
        if not line.removeprefix("//!").strip() or not line.startswith("//!"):
            break
        docs.append(line.removeprefix("//!").strip())
    plain = re.sub(r"\[?`(?:super::)?([^`]+)`\]?", r"\1", " ".join(docs))
    return plain.split(". ")[0].rstrip(".")


def color_of(module: str) -> str:
    """Tell the color of the step that a module takes part in."""
    (color,) = (color for color, names in (STEPS | AROUND).values() if module in names.split())
    return color


def way() -> list[str]:
    """Draw the steps of the data, from left to right."""
    out = [text(20, 35, "an array of any library", "small")]
    for at, (step, (color, _)) in enumerate(STEPS.items()):
        x = 175 + 132 * at + (150 if step == "give back" else 0)
        place = f"M{x} 14h112l12 16l-12 16h-112l12 -16z"
        out.append(f'<path style="fill:{color}" d="{place}"/>')
        out.append(text(x + 64, 35, step, "on small", text_anchor="middle"))
    out.append(text(706, 35, "an argument, and later", "small"))
    return out


def picture() -> str:
    """Draw the way of the data, and below it each module with the lines of its uses."""
    known, out, rows, y = modules(), [], {}, 64
    for at, module in enumerate(known):
        if at == 0 or module.startswith("py/") != known[at - 1].startswith("py/"):
            head = "src/py: Python" if module.startswith("py/") else "src: the core, without Python"
            y += 24
            out.append(text(NAMES, y, head, "head"))
            y += 10
        rows[module] = y + ROW / 2
        box = f'x="{NAMES}" y="{y + 2}" width="{WORDS - NAMES - 12}" height="{ROW - 4}" rx="4"'
        out.append(f'<rect style="fill:{color_of(module)}" {box}/>')
        out.append(text(NAMES + 8, y + 16, module.removeprefix("py/"), "on small"))
        out.append(text(WORDS, y + 16, words(module), "small"))
        y += ROW
    arcs = []
    for module, uses in lines(known).items():
        for other in uses:
            top, low = rows[module] + 4, rows[other] - 4
            wide = NAMES - 20 - min(180, 14 + (low - top) * 0.42)
            turn = f"C{wide:.0f} {top:.0f} {wide:.0f} {low:.0f} {NAMES} {low:.0f}"
            style = f"fill:none;stroke-width:1.5;stroke:{color_of(module)}"
            arcs.append(f'<path style="{style}" d="M{NAMES} {top:.0f}{turn}"/>')
    for at, (step, (color, _)) in enumerate(AROUND.items()):
        x = NAMES + 130 * at
        out.append(f'<circle style="fill:{color}" cx="{x + 6}" cy="{y + 22}" r="6"/>')
        out.append(text(x + 18, y + 26, step, "small"))
    note = "A line: the upper uses the lower, which has to stand below it."
    out.append(text(NAMES + 400, y + 26, note, "small soft"))
    title = "The way of the data, and the modules that it takes"
    return svg(WIDTH, y + 44, title, way() + arcs + out)


def files() -> dict[Path, str]:
    """List the picture."""
    return {PICTURES / "modules.svg": picture()}
