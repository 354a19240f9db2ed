"""The table of docs/races.md: the racy programs under each tool, from docs/races/tools.json.

`python -m tests.gpu.race_tools` writes the results on a GPU. Without the file there is no table. A
result may have a `note`, written by hand, which becomes a footnote. It goes with the result.
"""

from __future__ import annotations

import json
import statistics
import string
from pathlib import Path
from typing import Any

from generating import DOCS, between, data, grid

PAGE, RUN = DOCS / "races.md", DOCS / "races" / "tools.json"
BEGIN, END = "<!-- tools -->", "<!-- end of tools -->"
PROGRAMS = "../tests/gpu/perturb_programs"
TOOLS = {
    "races": "`races`",
    "perturb": "`perturb`",
    "csan": "PyTorch's CSAN",
    "memcheck": "compute-sanitizer",
}
FOUND, WRONG = ("named", "found"), "accused"
UNJUDGED = ("failed", "timed out", "not begun")
KEPT = ("part", "program", "kind", "verdict", "seconds", "date", "note")
Results = dict[tuple[str, str, str], dict[str, Any]]


def update(*files: str) -> None:
    """Put the results of runs into the data, in place of older ones that are not better."""
    known = data(RUN) if RUN.exists() else {"machine": {}, "results": []}
    machine, results = known["machine"], _results(known["results"])
    for file in files:
        for line in Path(file).read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            if one["part"] == "machine":
                machine = {key: value for key, value in one.items() if key != "part"}
            elif one["part"] in TOOLS:
                key = one["part"], one["program"], one["kind"]
                if one["verdict"] not in UNJUDGED or key not in results:
                    dated = {"date": machine["date"]} | one
                    results[key] = {name: dated[name] for name in KEPT if name in dated}
    RUN.parent.mkdir(exist_ok=True)
    said = {"machine": machine, "results": [results[key] for key in sorted(results)]}
    RUN.write_text(f"{json.dumps(said, indent=1)}\n", encoding="utf-8")


def files() -> dict[Path, str]:
    """List the page."""
    if not RUN.exists():
        return {}
    run = data(RUN)
    text = written(run["machine"], _results(run["results"]))
    return {PAGE: between(PAGE.read_text("utf-8"), BEGIN, END, f"\n\n{text}\n\n")}


def written(machine: dict[str, Any], results: Results) -> str:
    """Write the table, with what a cell means and where it is from."""
    gpus = [one.split(", ") for one in machine["gpus"]]
    where = f"{len(gpus)} x {gpus[0][0]}, driver {gpus[0][-1]}" if gpus else "no GPU"
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    heads = ["program", *TOOLS.values()]
    dates = sorted({one["date"] for one in results.values()})
    notes: list[str] = []
    table = grid(heads, [*rows(results, notes), *totals(results)])
    footnotes = [f"({_letter(place)}) {note}." for place, note in enumerate(notes)]
    return "\n".join(
        [
            "Two other tools look for such races: CSAN (`TORCH_CUDA_SANITIZER=1`), and memcheck of "
            "compute-sanitizer with `--track-stream-ordered-races all`. A cell has the verdict on "
            "the racy program, and then on its right twin. A racy program is *named* if the tool "
            "shows both lines, or the one line where the host is the other side. It is *found* "
            "without them. A right program is *quiet* or *accused*. A dash: not measured. The "
            "totals leave out what failed or did not end. CSAN is not applicable to programs "
            "without PyTorch. memcheck sees memory of the driver's own pool only, so the programs "
            "run with the allocators of `--stream-ordered` there.",
            "",
            f"{where}, {machine['cores']} cores, {' and '.join(dates)}; "
            f"Python {machine['python']}, {versions}.",
            "",
            *table,
            *(["", "<br>\n".join(footnotes)] if footnotes else []),
        ]
    )


def rows(results: Results, notes: list[str]) -> list[list[str]]:
    """Write a row for each program, and one for each training loop; new notes go to `notes`."""
    found = []
    for program in sorted({key[1] for key in results} - {"training"}):
        cells = [
            " / ".join(_cell(results, tool, program, kind, notes) for kind in ("racy", "right"))
            for tool in TOOLS
        ]
        for none in ("not applicable", "-"):
            cells = [none if one == f"{none} / {none}" else one for one in cells]
        found.append([f"[`{program}`]({PROGRAMS}/{program}.py)", *cells])
    for kind in sorted({key[2] for key in results if key[1] == "training"}):
        cells = [_cell(results, tool, "training", kind, notes) for tool in TOOLS]
        found.append([f"[`training {kind}`]({PROGRAMS}/training.py)", *cells])
    return found


def totals(results: Results) -> list[list[str]]:
    """Count what each tool found and accused, and give the time that a program takes."""
    racy, right, times = [], [], []
    for tool in TOOLS:
        of = [one for key, one in results.items() if key[0] == tool]
        of = [one for one in of if one["verdict"] not in ("not applicable", *UNJUDGED)]
        racy.append(_share([one["verdict"] in FOUND for one in of if one["kind"] == "racy"]))
        right.append(_share([one["verdict"] == WRONG for one in of if one["kind"] != "racy"]))
        seconds = [_seconds(one["seconds"]) for one in of if one.get("seconds")]
        times.append(f"{statistics.median(seconds):.0f} s" if seconds else "-")
    return [
        ["**racy programs found**", *racy],
        ["**right programs accused**", *right],
        ["**median time of a program, beside others**", *times],
    ]


def _cell(results: Results, tool: str, program: str, kind: str, notes: list[str]) -> str:
    one = results.get((tool, program, kind), {})
    verdict = one.get("verdict", "-")
    text = f"**{verdict}**" if verdict in (*FOUND, WRONG) else verdict
    if note := one.get("note"):
        notes += [] if note in notes else [note]
        text += f" ({_letter(notes.index(note))})"
    return text


def _letter(place: int) -> str:
    return string.ascii_lowercase[place]


def _share(of: list[bool]) -> str:
    return f"{sum(of)} of {len(of)}" if of else "-"


def _seconds(of: float | list[float]) -> float:
    return sum(of) if isinstance(of, list) else of


def _results(of: list[dict[str, Any]]) -> Results:
    return {(one["part"], one["program"], one["kind"]): one for one in of}
