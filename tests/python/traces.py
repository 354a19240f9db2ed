"""Reads trace files as strictly as their format is described, and as viewers need them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

FIELDS = {
    "X": {"name", "cat", "ts", "dur", "pid", "tid", "args"},
    "i": {"name", "cat", "ts", "pid", "tid", "s", "args"},
    "s": {"name", "cat", "ts", "pid", "tid", "id"},
    "f": {"name", "cat", "ts", "pid", "tid", "id", "bp"},
    "M": {"name", "pid", "tid", "args"},
}


def lane_of(event: dict[str, Any]) -> tuple[int, int]:
    return event["pid"], event["tid"]


class Trace:
    """A trace file, checked."""

    def __init__(self, path: Path) -> None:
        file = json.loads(path.read_text(), parse_constant=lambda constant: 1 / 0)
        assert set(file) == {"displayTimeUnit", "otherData", "traceEvents"}
        assert file["displayTimeUnit"] == "ns"
        self.about = file["otherData"]
        self.events = file["traceEvents"]
        for event in self.events:
            assert {"ph"} | FIELDS[event["ph"]] == set(event), event
        self.timed = [event for event in self.events if event["ph"] != "M"]
        self.processes, self.lanes = self._named("process_name"), self._named("thread_name")
        assert {lane_of(event) for event in self.timed} <= set(self.lanes), "lanes without names"
        assert {pid for pid, _ in self.lanes} == {pid for pid, _ in self.processes}
        assert len({tid for _, tid in self.lanes}) == len(self.lanes), "numbers of lanes, twice"
        self._check_slices()
        self._check_arrows()

    def _named(self, what: str) -> dict[tuple[int, int], str]:
        named = [event for event in self.events if event["ph"] == "M" and event["name"] == what]
        assert len({lane_of(event) for event in named}) == len(named), "a lane named twice"
        return {lane_of(event): event["args"]["name"] for event in named}

    def _check_slices(self) -> None:
        slices = defaultdict(list)
        for event in self.timed:
            assert event["ts"] >= 0
            if event["ph"] == "X":
                assert event["dur"] >= 0
                began = round(event["ts"] * 1000)
                slices[lane_of(event)].append((began, -round(event["dur"] * 1000)))
            elif event["ph"] == "i":
                assert event["s"] in "tpg"
        for lane in slices.values():
            open_until: list[int] = []
            for began, length in sorted(lane):
                while open_until and open_until[-1] <= began:
                    open_until.pop()
                assert not open_until or began - length <= open_until[-1], "slices that cross"
                open_until.append(began - length)

    def _check_arrows(self) -> None:
        starts, ends = ({e["id"]: e for e in self.timed if e["ph"] == way} for way in "sf")
        assert set(starts) == set(ends)
        assert Counter(e["ph"] for e in self.timed)["s"] == len(starts)
        assert Counter(e["ph"] for e in self.timed)["f"] == len(ends)
        for event in (*starts.values(), *ends.values()):
            assert any(
                lane_of(s) == lane_of(event) and s["ts"] <= event["ts"] <= s["ts"] + s["dur"]
                for s in self.slices("order")
            ), "an arrow that ends nowhere"
        assert all(starts[i]["ts"] <= ends[i]["ts"] for i in starts), "an arrow back in time"
        self._arrows = [(starts[i], ends[i]) for i in starts]

    @property
    def arrows(self) -> list[tuple[str, str]]:
        """The lanes that the arrows are between."""
        return [(self.lane(first), self.lane(then)) for first, then in self._arrows]

    def lane(self, event: dict[str, Any]) -> str:
        """The name of an event's lane, with that of its process."""
        process = next(name for (pid, _), name in self.processes.items() if pid == event["pid"])
        return f"{process} / {self.lanes[lane_of(event)]}"

    def slices(self, cat: str) -> list[dict[str, Any]]:
        return [e for e in self.timed if (e["ph"], e["cat"]) == ("X", cat)]

    def marks(self, cat: str) -> list[dict[str, Any]]:
        return [e for e in self.timed if (e["ph"], e["cat"]) == ("i", cat)]

    def exchanges(self) -> list[tuple[str, str | None]]:
        """The doors, and in or as what."""
        return [(e["name"], e["args"].get("by")) for e in self.slices("exchange")]

    def releases(self) -> list[tuple[str, str]]:
        """How each end came about, and what it came to."""
        return [(e["name"], e["args"]["outcome"]) for e in self.slices("release")]
